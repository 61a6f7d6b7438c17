"""Which of our files is this?  What `verifair check` is given may be anything: it is told apart before anything is read of it."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from verifair.checker import partition
from verifair.checker.certificate import Certificate
from verifair.checker.consistency_certificate import ConsistencyCertificate
from verifair.checker.kmax_certificate import KmaxCertificate
from verifair.errors import CertificateError

T = TypeVar("T")
EXPECTED = "expected a certificate (.json, .json.gz), or a store of certify --partition"
SQLITE = b"SQLite format 3\0"
GZIP = b"\x1f\x8b"
NAMED = re.compile(rb'"format"\s*:\s*"([^"\\]{1,80})"')
HEAD = 1 << 16
"""Bytes among which a certificate names its format: it is the first key that we write."""


def kind_of(path: Path) -> str:
    """Which of our formats a file claims to be; its own reader decides whether it is. CertificateError when it is none."""
    if path.is_dir():
        raise CertificateError(f"{path}: is a folder; {EXPECTED}: name a file in it")
    if not path.is_file():
        raise CertificateError(f"{path}: there is no such file; {EXPECTED}")
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head:
        raise CertificateError(f"{path}: is empty; {EXPECTED}: run the verb that wrote it again")
    if head.startswith(SQLITE):
        return partition.FORMAT
    zipped = head.startswith(GZIP)
    if zipped != path.name.endswith(".gz"):
        found = "is compressed by gzip, but its name does not end" if zipped else "is not compressed by gzip, but its name ends"
        raise CertificateError(f"{path}: {found} in .gz; {EXPECTED}: rename it, or name another file")
    if zipped:
        try:
            with gzip.open(path) as unpacked:
                head = unpacked.read(HEAD)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CertificateError(f"{path}: is a damaged gzip file; {EXPECTED}: copy it again, or run again") from error
    named = NAMED.search(head)
    kind = named.group(1).decode(errors="replace") if named else ""
    known = (Certificate.FORMAT, KmaxCertificate.FORMAT, ConsistencyCertificate.FORMAT)
    if kind in known:
        return kind
    if not head.lstrip().startswith(b"{"):
        raise CertificateError(f"{path}: is neither JSON with a certificate nor SQLite; {EXPECTED}: name another file")
    if kind or len(head) < HEAD:
        found = f"names {kind!r} as its format" if kind else "names no format"
        ours = f"{', '.join(known[:-1])} or {known[-1]}, as pba, certify, kmax and cec write"
        raise CertificateError(f"{path}: is JSON that {found}; expected {ours}: name another file")
    return Certificate.FORMAT  # somebody sorted the keys of a large one


def loaded(load: Callable[[Path], T], path: Path, kind: str) -> T:
    """What a certificate's own reader reads of it; what is wrong is said in the file's words, not in the reader's."""
    try:
        return load(path)
    except CertificateError as error:
        flaw = _flaw(error.__cause__)
        expected = f"expected a {kind} file as verifair writes it"
        raise CertificateError(f"{path}: {flaw}; {expected}: copy it again, or run again") from error


def _flaw(cause: BaseException | None) -> str:
    match cause:
        case ValidationError():
            first = cause.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_")) or "its content"
            return f"{place} {'is missing' if first['type'] == 'missing' else 'is not what it should be'}"
        case json.JSONDecodeError():
            return f"is damaged: its JSON breaks off or is malformed at line {cause.lineno}, column {cause.colno}"
        case EOFError() | zlib.error() | gzip.BadGzipFile():
            return "is a damaged gzip file"
        case UnicodeDecodeError():
            return "is damaged: it is not UTF-8 text"
        case RecursionError():
            return "is nested too deeply"
        case OSError():
            return f"cannot be read ({cause.strerror or cause})"
        case _:
            return f"is damaged ({cause})"  # the reader's own words: arrays of unequal length, a file too large, NaN
