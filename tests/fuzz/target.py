"""What is fuzzed: a reader, valid files for it, and how they are damaged; and what a reader may do with a damaged file."""

import random
import re
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from encoders.errors import ModelError
from solvers.outcome import BackendError
from tests.fuzz.opened import FORBIDDEN, never_opens
from verifair.errors import VerifairError

OURS = (VerifairError, ModelError, BackendError)
LONGEST = 200_000
"""Characters that a message may have: somebody has to read it."""


class Untrue(AssertionError):
    """A reader accepted a file whose statement is false."""


class Target(Protocol):
    """One reader under test. `name` is the file's name, which tells its format."""

    name: str

    def seeds(self, folder: Path) -> dict[str, bytes]:
        """Valid files by name; called once. Files that have to lie beside them are written to the folder."""

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        """A damaged file of the same name."""

    def read(self, path: Path) -> str:
        """Reads a file as the command line does, and says what came of it. Raises Untrue for a wrong answer."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one file.

    kind: refused (one of our errors), read, or failed (anything else).   said: the class of error and its words without names
    and numbers, or what `read` returned.   trace: of a failure.
    """

    kind: str
    said: str
    trace: str = ""


def outcome(target: Target, path: Path) -> Outcome:
    """Reads one file; whatever is not refused in our own words is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with never_opens(FORBIDDEN):
                return Outcome(kind="read", said=target.read(path))
        except OURS as error:
            flaw = _message_flaw(str(error))
            said = f"{type(error).__name__}: {skeleton(str(error), path)}"
            return (
                Outcome(kind="failed", said=f"{flaw}: {said}", trace=traceback.format_exc())
                if flaw
                else Outcome(kind="refused", said=said)
            )
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Outcome(
                kind="failed", said=f"{type(error).__name__}: {skeleton(str(error), path)}", trace=traceback.format_exc()
            )


def _message_flaw(message: str) -> str | None:
    if not message.strip():
        return "says nothing"
    if len(message) > LONGEST:
        return f"message too long to be read ({len(message)} characters)"
    return None


def skeleton(message: str, path: Path) -> str:
    """A message without what is only this file's: its name, quoted words and numbers."""
    text = message.replace(str(path), "FILE").replace(path.name, "FILE")[:2000]
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", text)
    text = re.sub(r"-?\d[\d.,e+-]*", "N", text)
    return " ".join(text.split())[:160]
