"""The envelope that all certificates share: JSON (gzip when the name ends in .gz) with the digest of everything else in it."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from verifair.errors import CertificateError

Content = TypeVar("Content")
MAX_BYTES = 1 << 29
"""No certificate is larger than this once unpacked: a file that is, is an attack or a mistake."""
MAX_MEMORY = 8 << 30
"""Bytes that its lists and numbers may take in memory: brackets and commas alone would need many times what the text does."""
HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def write(path: str | Path, payload: Mapping[str, Any]) -> None:
    """Write the payload with its digest. The same payload gives the same bytes."""
    content = {**payload, "digest": _digest(payload)}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    Path(path).write_bytes(gzip.compress(text, 6, mtime=0) if str(path).endswith(".gz") else text)


def read(path: str | Path, expected: str, parse: Callable[[Any], Content]) -> tuple[Content, bool]:
    """What `parse` makes of the JSON, and whether the digest fits the rest of it.

    expected: the format's name, for errors.   Raises CertificateError for whatever cannot be read, or that parse refuses with a
    ValueError (pydantic's ValidationError included).
    """
    try:
        content = _content(Path(path))
        raw = json.loads(content, parse_constant=_no_constant)
        if not isinstance(raw, dict):
            raise ValueError("is no JSON object")
        if HALF.search(content) is not None:
            _check_characters(raw)
        found = parse(raw)
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise CertificateError(f"{path}: {place}: {first['msg']}; expected a {expected} file") from error
    except RecursionError as error:
        raise CertificateError(f"{path}: nested too deeply; expected a {expected} file") from error
    except MemoryError as error:
        raise CertificateError(f"{path}: needs more memory than there is; expected a {expected} file") from error
    except (ValueError, EOFError, zlib.error) as error:
        raise CertificateError(f"{path}: {error}; expected a {expected} file") from error
    return found, _digest({key: value for key, value in raw.items() if key != "digest"}) == raw["digest"]


def _digest(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _content(path: Path) -> bytes:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        content: bytes = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    lists, numbers = content.count(b"[") + content.count(b"{"), content.count(b",")
    if 64 * lists + 32 * numbers + 3 * len(content) > MAX_MEMORY:  # what Python takes for each
        raise ValueError(f"{lists:,} lists and {numbers:,} numbers would take more than {MAX_MEMORY >> 30} GiB of memory")
    return content


def _check_characters(raw: Any) -> None:
    """Escapes may stand for half characters, which nothing can write again."""
    try:
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text of it has half a character") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
