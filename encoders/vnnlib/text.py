"""VNN-LIB text as nested lists of words with their lines: what both versions of the format have in common.

Built without recursion and within limits, so that no file can exhaust memory or the stack.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from encoders.errors import ModelError

MAX_BYTES = 64 << 20
MAX_WORDS = 1 << 22
"""Parentheses included; the memory of a machine is not filled by parentheses that nobody meant."""
MAX_DEPTH = 100
LONGEST = 1000
"""Characters of a message."""
_TOKEN = re.compile(r"""(?:\s+|;[^\n]*)++|(?P<word>[()\[\],]|"[^"\n]*"|[^\s()\[\],;"]+)""")


class VnnlibError(ModelError):
    """A VNN-LIB file that is damaged or not well-formed; names file, line, what was found and what is expected."""

    exit_code = 2

    def __init__(self, path: str | Path, line: int | None, problem: str) -> None:
        said = problem if len(problem) <= LONGEST else f"{problem[:LONGEST]} ..."  # a word may be as long as the file
        super().__init__(path, said if line is None else f"line {line}: {said}")


class VnnlibUnsupported(VnnlibError):
    """A query that is, or may be, well-formed, but outside of what is decided here."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class SExpression:
    items: tuple[Word | SExpression, ...]
    line: int

    @property
    def head(self) -> str:
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Word) else ""


def _content(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise VnnlibError(path, None, f"is larger than {MAX_BYTES >> 20} MiB; ask in several files")
        return raw.decode("utf-8")
    except OSError as error:
        raise VnnlibError(path, None, f"cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise VnnlibError(path, None, "is no text in UTF-8; expected a VNN-LIB query") from error


def _words(path: Path, text: str) -> Iterator[Word]:
    line, at = 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise VnnlibError(path, line, f"stray {text[at]!r}; strings end on the line they begin on")
        word = match["word"]
        if word is not None:
            yield Word(word, line)
        line += text.count("\n", at, match.end())
        at = match.end()


def trees(path: Path) -> list[SExpression]:
    """The parenthesised lists of a file, built without recursion."""
    done: list[SExpression] = []
    stack: list[tuple[list[Word | SExpression], int]] = []
    text = _content(path)
    if sum(1 for match in islice(_TOKEN.finditer(text), 2 * MAX_WORDS) if match.lastgroup) >= MAX_WORDS:  # gaps are one token each
        raise VnnlibError(path, None, f"has {MAX_WORDS:,} words and parentheses, or more; ask in several files")
    for word in _words(path, text):
        if word.text == "(":
            if len(stack) >= MAX_DEPTH:
                raise VnnlibError(path, word.line, f"nested more than {MAX_DEPTH} deep; flatten it")
            stack.append(([], word.line))
        elif not stack:
            raise VnnlibError(path, word.line, f"{word.text!r} stands outside parentheses; expected a command such as (assert ...)")
        elif word.text == ")":
            items, line = stack.pop()
            tree = SExpression(tuple(items), line)
            (stack[-1][0] if stack else done).append(tree)
        else:
            stack[-1][0].append(word)
    if stack:
        raise VnnlibError(path, stack[-1][1], "this parenthesis is never closed")
    return done
