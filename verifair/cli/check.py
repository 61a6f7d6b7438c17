"""verifair check: re-prove a certificate without the engine, its bounds, or a solver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.checker import partition
from verifair.checker.certificate import Certificate
from verifair.checker.check import check as recheck
from verifair.checker.consistency_certificate import ConsistencyCertificate
from verifair.checker.kinds.consistency import check_consistency
from verifair.checker.kinds.kmax import check_kmax
from verifair.checker.kinds.partition import NOTHING_DECIDED, check_partition
from verifair.checker.kmax_certificate import KmaxCertificate
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, PartitionStore
from verifair.checker.report import CheckReport
from verifair.checker.statement import BoxQuery, CounterfactualQuery, CounterfactualStatement
from verifair.cli import options
from verifair.cli.check_file import kind_of, loaded
from verifair.cli.helps import HELPS
from verifair.cli.output import save_answer
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.result import Answer, Count, Seconds
from verifair.systems.words import counted


class CheckAnswer(Answer):
    """`verifair check`: whether a file of proofs is accepted."""

    accepted: bool
    """Every statement was proved again. False is no refutation: a solver's word cannot be proved again."""
    format: str
    statement: str
    """What the file states, in words."""
    claimed: Count
    """Statements that rest on a solver's word."""
    proofs: Count
    leaves: Count
    """Proved again."""
    rejections: list[str]
    seconds: Seconds


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("check", help=HELPS["check"])
def check(
    certificate: Annotated[
        Path, typer.Argument(help="Certificate (.json or .json.gz) or store of certify --partition.", show_default=False)
    ],
    model: Annotated[Path | None, typer.Option("--model", help="The network it is about (ONNX).")] = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="The schema it is about (TOML).")] = None,
    demo: Annotated[str | None, typer.Option("--demo", help="Use a shipped network and schema: german or adult.")] = None,
    json: options.Json = None,
) -> None:
    options.check_outputs({"--json": json})
    if demo is not None and (model is not None or schema is not None):
        raise QueryError("--demo brings its own model and schema: drop it, or drop the others")
    kind = kind_of(certificate)
    if demo is not None:
        network, described = read_onnx(datasets.network_path(demo)), datasets.load(demo).schema
    elif model is None or schema is None:
        raise QueryError("check needs --model and --schema (or --demo german)")
    else:
        network, described = read_onnx(model), Schema.load(schema)
    console = options.console()
    try:
        statement, report = _checked(certificate, kind, network, described)
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print("interrupted: nothing is accepted")
        raise typer.Exit(options.INTERRUPTED) from None
    console.print(statement, soft_wrap=True, markup=False)
    for rejection in report.rejections[:10]:
        console.print(f"not accepted: {rejection}", markup=False)
    if len(report.rejections) > 10:
        console.print(f"... and {len(report.rejections) - 10} more")
    proofs, leaves = counted(report.proofs, "proof", "proofs"), counted(report.leaves, "leaf", "leaves")
    console.print(f"{_verdict(report)}: {proofs}, {leaves} re-proved in {report.seconds:.1f} s")
    answer = CheckAnswer(
        accepted=report.accepted, format=kind, statement=statement, claimed=report.claimed, proofs=report.proofs,
        leaves=report.leaves, rejections=[str(one) for one in report.rejections], seconds=report.seconds,
    )
    save_answer(json, answer)
    if not report.accepted:
        raise typer.Exit(1)


def _verdict(report: CheckReport) -> str:
    if report.accepted:
        return "ACCEPTED"
    if [one.reason for one in report.rejections] == [NOTHING_DECIDED]:
        return "NOTHING TO ACCEPT"
    # Nobody can re-prove a solver's word: such a certificate is neither true nor false to us.
    return "CLAIMED, NOT RE-PROVABLE" if len(report.rejections) == report.claimed > 0 else "REJECTED"


def _checked(path: Path, kind: str, network: Network, schema: Schema) -> tuple[str, CheckReport]:
    """What the file states, and what became of it."""
    match kind:
        case partition.FORMAT:
            with options.progress_bar("chunks") as progress:
                report = check_partition(path, network=network, schema=schema, progress=progress)
                return _partition_statement(path, schema), report
        case KmaxCertificate.FORMAT:
            bound = loaded(KmaxCertificate.load, path, kind)
            with options.progress_bar("leaves") as progress:
                return _kmax_statement(bound, schema), check_kmax(bound, network=network, schema=schema, progress=progress)
        case ConsistencyCertificate.FORMAT:
            pairs = loaded(ConsistencyCertificate.load, path, kind)
            with options.progress_bar("pairs") as progress:
                return _pairs_statement(pairs), check_consistency(pairs, network=network, schema=schema, progress=progress)
        case _:
            given = loaded(Certificate.load, path, kind)
            with options.progress_bar("proofs") as progress:
                return _statement(given, schema), recheck(given, network=network, schema=schema, progress=progress)


def _statement(given: Certificate, schema: Schema) -> str:
    query = given.query
    if isinstance(query, CounterfactualQuery):
        return _counterfactuals_statement(given, query, schema)
    who = " and ".join(query.protected)
    if not isinstance(query, BoxQuery):
        sizes = ", ".join(map(_exactly, query.delta))
        of = f"{query.kind} by {who}," if who else query.kind
        return f"It states: {counted(len(given.proofs), 'proof', 'proofs')} of {of} within {sizes} units; nothing about other rows."
    near = "".join(f", and {name} by up to {width}" for name, width in query.relax.items())
    differ = f"when {who} changes" if len(query.protected) == 1 else f"when {query.differ} of {who} change"
    if query.epsilon is None:
        what = f"no decision flips {differ}{near}"
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
    return (
        f"It states: with {to}, and what that causes, {flips:,} of {len(own):,} rows would be decided otherwise and "
        f"{len(own) - flips:,} as they are, whatever the {len(query.coefficients)} coefficients of the file's causal model are in "
        f"their intervals (which the file calls: {query.origin}); nothing about other rows."
    )


def _set_to(query: CounterfactualQuery, schema: Schema, name: str, value: float, known: set[str]) -> str:
    if name in known:
        return _exactly(value) if schema[name].numeric else _word(schema, name, value)
    words = query.also.get(name, ())
    return words[int(value)] if words and value.is_integer() and 0 <= value < len(words) else f"{value:g}"


def _kmax_statement(given: KmaxCertificate, schema: Schema) -> str:
    query = given.query
    return (
        f"It states: nobody falls into more than {given.upper} of {query.buckets} outcome buckets over "
        f"{len(query.combinations)} combinations of {', '.join(query.protected)}; {_box(query.box, schema)}."
    )


def _pairs_statement(given: ConsistencyCertificate) -> str:
    query = given.query
    units = f"{_exactly(query.delta)} unit" + "s" * (query.delta != 1)
    where = f"wherever both move within {units}" if query.delta else "as they are"
    return (
        f"It states: {len(given):,} pairs of people, {where}, are decided alike, with scores of their explanations (exact "
        f"integrated gradients from the file's baselines) below {_exactly(query.threshold)}; nothing about other rows."
    )


def _partition_statement(path: Path, schema: Schema) -> str:
    counts = {PROVED: 0, VIOLATED: 0, UNKNOWN: 0}
    with PartitionStore(path) as store:
        for _, status in store.statuses():
            for one in counts:
                counts[one] += int((status == one).sum())
        about = store.about
    protected, relax, box = (about.get(key) or () for key in ("protected", "relax", "box"))
    epsilon, who = about.get("epsilon"), " and ".join(map(str, protected))
    what = "no decision flips" if epsilon is None else f"no probability moves by more than {epsilon}"
    with_ = f"with {who}" if len(protected) == 1 else f"with {about.get('differ')} of {who}"
    near = "".join(f", and {name} by up to {width}," for name, width in dict(relax).items())
    left = f" {counts[UNKNOWN]:,} parts are undecided." if counts[UNKNOWN] else ""
    try:
        where = _box({name: (low, high) for name, (low, high) in dict(box).items()}, schema)
    except (TypeError, ValueError, AttributeError):
        where = "in a box that it does not describe"  # of a file that is rejected
    return (
        f"It states: {what} {with_}{near} in {counts[PROVED]:,} parts (size {about.get('size')}); some does in each of "
        f"{counts[VIOLATED]:,} others; the parts lie {where}.{left}"
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
