"""Write a fairness query as files for other verifiers, in the layout of a VNN-COMP benchmark.

    FOLDER/export.json                  what each file asks, what it leaves open, hashes
    FOLDER/1.0/instances.csv            onnx/product.onnx,vnnlib/0000-fall.vnnlib,60
    FOLDER/1.0/onnx/product.onnx        both copies in one network
    FOLDER/1.0/vnnlib/0000-fall.vnnlib  bounds on its inputs and outputs
    FOLDER/2.0/instances.csv            "[('f', 'onnx/network.onnx'), ('g', 'onnx/network.onnx')]",vnnlib/0000-fall.vnnlib,60
    FOLDER/2.0/onnx/network.onnx        the network up to its logits
    FOLDER/2.0/vnnlib/0000-fall.vnnlib  two networks, g equal-to f

One file for each piece. The query is PROVED if all files of a version are unsat. A sat file is a counterexample if nothing is
relaxed in it, else a candidate that `verify` decides. Relaxations are named in every file, in export.json and on the screen.

A query is cut into *pieces*, boxes that other verifiers can be asked about one at a time. VNN-LIB knows real variables only.
Protected values and shifts are constants of every question anyway. The other whole numbers and categories of the box are either
*enumerated*, with a piece for every combination, which is exact, or *relaxed* to the interval between them, which keeps every
counterexample and may add some that are no rows. Relaxation has to be asked for: see `pieces_of`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
from pydantic import Field

from encoders.arrays import Array, Booleans, Integers
from encoders.network import Network
from encoders.onnx.product_network import NONE, is_single, network_model, product_network
from encoders.probability.logistic import STEEPEST, gap_rows, line_of
from encoders.problem import Goal, TwinProblem
from encoders.vnnlib.writer import TwinQuery, version_1, version_2
from verifair.checker.report import Progress
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.errors import QueryError
from verifair.files import whole
from verifair.interop import MAX_QUERIES
from verifair.schema.schema import Schema
from verifair.systems.results.files import save_text
from verifair.systems.results.result import Answer, Shape

DIRECTIONS = ("fall", "rise")
NETWORK, PRODUCT = "onnx/network.onnx", "onnx/product.onnx"
ALL = "all"
"""Instead of a list of features to enumerate."""
LINES = 33
"""That stand for the curve of a probability gap."""


class RelaxedQueries(Shape):
    """Queries that a version of the format cannot express exactly: unsat is still a proof, sat has to be confirmed."""

    one: Annotated[list[str], Field(alias="1.0")]
    two: Annotated[list[str], Field(alias="2.0")]


class ExportAnswer(Answer):
    """`verifair export`: VNN-LIB queries in a folder; proved when all files of one version are unsat."""

    folder: str
    files: list[str]
    relaxed: RelaxedQueries


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """One box of one question in one direction.

    lower, upper: (V,) raw box of x, within that of `question` of the problem.   goal: 0 for a fall from x to x', 1 for a rise.
    """

    question: int
    goal: int
    lower: Array
    upper: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """All pieces of a query, over its twin problem.   relaxed: names of discrete features that pieces relax to
    intervals.   real: names of the real-valued ones."""

    problem: TwinProblem
    pieces: tuple[Piece, ...]
    relaxed: tuple[str, ...]
    real: tuple[str, ...]


def pieces_of(query: IndividualFairness, *, enumerated: Sequence[str], relaxed: bool, limit: int = MAX_QUERIES) -> Pieces:
    """Cut a query into pieces. enumerated: features whose values become separate pieces, or ["all"].

    Raises QueryError if a whole number or category that the box leaves open is neither enumerated nor relaxed, and
    for more than `limit` pieces.
    """
    schema = query.schema
    query.require_favourable("an export")
    query.require_shifts("an export")
    box, batch = questions_of(query)
    problem = twin_problem(query, batch, goals_of(query))
    free = (box[0] < box[1]) & ~batch.protected
    mask = _enumerated(schema, free & schema.domain.integer, enumerated)
    open_mask = free & schema.domain.integer & ~mask
    names = tuple(schema.features[v].name for v in np.flatnonzero(open_mask))
    if names and not relaxed:
        raise QueryError(_undecided(schema, open_mask, box))
    count = 2 * len(batch) * prod(int(n) for n in (box[1] - box[0] + 1)[mask])
    if count > limit:
        raise QueryError(
            f"{count} queries ({len(batch)} pairs of protected values, two directions, and values that are enumerated) are more "
            f"than {limit}; narrow --box, enumerate fewer features (--relaxed leaves them open), or raise --limit"
        )
    pieces = [
        Piece(question=q, goal=goal, lower=lower, upper=upper)
        for q in range(len(batch))
        for lower, upper in _cells(problem, q, mask)
        for goal in range(2)
    ]
    if not pieces:
        raise QueryError("the schema's constraints leave no row of the box to ask about; widen --box or loosen the constraints")
    real = tuple(schema.features[v].name for v in np.flatnonzero(free & ~schema.domain.integer))
    return Pieces(problem=problem, pieces=tuple(pieces), relaxed=names, real=real)


def _enumerated(schema: Schema, free: Booleans, enumerated: Sequence[str]) -> Booleans:
    if list(enumerated) == [ALL]:
        return free
    mask = np.zeros(len(free), dtype=bool)
    for name in enumerated:
        v = schema.index(name)
        if not schema.domain.integer[v]:
            raise QueryError(f"--enumerate {name}: it is real-valued, so its values cannot be listed; leave it out")
        mask[v] = True
    return mask & free


def _undecided(schema: Schema, open_mask: Booleans, box: tuple[Array, Array]) -> str:
    values = (box[1] - box[0] + 1).astype(int)
    text = ", ".join(f"{schema.features[v].name} ({values[v]} values)" for v in np.flatnonzero(open_mask))
    first = schema.features[int(np.flatnonzero(open_mask)[0])].name
    return (
        f"VNN-LIB knows real variables only, and the box leaves whole numbers or categories open: {text}; say what to do: "
        f"--enumerate {first} writes a query for each of its values (--enumerate all: for those of all), --relaxed leaves the rest "
        "open as intervals (then unsat still proves, but a sat has to be confirmed), --box fixes them"
    )


def _cells(problem: TwinProblem, q: int, mask: Booleans) -> Iterator[tuple[Array, Array]]:
    """Yield raw boxes (V,) of one question, one for each combination of the listed variables, without those that hold no two
    rows."""
    batch, domain = problem.batch.take([q]), problem.domain
    indices = np.flatnonzero(mask)
    for values in product(*(np.arange(batch.lower[0, v], batch.upper[0, v] + 1) for v in indices)):
        lower, upper = batch.lower.copy(), batch.upper.copy()
        lower[0, indices] = upper[0, indices] = values
        second = domain.impossible(batch.second(lower), batch.second(upper))
        if not (domain.impossible(lower, upper) | second).any():
            yield lower[0], upper[0]


def columns(pieces: Pieces, piece: Piece, condition: Condition) -> TwinQuery:
    """Return a piece in network columns. condition: that of pairs (g, g') against its goal."""
    problem, domain = pieces.problem, pieces.problem.domain
    batch = problem.batch.take([piece.question])
    lower, upper = domain.box(piece.lower[None], piece.upper[None])
    own = domain.columns_of(np.flatnonzero(batch.protected))
    shifted = shifted_variables(problem)
    shift_value = np.zeros(0) if batch.offset is None else batch.offset[0, shifted]
    open_blocks = np.flatnonzero(domain.one_hot & (piece.lower < piece.upper))
    return TwinQuery(
        lower=lower[0], upper=upper[0], own=own, own_value=domain.encode(batch.second(piece.lower[None]))[0, own],
        shift=domain.start[shifted] if len(shifted) else NONE, shift_value=shift_value, margin=problem.margin,
        rows=condition.rows, constants=condition.constants, closed=condition.closed,
        blocks=[domain.columns_of(np.array([v])) for v in open_blocks],
    )


def shifted_variables(problem: TwinProblem) -> Integers:
    """Return the variables in which x' is shifted in some question: unscaled numbers, so that a shift is the same in their
    column."""
    return NONE if problem.batch.offset is None else np.flatnonzero(problem.batch.offset.any(axis=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Condition:
    """rows (R, 2), constants, closed (R,): rows @ (g, g') > constants  throughout, >= where `closed`."""

    rows: Array
    constants: Array
    closed: Booleans


def against(query: IndividualFairness, goal: int) -> Condition:
    """Return the condition of all pairs (g, g') against a goal of the query."""
    return against_goal(goals_of(query)[goal])


def against_goal(goal: Goal) -> Condition:
    """Return a condition that all pairs (g, g') against a goal meet.

    For rows, exactly those pairs meet it. For a gap a few more do, since lines under the curve replace the curve; slopes are
    float32 numbers, so that a product network can hold them.
    Sound? yes: a pair against the goal is never left out.  Complete? for goals without a gap.
    """
    if goal.gap is None:
        rows, constants, strict = goal.rows, goal.constants, goal.strict_rows
        if len(rows) == 3 and np.array_equal(2 * rows[2], rows[0] + rows[1]) and not constants.any():
            rows, constants, strict = rows[:2], constants[:2], strict[:2]  # the third row of a flip follows from them
        return Condition(rows=0.0 - rows, constants=constants.copy(), closed=strict)
    epsilon = goal.gap.epsilon
    gap_lines, constants = gap_rows(epsilon, rise=False, count=LINES)
    lines = [(1.0, 0.0, constants[0]), (0.0, -1.0, constants[1])]
    slopes = sorted({float(np.float32(m)) for m in gap_lines[2:, 1]})
    lines += [(1.0, -m, line_of(epsilon, m)) for m in slopes if 1 / STEEPEST <= m <= STEEPEST]
    table = np.array(lines)
    rows = table[:, 1::-1] if goal.gap.rise else table[:, :2]
    return Condition(rows=rows.copy(), constants=table[:, 2].copy(), closed=np.zeros(len(table), dtype=bool))


def question_files(problem: TwinProblem, q: int, g: int, folder: Path, *, two: bool) -> tuple[Path, Path]:
    """Write goal g of question q of any twin problem, its box relaxed to reals: the network's file and the query's.

    two: VNN-LIB 2.0 over the network itself; else 1.0 over the product network.   Sound? unsat proves the goal.
    Complete? no: a sat may lie between rows, or on the boundary (see `relaxations`).
    """
    piece = Piece(question=q, goal=g, lower=problem.batch.lower[q], upper=problem.batch.upper[q])
    pieces = Pieces(problem=problem, pieces=(piece,), relaxed=(), real=())
    condition = against_goal(problem.goals[g])
    twin, table = columns(pieces, piece, condition), _table([condition])
    comments = [f"verifair: goal {g} of question {q}; inputs are real, so that unsat proves but a sat has to be confirmed"]
    text = version_2(twin, comments) if two else version_1(twin, _outputs(twin, table), len(table), comments)
    source = problem.network.layered("an export to ONNX")
    network = source if two else _product(pieces, table)
    model, query = folder / f"{'network' if two else 'product'}-{g}.onnx", folder / f"{q}-{g}.vnnlib"
    model.write_bytes(network_model(network, _about(source)).SerializeToString(deterministic=True))
    query.write_text(text, encoding="utf-8")
    return model, query


@dataclass(frozen=True, kw_only=True)
class Export:
    """The files written.   files: names of the queries, the same in both versions.   single: True if float32 holds all weights
    (else the networks are float64).   relaxed_1, relaxed_2: relaxations that may cause a sat of 1.0 or 2.0; empty: it is exact."""

    folder: Path
    files: tuple[str, ...]
    single: bool
    relaxed_1: tuple[str, ...]
    relaxed_2: tuple[str, ...]


def export(
    query: IndividualFairness, folder: Path, *, enumerated: Sequence[str] = (), relaxed: bool = False, timeout: int = 60,
    limit: int = MAX_QUERIES, progress: Progress | None = None,
) -> Export:
    """Write a query for other verifiers.

    enumerated, relaxed, limit: see `pieces_of`.   timeout: seconds for each of them in instances.csv.
    Raises QueryError for a query that cannot be written, CurveError for networks with smooth layers, OSError if the folder cannot
    be written.
    """
    query.model.require_piecewise_linear("an export for verifiers of ReLU networks")
    pieces = pieces_of(query, enumerated=enumerated, relaxed=relaxed, limit=limit)
    conditions = [against(query, goal) for goal in range(2)]
    table = _table(conditions)
    product = _product(pieces, table)
    reasons = relaxations(query, pieces)
    names = tuple(f"{k:04d}-{DIRECTIONS[piece.goal]}.vnnlib" for k, piece in enumerate(pieces.pieces))
    models = {NETWORK: network_model(query.model, _about(query.model)), PRODUCT: network_model(product, _about(query.model))}
    texts: dict[str, dict[str, str]] = {"1.0": {}, "2.0": {}}
    for position, (name, piece) in enumerate(zip(names, pieces.pieces, strict=True)):
        twin = columns(pieces, piece, conditions[piece.goal])
        comments = [*_comments(query, pieces, piece, twin), *_columns(query.schema, twin)]
        texts["1.0"][name] = version_1(twin, _outputs(twin, table), len(table), [*comments, *_relaxation_lines(reasons[0])])
        texts["2.0"][name] = version_2(twin, [*comments, *_relaxation_lines(reasons[1])])
        if progress is not None:
            progress(position + 1, len(names))
    _write(folder, models, texts, timeout)
    result = Export(folder=folder, files=names, single=is_single(query.model), relaxed_1=reasons[0], relaxed_2=reasons[1])
    manifest = _manifest(query, pieces, result, models)
    save_text(folder / "export.json", json.dumps(manifest, indent=2) + "\n")
    return result


def relaxations(query: IndividualFairness, pieces: Pieces) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the relaxations of files of versions 1.0 and 2.0: each may cause a sat, none an unsat."""
    reasons = []
    if pieces.relaxed:
        reasons.append(f"whole numbers and categories are intervals here: {', '.join(pieces.relaxed)}")
    if pieces.real:
        reasons.append(f"real numbers need not be float32 here: {', '.join(pieces.real)}")
    if query.epsilon is not None and query.scale == "probability":
        reasons.append(f"lines stand for the curve of the probability gap {query.epsilon!r}")
    if query.schema.constraints:
        reasons.append("the schema's constraints on whole rows are left out")
    zero = ": a logit of exactly 0 counts as either decision" if query.epsilon is None else ""
    only_1 = [f"every condition is closed, >= or <={zero}"]
    if pieces.relaxed and any(query.schema[name].kind == "one-hot" for name in pieces.relaxed):
        only_1.append("columns of an open one-hot block need not sum up to 1")
    return (*reasons, *only_1), tuple(reasons)


def _table(conditions: Sequence[Condition]) -> Array:
    """Return (R, 2) rows such that all conditions bound their values or negatives: the outputs of the product network."""
    rows: list[tuple[float, float]] = []
    for condition in conditions:
        for a, b in condition.rows.tolist():
            if (a, b) not in rows and (-a, -b) not in rows:
                rows.append((abs(a), abs(b)) if 0 in (a, b) else (a, b))
    return np.array(list(dict.fromkeys(rows)))


def _product(pieces: Pieces, table: Array) -> Network:
    problem, domain = pieces.problem, pieces.problem.domain
    shifted = shifted_variables(problem)
    own = domain.columns_of(np.flatnonzero(problem.batch.protected))
    is_identity = len(problem.margin) == 1 and problem.margin[0] == 1 and np.array_equal(table, np.eye(2))
    rows, margin = (None, None) if is_identity else (table, problem.margin)
    network = problem.network.layered("an export as a product network")
    return product_network(network, own=own, shift=domain.start[shifted], rows=rows, margin=margin)


def _outputs(twin: TwinQuery, table: Array) -> list[tuple[int, bool, float]]:
    known_rows = [tuple(row) for row in table.tolist()]
    result = []
    for (a, b), constant in zip(twin.rows.tolist(), twin.constants.tolist(), strict=True):
        high = (a, b) in known_rows
        result.append((known_rows.index((a, b) if high else (-a, -b)), high, constant if high else -constant))
    return result


def _about(network: Network) -> dict[str, str]:
    kind = "float32" if is_single(network) else "float64"
    outputs = "logits; the model's own sigmoid or softmax is left out"
    return {"source_sha256": network.source_sha256, "weights": kind, "outputs": outputs}


def _comments(query: IndividualFairness, pieces: Pieces, piece: Piece, twin: TwinQuery) -> list[str]:
    schema, batch = query.schema, pieces.problem.batch.take([piece.question])
    second = batch.second(piece.lower[None])[0]
    changed = [
        f"{feature.name} {schema.format(feature.name, piece.lower[v])} -> {schema.format(feature.name, second[v])}"
        for v, feature in enumerate(schema.features)
        if batch.protected[v]
    ]
    falls = piece.goal == 0
    if query.epsilon is None:
        tie = "negative" if query.signs == "deployed" else "neither"
        question = f"the decision turns from {'positive to negative' if falls else 'negative to positive'} (a logit of 0 is {tie})"
    else:
        question = f"the {query.quantity} {'falls' if falls else 'rises'} by more than {query.epsilon!r}"
    folded = [f"rounded when folded by the reader: {', '.join(query.model.rounded)}"] if query.model.rounded else []
    lines = [
        "verifair: are two people who differ in protected values alone treated differently?",
        f"sat: for some x {question} where {', '.join(changed)}.   unsat: for none",
        f"network: sha256 {query.model.source_sha256}, its real-valued function up to the logits",
        *folded,
    ]
    shifted = shifted_variables(pieces.problem)
    shifts = [f"{schema.features[v].name} {shift:+g}" for v, shift in zip(shifted, twin.shift_value, strict=True)]
    return [*lines, f"x' is shifted: {', '.join(shifts)}"] if shifts else lines


def _columns(schema: Schema, twin: TwinQuery) -> list[str]:
    """Return a description of each input; also of the product network's inputs beyond the n of x."""
    domain = schema.domain
    lines = []
    for v, feature in enumerate(schema.features):
        start, width = int(domain.start[v]), int(domain.width[v])
        offset, scale = (f"{end:.17g}" for end in feature.affine)
        if width > 1:
            lines.append(f"{start} .. {start + width - 1}: {feature.name}, one of {', '.join(feature.categories or ())}")
        else:
            lines.append(f"{start}: {feature.name}" + ("" if feature.affine == (0.0, 1.0) else f", (raw - {offset}) / {scale}"))
    n, last = len(twin.lower), len(twin.lower) + len(twin.own)
    if len(twin.own):
        lines.append(f"{n} .. {last - 1} (1.0 only): columns {', '.join(map(str, twin.own))} of x'")
    if len(twin.shift):
        difference = f"what columns {', '.join(map(str, twin.shift))} of x' are more than those of x"
        lines.append(f"{last} .. {last + len(twin.shift) - 1} (1.0 only): {difference}")
    return ["network columns:", *(f"  {line}" for line in lines)]


def _relaxation_lines(reasons: Sequence[str]) -> list[str]:
    if not reasons:
        return ["exact: a sat is a counterexample"]
    return ["relaxed, so that unsat proves but a sat has to be confirmed:", *(f"  {line}" for line in reasons)]


def _write(folder: Path, models: dict[str, onnx.ModelProto], texts: dict[str, dict[str, str]], timeout: int) -> None:
    for version, model in (("1.0", PRODUCT), ("2.0", NETWORK)):
        (folder / version / "onnx").mkdir(parents=True, exist_ok=True)
        (folder / version / "vnnlib").mkdir(parents=True, exist_ok=True)
        with whole(folder / version / model) as half:
            half.write_bytes(models[model].SerializeToString(deterministic=True))
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        for name, text in texts[version].items():
            save_text(folder / version / "vnnlib" / name, text)
            network = model if version == "1.0" else repr([("f", model), ("g", model)])
            writer.writerow([network, f"vnnlib/{name}", timeout])
        save_text(folder / version / "instances.csv", lines.getvalue())


def _manifest(query: IndividualFairness, pieces: Pieces, result: Export, models: dict[str, onnx.ModelProto]) -> dict[str, Any]:
    batch, shifted = pieces.problem.batch, shifted_variables(pieces.problem)
    return {
        "format": "verifair-export/2",
        "network_sha256": query.model.source_sha256,
        "schema_sha256": query.schema.sha256,
        "models": {name: hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest() for name, model in models.items()},
        "protected": list(query.protected),
        "epsilon": query.epsilon,
        "signs": query.rule,
        "differ": query.differ,
        "relax": dict(query.relax),
        "features": [feature.name for feature in query.schema.features],
        "relaxed": {"1.0": list(result.relaxed_1), "2.0": list(result.relaxed_2)},
        "queries": [
            {
                "file": name,
                "direction": DIRECTIONS[piece.goal],
                "lower": piece.lower.tolist(),
                "upper": piece.upper.tolist(),
                "second": {
                    feature.name: float(value)
                    for feature, protected, value in zip(
                        query.schema.features, batch.protected, batch.prime[piece.question], strict=True
                    )
                    if protected
                },
                "shift": {}
                if batch.offset is None
                else {query.schema.features[v].name: float(batch.offset[piece.question, v]) for v in shifted},
            }
            for name, piece in zip(result.files, pieces.pieces, strict=True)
        ],
    }
