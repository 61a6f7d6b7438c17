"""Questions about rows of a table and a model: the shipped ones, or a user's own; each is read once in a process.

PBA and robustness: neighbourhoods that grow around the same rows, as decisions, triangle LPs and exact minima.

2-fairness on boxes around a row: no decision flips, or no probability gap above epsilon. At size n, n features (numbers first)
range over their whole declared range; the others keep the row's values. Even cases take a row from the tenth with the largest
margins, so that small boxes are fair; odd ones take any row. For a user's model also parts of Fairify's partition of the whole
domain. The schema's first protected feature differs, by one value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from encoders.arrays import Array, Integers
from encoders.evaluate import pair
from encoders.model import Model
from encoders.onnx.reader import read_model, read_onnx
from encoders.problem import TwinProblem
from verifair import datasets
from verifair.bench.cases.family import Family, generator
from verifair.bench.questions import DecisionQuestion, Kind, MinimumQuestion, Question, RelaxationQuestion
from verifair.checker.partition import Partition
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, bias_problem, decisions, goals_of, margin, robustness_problem, twin_problem
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.pba.stream import LabelledRows, judge

SENSITIVE = "sex"
NAMES = ("german", "adult")
DELTAS = (3, 30, 100)
EPSILON = 0.1
OPEN = {"german": (2, 5, 9), "adult": (2, 4, 7)}
"""Numbers of open features."""
OWN_OPEN, PARTS = (2, 5, 9), (3, 10, 30)
"""For a user's model: numbers of open features, and of values in a block of the partition."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedRows:
    """A model, its schema and rows.   sensitive: the feature that differs.

    eligible: positions of the rows that PBA asks about (both copies predicted right).   favoured: those of them with more
    confidence than their counterfactual, so that the row itself does not refute the question.   confident: the tenth of the
    eligible rows with the largest margins.
    """

    name: str
    network: Model
    schema: Schema
    sensitive: str
    table: LabelledRows
    eligible: Integers
    favoured: Integers
    confident: Integers

    def bias(self, row: int, delta: float) -> TwinProblem:
        """Return PBA of one row: goals observed and flipped."""
        return _bias(self.network, self.schema, self.sensitive, self.table, np.array([row]), delta)

    @classmethod
    def of(cls, name: str, network: Model, schema: Schema, sensitive: str, table: LabelledRows) -> AskedRows:
        """Choose the rows to ask about: all rows if none is predicted right in both copies."""
        correct = table.predicted == table.labels
        flipped = decisions(network, schema.encode(_flipped(schema, sensitive, table.raw)))
        eligible = np.flatnonzero(correct & (flipped == table.labels))
        eligible = eligible if len(eligible) else np.arange(len(table.raw))
        is_favoured = np.zeros(len(table.raw), dtype=bool)
        for label in np.unique(table.labels[eligible]).tolist():
            rows = eligible[table.labels[eligible] == label]
            is_favoured[rows] = _difference(_bias(network, schema, sensitive, table, rows, 0.0)) > 0
        logits = network.forward(schema.encode(table.raw[eligible]))
        confident = np.argsort(-np.abs(logits @ margin(network, 1, 0)), kind="stable")[: max(len(eligible) // 10, 1)]
        return cls(
            name=name, network=network, schema=schema, sensitive=sensitive, table=table, eligible=eligible,
            favoured=np.flatnonzero(is_favoured) if is_favoured.any() else eligible, confident=np.sort(eligible[confident]),
        )


@lru_cache
def shipped(name: str) -> AskedRows:
    """Read german or adult."""
    dataset = datasets.load(name)
    network, schema = read_onnx(datasets.network_path(name)), dataset.schema
    return AskedRows.of(name, network, schema, SENSITIVE, LabelledRows.of(network, schema, dataset.test))


@lru_cache
def own(model: Path, schema_file: Path, data: Path) -> AskedRows:
    """Read a user's model, schema and table. Without labels in the schema, the model's predictions are the labels.

    Raises QueryError for a schema that protects nothing, and a table without rows.
    """
    settled, schema = Schema.load(schema_file).settled(read_model(model))
    network = schema.judges(settled)    # one margin, above 0 for decision 1
    if not schema.protected_names:
        raise QueryError(f"{schema_file}: protects no feature, and questions are about one; write protected = true in its section")
    frame, decide = datasets.read_table(data), judge(network, schema)
    raw = schema.raw(frame)
    is_labelled = schema.label is not None and schema.label in frame
    labels = np.where(schema.favoured(frame), schema.good, 1 - schema.good) if is_labelled else decide(raw)
    table = LabelledRows(raw=raw, labels=labels, judge=decide)
    if not len(table.raw):
        raise QueryError(f"{data}: has no rows to ask about")
    return AskedRows.of("own", network, schema, schema.protected_names[0], table)


def _flipped(schema: Schema, sensitive: str, raw: Array) -> Array:
    """Return the rows with the next value of the feature, the first after the last."""
    v, result = schema.index(sensitive), raw.copy()
    lower, upper = schema.domain.lower[v], schema.domain.upper[v]
    result[:, v] = np.where(raw[:, v] >= upper, lower, raw[:, v] + 1)
    return result


def _bias(network: Model, schema: Schema, sensitive: str, table: LabelledRows, rows: Integers, delta: float) -> TwinProblem:
    """Return PBA of rows of one label."""
    label = int(table.labels[rows[0]])
    raw = table.raw[rows]
    values = _flipped(schema, sensitive, raw)[:, schema.index(sensitive)]
    return bias_problem(network, schema, raw, sensitive, values, delta, (label, 1 - label))


def _difference(problem: TwinProblem) -> Array:
    """Return g(x) - g(x') at the rows themselves."""
    x, x_prime = pair(problem, np.arange(len(problem.batch)), problem.batch.lower)
    margins = [problem.network.forward(copy) @ problem.margin for copy in (x, x_prime)]
    return np.asarray(margins[0] - margins[1])


def bias(read: ReadRows, delta: int, number: int, seed: int) -> TwinProblem:
    """Ask for persistent bias of one test row, *observed*. Even numbers take a favoured row, odd ones any eligible one."""
    data = read()
    rows = data.favoured if number % 2 == 0 else data.eligible
    row = int(generator(f"bias {data.name}", number, seed).choice(rows))
    problem = data.bias(row, float(delta))
    return replace(problem, goals=problem.goals[:1])


def robustness(read: ReadRows, delta: int, number: int, seed: int) -> TwinProblem:
    """Ask whether the right decision on one test row survives."""
    data = read()
    row = int(generator(f"robustness {data.name}", number, seed).choice(data.eligible))
    label = int(data.table.labels[row])
    raw = data.table.raw[np.array([row])]
    return robustness_problem(data.network, data.schema, raw, float(delta), data.sensitive, (label, 1 - label))


def _fairness(read: ReadRows, epsilon: float | None, size: int, number: int, seed: int) -> DecisionQuestion:
    data = read()
    schema, rows = data.schema, data.confident if number % 2 == 0 else data.eligible
    row = int(generator(f"fairness {data.name}", number, seed).choice(rows))
    others = [feature.name for feature in schema.features if feature.name != data.sensitive]
    numbers = [name for name in others if schema[name].kind == "integer"]
    open_features = [*numbers, *(name for name in others if name not in numbers)][:size]
    raw = data.table.raw[row]
    is_free = np.isin(np.arange(len(raw)), [schema.index(name) for name in [*open_features, data.sensitive]])
    low, high = np.where(is_free, schema.domain.lower, raw), np.where(is_free, schema.domain.upper, raw)
    return _box(data, epsilon, low, high)


def _part(read: ReadRows, size: int, number: int, seed: int) -> DecisionQuestion:
    """Ask about one part of Fairify's partition, drawn among all."""
    data = read()
    domain = data.schema.domain
    partition = Partition.of(domain, domain.lower, domain.upper, size=size, whole=[data.schema.index(data.sensitive)])
    part = generator(f"part {data.name}", number, seed).integers(min(partition.count, 2**62))
    low, high = (bounds[0] for bounds in partition.boxes(np.array([part])))
    return _box(data, None, low, high)


def _box(data: AskedRows, epsilon: float | None, low: Array, high: Array) -> DecisionQuestion:
    """Ask for 2-fairness in a raw box (V,)."""
    query = IndividualFairness(model=data.network, schema=data.schema, protected=[data.sensitive], epsilon=epsilon)
    batch, _, _ = Pairs.of(query, low, high).batch(data.schema.domain, low[None], high[None], (low, high))
    return DecisionQuestion(problem=twin_problem(query, batch, goals_of(query)))


def families() -> list[Family]:
    """Return the families of the shipped data."""
    return [family for name in NAMES for family in _families(partial(shipped, name), name, SENSITIVE, OPEN[name], layers=True)]


def own_families(model: Path, schema_file: Path, data: Path) -> list[Family]:
    """Return the families of a user's model. Raises the errors of reading its files."""
    read = partial(own, model, schema_file, data)
    subject = read()
    others = len(subject.schema.features) - 1
    sizes = tuple(sorted({min(n, others) for n in OWN_OPEN} - {0}))
    result = _families(read, subject.name, subject.sensitive, sizes, layers="lp" in subject.network.programs)
    parts = Family(
        name="parts-own", kind="decision", about="parts of Fairify's partition, drawn", size_is="values a block", sizes=PARTS,
        count=2, build=partial(_part, read),
    )
    return [*result, parts]


def _families(read: ReadRows, name: str, sensitive: str, open_counts: tuple[int, ...], *, layers: bool) -> list[Family]:
    """Return the families of rows.   layers: also those about triangle LPs and exact minima, which need a ReLU network."""
    specs: tuple[tuple[str, Kind, str, int, Maker, type[QuestionType]], ...] = (
        (f"pba-{name}", "decision", f"persistent bias of test rows of {name}", 3, bias, DecisionQuestion),
        (f"robust-{name}", "decision", f"robustness of the decisions on test rows of {name}", 1, robustness, DecisionQuestion),
        (f"lp-{name}", "relaxation", f"the triangle LP's optimum on the rows of pba-{name}", 2, bias, RelaxationQuestion),
        (f"min-{name}", "minimum", f"the exact minimum on the rows of pba-{name}", 2, bias, MinimumQuestion),
    )
    result = [
        Family(
            name=label, kind=kind, about=about, size_is="delta, units around the row", sizes=DELTAS, count=count,
            build=partial(_around, read, make_problem, question_type),
        )
        for label, kind, about, count, make_problem, question_type in specs if kind == "decision" or layers
    ]
    flips = ("fair", f"2-fairness (no decision flips with {sensitive})", None, 2)
    gaps = ("gap", f"no probability gap above {EPSILON} with {sensitive}", EPSILON, 1)
    result += [
        Family(
            name=f"{label}-{name}", kind="decision", about=f"{about} around rows of {name}", size_is="features that are open",
            sizes=open_counts, count=count, build=partial(_fairness, read, epsilon),
        )
        for label, about, epsilon, count in (flips, gaps)
    ]
    return result


ReadRows = Callable[[], AskedRows]
Maker = Callable[[ReadRows, int, int, int], TwinProblem]
QuestionType = DecisionQuestion | RelaxationQuestion | MinimumQuestion


def _around(read: ReadRows, make_problem: Maker, question_type: type[QuestionType], size: int, number: int, seed: int) -> Question:
    return question_type(problem=make_problem(read, size, number, seed))
