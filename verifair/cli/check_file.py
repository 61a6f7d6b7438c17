"""Files of proofs: which of our formats one is, what it states, and whether that is proved again.

What `verifair check` is given may be anything: it is told apart before anything is read of it.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from encoders.network import Network
from verifair.checker import partition
from verifair.checker.certificate import Certificate
from verifair.checker.check import check as recheck
from verifair.checker.consistency_certificate import ConsistencyCertificate
from verifair.checker.kinds.consistency import check_consistency
from verifair.checker.kinds.kmax import check_kmax
from verifair.checker.kinds.partition import NOTHING_DECIDED, check_partition
from verifair.checker.kmax_certificate import KmaxCertificate
from verifair.checker.partition import PartitionStore, of_another_version
from verifair.checker.report import CheckReport
from verifair.checker.statement import BoxQuery, CounterfactualQuery, CounterfactualStatement, Signs
from verifair.cli.output import progress_bar
from verifair.errors import CertificateError
from verifair.schema.schema import Schema
from verifair.systems.words import counted, decided

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
    old = next((one for one in (*known, partition.FORMAT) if kind.rpartition("/")[0] == one.rpartition("/")[0]), None)
    if old is not None:
        raise CertificateError(f"{path}: {of_another_version(kind, old)}")
    if kind or len(head) < HEAD:
        found = f"names {kind!r} as its format" if kind else "names no format"
        ours = f"{', '.join(known[:-1])} or {known[-1]}, as pba, certify, kmax and cec write"
        raise CertificateError(f"{path}: is JSON that {found}; expected {ours}: name another file")
    return Certificate.FORMAT  # somebody sorted the keys of a large one


def _loaded(load: Callable[[Path], T], path: Path, kind: str) -> T:
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


def verdict(report: CheckReport) -> str:
    """Return what became of a file, in capitals."""
    if not report.rejections:
        return "ACCEPTED" if report.extent.whole else "PARTIALLY ACCEPTED" if report.partial else "INCOMPLETE"
    if [one.reason for one in report.rejections] == [NOTHING_DECIDED]:
        return "NOTHING TO ACCEPT"
    # Nobody can re-prove a solver's word: such a certificate is neither true nor false to us.
    return "CLAIMED, NOT RE-PROVABLE" if len(report.rejections) == report.claimed > 0 else "REJECTED"


def left_out(report: CheckReport) -> str:
    """Return what the statement of a file leaves out of its question, in words; empty where it answers all of it."""
    if report.missing is None:
        return ""
    alone = f"--partial accepts the statement about the decided {report.unit} only"
    return f"{report.missing}; {'nothing is stated about those' if report.partial else alone}"


def checked(path: Path, kind: str, network: Network, schema: Schema) -> tuple[str, CheckReport]:
    """What the file states, and what became of it."""
    match kind:
        case partition.FORMAT:
            with progress_bar("chunks") as progress:
                report = check_partition(path, network=network, schema=schema, progress=progress)
                return _partition_statement(path, schema, network.outputs), report
        case KmaxCertificate.FORMAT:
            bound = _loaded(KmaxCertificate.load, path, kind)
            with progress_bar("leaves") as progress:
                return _kmax_statement(bound, schema), check_kmax(bound, network=network, schema=schema, progress=progress)
        case ConsistencyCertificate.FORMAT:
            pairs = _loaded(ConsistencyCertificate.load, path, kind)
            with progress_bar("pairs") as progress:
                return _pairs_statement(pairs), check_consistency(pairs, network=network, schema=schema, progress=progress)
        case _:
            given = _loaded(Certificate.load, path, kind)
            with progress_bar("proofs") as progress:
                return _statement(given, schema, network.outputs), recheck(given, network=network, schema=schema, progress=progress)


def _statement(given: Certificate, schema: Schema, outputs: int) -> str:
    query = given.query
    if isinstance(query, CounterfactualQuery):
        return _counterfactuals_statement(given, query, schema)
    who = " and ".join(query.protected)
    if not isinstance(query, BoxQuery):
        sizes = ", ".join(map(_exactly, query.delta))
        of = f"{query.kind} by {who}," if who else query.kind
        found = given.extent
        proved = counted(found.proved + found.claimed, "proof", "proofs")
        counts = (
            (found.refuted, "refuted, with a counterexample of each in the file"),
            (found.undecided, "undecided: no proof of those is in the file"), (found.not_reached, "not reached"),
        )
        rest = "".join(f", {count:,} {what}" for count, what in counts if count)
        said = f"{proved} of {found.total:,} statements asked{rest}"
        return f"It states: {said}, of {of} within {sizes} units; nothing about other rows."
    near = "".join(f", and {name} by up to {width}" for name, width in query.relax.items())
    differ = f"when {who} changes" if len(query.protected) == 1 else f"when {query.differ} of {who} change"
    if query.epsilon is None:
        what = f"no decision flips {differ}{near}{decided(query.signs, outputs)}"
    else:
        moves = "log-odds move" if query.scale == "logit" else "probability moves"
        what = f"no {moves} by more than {query.epsilon} {differ}{near}"
    return f"It states: {what}; {_box(query.box, schema)}."


def _counterfactuals_statement(given: Certificate, query: CounterfactualQuery, schema: Schema) -> str:
    """How the file says that rows and their counterfactuals are decided, and for which coefficients."""
    own: dict[object, int] = {}
    other: dict[object, int] = {}
    for proof in given.proofs:
        one = proof.statement
        if isinstance(one, CounterfactualStatement):
            (own if one.goal == "factual" else other)[one.row, one.also] = one.classes[0]
    flips = sum(other.get(row) != decided for row, decided in own.items())
    known = {feature.name for feature in schema.features}
    to = ", ".join(f"{name} = {_set_to(query, schema, name, value, known)}" for name, value in query.do.items())
    left = "".join(
        f"; {count:,} {what}"
        for count, what in (
            (given.extent.refuted, "more would be decided in both ways within the intervals, which the file does not show"),
            (given.extent.undecided, "more are undecided"),
        )
        if count
    )
    return (
        f"It states: with {to}, and what that causes, {flips:,} of {len(own):,} rows would be decided otherwise and "
        f"{len(own) - flips:,} as they are, whatever the {len(query.coefficients)} coefficients of the file's causal model are in "
        f"their intervals (which the file calls: {query.origin}){left}; nothing about other rows."
    )


def _set_to(query: CounterfactualQuery, schema: Schema, name: str, value: float, known: set[str]) -> str:
    if name in known:
        return _exactly(value) if schema[name].numeric else _word(schema, name, value)
    words = query.also.get(name, ())
    return words[int(value)] if words and value.is_integer() and 0 <= value < len(words) else f"{value:g}"


def _kmax_statement(given: KmaxCertificate, schema: Schema) -> str:
    query = given.query
    known = {feature.name for feature in schema.features}
    every = prod(len(schema.values(name)) for name in query.protected) if known >= set(query.protected) else 0
    of = f"{len(query.combinations)} of {every}" if every > len(query.combinations) else f"all {len(query.combinations)}"
    return (
        f"It states: nobody falls into more than {given.upper} of {query.buckets} outcome buckets over "
        f"{of} combinations of {', '.join(query.protected)}; {_box(query.box, schema)}."
    )


def _pairs_statement(given: ConsistencyCertificate) -> str:
    query = given.query
    units = f"{_exactly(query.delta)} unit" + "s" * (query.delta != 1)
    where = f"wherever both move within {units}" if query.delta else "as they are"
    return (
        f"It states: {len(given):,} of {given.extent.total:,} pairs of people asked about, {where}, are decided alike, with scores "
        f"of their explanations (exact integrated gradients from the file's baselines) below {_exactly(query.threshold)}; nothing "
        "about other rows."
    )


def _partition_statement(path: Path, schema: Schema, outputs: int) -> str:
    with PartitionStore(path) as store:
        about, found = store.about, store.extent
    protected, relax, box = (about.get(key) or () for key in ("protected", "relax", "box"))
    epsilon, who = about.get("epsilon"), " and ".join(map(str, protected))
    rule: Signs = "strict" if about.get("signs") == "strict" else "deployed"
    what = "no decision flips" if epsilon is None else f"no probability moves by more than {epsilon}"
    with_ = f"with {who}" if len(protected) == 1 else f"with {about.get('differ')} of {who}"
    near = "".join(f", and {name} by up to {width}," for name, width in dict(relax).items())
    near += decided(rule, outputs) if epsilon is None else ""
    open_ = ((found.undecided, "are undecided"), (found.not_reached, "were not reached"))
    left = "".join(f"; {count:,} {what}" for count, what in open_ if count)
    try:
        where = _box({name: (low, high) for name, (low, high) in dict(box).items()}, schema)
    except (TypeError, ValueError, AttributeError):
        where = "in a box that it does not describe"  # of a file that is rejected
    return (
        f"It states: {what} {with_}{near} in {found.proved:,} of {found.total:,} parts (size {about.get('size')}); some does in "
        f"each of {found.refuted:,} others{left}; the parts lie {where}."
    )


def _box(box: dict[str, tuple[float, float]], schema: Schema) -> str:
    """Where: the features that the box narrows."""
    told = []
    for feature, least, most in zip(schema.features, schema.domain.lower, schema.domain.upper, strict=True):
        low, high = box.get(feature.name, (least, most))
        if (low, high) != (least, most):
            ends = [_exactly(end) if feature.numeric else _word(schema, feature.name, end) for end in (low, high)]
            told.append(f"{feature.name} = {' .. '.join(dict.fromkeys(ends))}")
    return f"where {', '.join(told)}" if told else "in the whole domain"


def _exactly(value: float) -> str:
    """A number with all its digits: a rounded one would state something else."""
    return f"{int(value)}" if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _word(schema: Schema, name: str, value: float) -> str:
    """A category's name; the number where the file names none that there is."""
    known = set(schema.values(name).tolist())
    return schema.format(name, value) if value in known else f"{value:g}"
