"""Deciders: recorded decisions, a linear rule, a scikit-learn classifier, or a network. True is the positive decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans
from verifair.engine.questions import decisions
from verifair.errors import DataError, QueryError
from verifair.models.field import MODEL, ModelField
from verifair.schema.feature import text
from verifair.schema.rows import check_names, numeric, tell_others
from verifair.schema.schema import Schema
from verifair.schema.spelling import nearest
from verifair.systems.arguments import booleans, check_number
from verifair.systems.groups import blocks
from verifair.systems.results.words import model_words


class Decider(Protocol):
    """The paper's b(): `decide` returns (N,) decisions on rows; `words` is its description."""

    def decide(self, frame: pd.DataFrame) -> Booleans: ...

    @property
    def words(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class LinearRule:
    """Positive when the weighted sum of columns is > above, or >= at_least: exactly one of these two is given."""

    weights: Mapping[str, float]
    above: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if (self.above is None) == (self.at_least is None):
            raise QueryError("a rule needs either above (positive when the weighted sum is greater) or at_least, and not both")
        if not self.weights:
            raise QueryError("a rule needs weights: column -> number")
        if not isinstance(self.weights, Mapping):
            raise QueryError(f"weights: found {type(self.weights).__name__}; expected column -> number")
        edge = {"above": self.above} if self.above is not None else {"at_least": self.at_least}
        for name, number in (*self.weights.items(), *edge.items()):
            check_number(f"rule, {name}", number)
            if not np.isfinite(number):  # type: ignore[arg-type]
                raise QueryError(f"rule, {name} = {number}: expected a finite number")

    def score(self, frame: pd.DataFrame) -> Array:
        """Return (N,) the weighted sum. Raises DataError for columns that are absent or hold no numbers."""
        total = np.zeros(len(frame))
        for name, weight in self.weights.items():
            if name not in frame.columns:
                raise DataError(f"decision rule: the table has no column {name!r}; {nearest(name, frame.columns)}")
            column = numeric(frame[name])
            if not np.isfinite(column).all():
                row = int(np.argmax(~np.isfinite(column)))
                raise DataError(
                    f"decision rule: row {frame.index[row]} holds {frame[name].iloc[row]!r} in column {name!r}, expected a finite "
                    "number; correct the data"
                )
            total += weight * column
        return total

    def decide(self, frame: pd.DataFrame) -> Booleans:
        score = self.score(frame)
        if self.above is not None:
            return np.asarray(score > self.above)
        assert self.at_least is not None
        return np.asarray(score >= self.at_least)

    @property
    def words(self) -> str:
        terms = [name if weight == 1 else f"{weight:g} {name}" for name, weight in self.weights.items()]
        total = " + ".join(terms).replace("+ -", "- ")
        return f"{total} > {self.above:g}" if self.above is not None else f"{total} >= {self.at_least:g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorDecider:
    """A fitted classifier with scikit-learn's `predict` on a table of these columns; `positive` is the favourable class."""

    estimator: Any
    columns: Sequence[str]
    positive: Any = 1

    def decide(self, frame: pd.DataFrame) -> Booleans:
        """Return (N,) decisions. Raises DataError for absent columns, QueryError for a class that the classifier does not know."""
        absent = [name for name in self.columns if name not in frame.columns]
        if absent:
            raise DataError(f"decision: the table has no column {absent[0]!r} that the classifier takes")
        classes = getattr(self.estimator, "classes_", None)
        if classes is not None and text(self.positive) not in [text(label) for label in classes]:
            raise QueryError(f"positive = {self.positive!r}: the classifier knows {', '.join(text(label) for label in classes)}")
        predictions = np.asarray(self.estimator.predict(frame[list(self.columns)]))
        return np.array([text(label) == text(self.positive) for label in predictions.tolist()], dtype=bool)

    @property
    def words(self) -> str:
        return type(self.estimator).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkDecider:
    """A network, or anything that `read` takes, with the schema of its inputs.

    good: the class that is the favourable decision; None: the schema's.

    A counterfactual must be an input that the schema allows: `legal` rounds and clips it.
    """

    model: ModelField = MODEL
    schema: Schema
    good: int | None = None

    def __post_init__(self) -> None:
        network, schema = self.schema.settled(self.model)
        object.__setattr__(self, "model", schema.judges(network))
        object.__setattr__(self, "schema", schema)
        if self.good is None:
            object.__setattr__(self, "good", self.schema.good)
        if self.good not in (0, 1) or isinstance(self.good, bool):
            raise QueryError(f"good = {self.good!r}: expected 0 or 1, the network's class that is the favourable decision")

    def decide(self, frame: pd.DataFrame) -> Booleans:
        """Return (N,) decisions. Raises DataError for rows that do not fit the schema."""
        result = np.empty(len(frame), dtype=bool)
        try:
            for part in blocks(len(frame)):
                raw = self.schema.raw(frame.iloc[part])
                result[part] = decisions(self.model, self.schema.encode(raw)) == self.good
        except DataError:
            self.schema.raw(frame)  # raises the same error, with the number of such rows among all
            raise
        return result

    def legal(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, Booleans]:
        """Return the rows with numbers rounded (half to even) where the schema has integers, and clipped to its ranges; and (N,)
        True where a row was clipped. Columns that are no features stay."""
        new, clipped = frame.copy(deep=False), np.zeros(len(frame), dtype=bool)
        for feature in self.schema.features:
            if not feature.numeric or feature.range is None or feature.source not in frame.columns:
                continue
            values = frame[feature.source].to_numpy(dtype=float)
            low, high = feature.range
            allowed = np.clip(np.rint(values) if feature.kind == "integer" else values, low, high)
            clipped |= (values < low) | (values > high)
            if not np.array_equal(allowed, values):
                new[feature.source] = allowed
        return new, clipped

    @property
    def words(self) -> str:
        outcome = self.schema.outcome
        rule = "" if self.good else ", class 0 is positive"
        if self.model.whole.outputs > 2 or not (outcome.of == "class" or outcome.plain):
            rule = f", {self.schema.positive} is positive"
        return model_words(self.model.whole) + rule


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """Decisions recorded in a column; `positive` is its favourable value.

    counterfactual: the decider on counterfactuals, whose decisions are never on record; None: nobody decides on them, and neither
    CF nor CST with search centers can be computed.
    """

    column: str
    positive: Any
    counterfactual: Decider | None = None

    def decide(self, frame: pd.DataFrame) -> Booleans:
        """Return (N,) decisions. Raises DataError for an absent column, missing decisions, or where no row has the positive one."""
        if self.column not in frame.columns:
            raise DataError(f"decision: the table has no column {self.column!r}; {nearest(self.column, frame.columns)}")
        column = frame[self.column]
        if column.isna().any():
            row = int(np.argmax(column.isna().to_numpy()))
            raise DataError(f"decision: row {frame.index[row]} has no value in column {self.column!r}; drop undecided rows")
        codes, distinct = pd.factorize(column)
        texts = [text(value) for value in distinct]
        if text(self.positive) not in texts:
            raise DataError(
                f"decision: no row has {self.positive!r} in column {self.column!r}; found {', '.join(sorted(texts)[:8])}: name the "
                "favourable value (positive = ...)"
            )
        names, positive = list(dict.fromkeys(texts)), text(self.positive)
        check_names(f"decision column {self.column!r}", positive, names)
        tell_others(f"decision column {self.column!r}", positive, names)
        return np.asarray(np.array([name == positive for name in texts])[codes])

    @property
    def words(self) -> str:
        return f"recorded decisions ({self.column} = {text(self.positive)} is positive)"


def decided(decider: Decider, counterfactual: pd.DataFrame) -> tuple[pd.DataFrame, Booleans | None]:
    """Return counterfactuals as the decider takes them, and its decisions on them; None where nobody decides on them."""
    counterfactual, judge = taken(decider, counterfactual), counterfactually(decider)
    if judge is None:
        return counterfactual, None
    return counterfactual, booleans(judge.decide(counterfactual), len(counterfactual), "decisions on counterfactuals")


def taken(decider: Decider, counterfactual: pd.DataFrame) -> pd.DataFrame:
    """Return counterfactuals as the decider takes them: a network's schema rounds and clips."""
    judge = counterfactually(decider)
    return judge.legal(counterfactual)[0] if isinstance(judge, NetworkDecider) else counterfactual


def counterfactually(decider: Decider) -> Decider | None:
    """Return the decider on counterfactuals; None if there is none."""
    return decider.counterfactual if isinstance(decider, Recorded) else decider


def reads(decider: Decider) -> tuple[str, ...]:
    """Return the columns that the decider is known to read; for recorded decisions, those of the decider on counterfactuals."""
    match decider:
        case LinearRule():
            return tuple(decider.weights)
        case EstimatorDecider():
            return tuple(decider.columns)
        case NetworkDecider():
            return tuple(feature.source for feature in decider.schema.features)
        case Recorded(counterfactual=other) if other is not None:
            return reads(other)
        case _:
            return ()


def may_read(decider: Decider, nodes: Iterable[str]) -> set[str]:
    """Return the columns that decisions on counterfactuals may depend on: those it is known to read, else any of `nodes`."""
    columns = set(reads(decider))
    return columns if columns or counterfactually(decider) is None else set(nodes)
