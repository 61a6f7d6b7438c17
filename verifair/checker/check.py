"""The re-checker: does a file of proofs prove what it states? One door for every kind of file.

Imports neither the engine, nor its bounds, nor a solver; shared with them are the network's forward pass, the exact arithmetic and
the schema. A file may be anything: its kind is recognised before anything else is read, and only the rule of its kind is loaded
(`verifair.checker.kind`). What each kind states is defined in its module of `verifair.checker.kinds`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoders.model import Model
from verifair.checker.certificates.envelope import of_another_version
from verifair.checker.kind import KINDS, Kind, kind
from verifair.checker.report import CheckReport, Progress, Spread
from verifair.errors import CertificateError
from verifair.schema.space import InputSpace

if TYPE_CHECKING:
    from verifair.checker.certificates.envelope import Envelope

EXPECTED = "expected a certificate (.json, .json.gz), or a store of certify --partition"
SQLITE = b"SQLite format 3\0"
STORE, PLAIN, QUERY = "verifair-partition", "verifair-certificate", "verifair-vnnlib-certificate"
"""Formats without their versions: of SQLite files, of JSON that does not name its own, and of answers to VNN-LIB queries."""
GZIP = b"\x1f\x8b"
NAMED = re.compile(rb'"format"\s*:\s*"([^"\\]{1,80})"')
HEAD = 1 << 16
"""Bytes at the start of a certificate that name its format: `save` writes that key first."""


def check(
    file: Envelope | str | Path, *, model: Model, schema: InputSpace, partial: bool = False, progress: Progress | None = None,
    spread: Spread = starmap,
) -> CheckReport:
    """Prove again what a file of proofs states, of whichever kind it is.

    Requires: a certificate, or the path of one or of a store of `certify_partition`, with the model and the schema it is about.
    Returns: the report: the file's statement in words, how much of its question it answers, and what is wrong with which proof.
    Raises CertificateError for any other file, or one of another version. partial: accept a file that leaves a part of its question
    open. progress is called with the work done and the total, in the kind's unit. spread: runs the batches, here or elsewhere.
    Method: the rule of the file's kind (`verifair.checker.kinds`).
    Sound? Yes: an accepted statement is true.   Complete? No: the bounds may be too loose to confirm a true one.
    """
    rule = kind(file.FORMAT) if not isinstance(file, str | Path) else kind_of(Path(file))
    certificate = file if not isinstance(file, str | Path) else rule.load(Path(file))
    schema = schema.named(model)

    def batches(function: Callable[..., tuple[int, Any]], arguments: Iterable[tuple[Any, ...]], total: int) -> Iterator[Any]:
        sent, received, done = count(), 0, 0
        for number, result in spread(function, (batch for batch, _ in zip(arguments, sent, strict=False))):
            received, done = received + 1, done + number
            if progress is not None:
                progress(done, total)
            yield result
        if received != (expected := next(sent)):  # a batch that did not come back was not checked
            raise RuntimeError(f"{expected} batches were to be checked, and {received} were")

    report = rule.check(certificate, network=schema.reads(model), schema=schema, batches=batches)
    statement = rule.statement(certificate, schema, model.whole).encode(errors="backslashreplace").decode()  # of surrogates
    return replace(report, format=rule.format, statement=statement, partial=partial)


def kind_of(path: Path) -> Kind:
    """Return the kind that a file claims to be; the kind's own reader validates it. Raises CertificateError if it names no kind."""
    if path.is_dir():
        raise CertificateError(f"{path}: is a folder; {EXPECTED}: name a file in it")
    if not path.is_file():
        raise CertificateError(f"{path}: there is no such file; {EXPECTED}")
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head:
        raise CertificateError(f"{path}: is empty; {EXPECTED}: run the verb that wrote it again")
    if head.startswith(SQLITE):
        return kind(STORE)
    zipped = head.startswith(GZIP)
    if zipped != path.name.endswith(".gz"):
        mismatch = "is compressed by gzip, but its name does not end" if zipped else "is not compressed by gzip, but its name ends"
        raise CertificateError(f"{path}: {mismatch} in .gz; {EXPECTED}: rename it, or name another file")
    if zipped:
        try:
            with gzip.open(path) as unpacked:
                head = unpacked.read(HEAD)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CertificateError(f"{path}: is a damaged gzip file; {EXPECTED}: copy it again, or run again") from error
    match = NAMED.search(head)
    return _named(path, head, match.group(1).decode(errors="replace") if match else "")


def _named(path: Path, head: bytes, name: str) -> Kind:
    """Return the kind of a JSON file that begins with `head` and names the format `name`. Raises CertificateError without one."""
    family = name.rpartition("/")[0]
    candidate = kind(family) if family in KINDS else None
    if candidate is not None and candidate.format == name and family != STORE:
        return candidate
    if not head.lstrip().startswith(b"{"):
        raise CertificateError(f"{path}: is neither JSON with a certificate nor SQLite; {EXPECTED}: name another file")
    if candidate is not None and candidate.format != name:
        raise CertificateError(f"{path}: {of_another_version(name, candidate.format)}")
    if family == QUERY:
        remedy = f"re-prove it with verifair verify QUERY --check {path}"
        raise CertificateError(f"{path}: is about a VNN-LIB query; {EXPECTED}: {remedy}")
    if name or len(head) < HEAD:
        problem = f"names {name!r} as its format" if name else "names no format"
        *others, last = (kind(key).format for key in KINDS if key != STORE)
        formats = f"{', '.join(others)} or {last}, as pba, certify, kmax, fgce, cec and cst write, an audit beside its page"
        raise CertificateError(f"{path}: is JSON that {problem}; expected {formats}: name another file")
    return kind(PLAIN)  # somebody sorted the keys of a large one
