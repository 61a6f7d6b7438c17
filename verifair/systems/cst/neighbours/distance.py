"""Distances between rows over numbers and categories, as coordinates in which they are L1 or L2 distances.

With coordinates a k-d tree finds neighbours exactly. A categorical attribute has an indicator coordinate for each of its values, so
tables are held as numbers and codes, an *embedding*; only a few rows at a time are turned into coordinates.

mixed          mean over the attributes of |x - x'| / range (numbers) or [x != x'] (categories)       CST, equation 6; the default
standardised   the same with the standard deviation (population) in place of the range                the authors' code
heom           square root of the sum of squares of mixed's terms                                     Wilson and Martinez 1997
mahalanobis    Mahalanobis distance of the numbers, with HEOM's [x != x'] for categories

*Corrects the paper:* its overlap is 1 for equal categories; as a distance it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Array
from verifair.aside import Aside
from verifair.errors import DataError, QueryError
from verifair.models.columns import holds_numbers
from verifair.schema.feature import text
from verifair.systems.arguments import check_no_hidden_numbers
from verifair.systems.cst.causal.design import LARGEST
from verifair.systems.cst.settings import Distance
from verifair.systems.groups import blocks

DISTANCES: tuple[Distance, ...] = get_args(Distance)
MAX_WORDS = 1 << 14
"""Most different words of one attribute."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """A distance fitted to a table: the Minkowski distance of order p between `coordinates`.

    numbers (m,), words (c,): the attributes' names.   centre (m,), linear (m, m): numbers become (x - centre) @ linear.
    deviation: (m,) population standard deviations, 1 where they are 0, for `literal`.
    levels: the categories of each attribute in words.   height: value of an indicator, chosen so that unequal categories have the
    distance that the definition says.
    """

    name: Distance
    p: int
    numbers: tuple[str, ...]
    words: tuple[str, ...]
    centre: Array
    linear: Array
    deviation: Array
    levels: tuple[tuple[str, ...], ...]
    height: float

    @classmethod
    def of(cls, name: Distance, frame: pd.DataFrame, attributes: Sequence[str], categorical: Sequence[str] = ()) -> Metric:
        """Fit ranges, deviations and categories to the rows of a table.

        categorical: attributes that are categories although they hold numbers.
        Raises QueryError for an unknown distance or no attributes, DataError for columns that are absent, missing or not finite.
        """
        if name not in DISTANCES:
            raise QueryError(f"distance {name!r}: there is no such distance; known are {', '.join(DISTANCES)}")
        if not attributes:
            raise QueryError("attributes: none is left to compare people by; name at least one that is not protected")
        for attribute in [*attributes, *categorical]:
            _check_column(frame, attribute)
        for attribute in attributes:
            if attribute not in categorical:
                check_no_hidden_numbers(frame[attribute])
        repeated = [attribute for attribute in attributes if list(attributes).count(attribute) > 1]
        if repeated:
            raise QueryError(f"attributes: {repeated[0]!r} is named twice, and would count twice; name it once")
        words = tuple(a for a in attributes if a in categorical or not holds_numbers(frame[a]))
        numbers = tuple(a for a in attributes if a not in words)
        levels = tuple(tuple(sorted(set(_factor(frame[a])[1]))) for a in words)
        _check_size(words, levels, len(frame))
        x = _numbers(frame, numbers)
        _check_scale(numbers, x)
        centre, deviation = _moments(x) if name == "standardised" else (x.mean(axis=0), np.ones(x.shape[1]))
        manhattan = name in ("mixed", "standardised")
        return cls(
            name=name, p=1 if manhattan else 2, numbers=numbers, words=words, centre=centre,
            linear=_linear(name, x, len(attributes)), deviation=deviation, levels=levels,
            height=0.5 / len(attributes) if manhattan else np.sqrt(0.5),  # rows of unequal categories differ in two indicators
        )

    def embed(self, frame: pd.DataFrame) -> Array:
        """Return (N, m + c) rows: their numbers as coordinates, and the codes of their categories.

        Raises DataError for values that are missing, not finite, too far from the table's, or of no known category.
        """
        embedded, x = Aside.of(len(frame), len(self.numbers) + len(self.words)).values, _numbers(frame, self.numbers)
        for part in blocks(len(frame)):
            with np.errstate(over="ignore", invalid="ignore"):
                numbers = embedded[part, : len(self.numbers)] = (x[part] - self.centre) @ self.linear
            overflow = ~(np.abs(numbers) <= LARGEST).all(axis=1)
            if overflow.any():
                row = frame.index[part][int(np.argmax(overflow))]
                raise DataError(f"row {row} lies so far outside the table that its distances are no floats; correct its equations")
        for column, (attribute, levels) in enumerate(zip(self.words, self.levels, strict=True), start=len(self.numbers)):
            codes, words = _factor(frame[attribute])
            code_of = {word: code for code, word in enumerate(levels)}
            unknown = [word for word in words if word not in code_of]
            if unknown:
                raise DataError(
                    f"attribute {attribute!r}: the category {unknown[0]!r} is not among the table's, {', '.join(levels[:12])}; "
                    "correct the equation that predicts it"
                )
            embedded[:, column] = np.array([code_of[word] for word in words])[codes]
        return embedded

    @property
    def dimensions(self) -> int:
        """D: coordinates of a row."""
        return len(self.numbers) + sum(map(len, self.levels))

    def coordinates(self, embedded: Array) -> Array:
        """(B, D) coordinates of embedded rows (B, m + c)."""
        numbers, codes = self.parts(embedded)
        result = np.zeros((len(embedded), self.dimensions))
        result[:, : numbers.shape[1]] = numbers
        ends = np.cumsum([numbers.shape[1], *map(len, self.levels)])
        np.put_along_axis(result, ends[:-1] + codes.astype(np.int64), self.height, axis=1)
        return result

    def literal(self, frame: pd.DataFrame, embedded: Array) -> Array | None:
        """(N, m + c) standardised numbers and the categories' codes, as the authors' code has them; None for other distances.

        embedded: (N, m + c) of the same rows. Which of two sums of these numbers is smaller may depend on the last bit.
        """
        if self.name != "standardised":
            return None
        return np.hstack([(_numbers(frame, self.numbers) - self.centre) / self.deviation, self.parts(embedded)[1]])

    def literal_distance(self, center: Array, points: Array) -> Array:
        """(q,) distances of points (q, m + c) from a center (m + c,), times the number of attributes: sums of floats, in order."""
        m = len(self.numbers)
        distance: Array = (points[:, m:] != center[m:]).sum(axis=1).astype(np.float64)
        for j in range(m):
            distance += np.abs(points[:, j] - center[j])
        return distance

    @property
    def unequal(self) -> float:
        """The contribution of two unequal categories to the distance's p-th power."""
        return 2 * self.height**self.p

    def parts(self, embedded: Array) -> tuple[Array, npt.NDArray[np.int16]]:
        """Return the two parts of embedded rows (N, m + c): numbers (N, m), and codes (N, c) of the categories."""
        return embedded[:, : len(self.numbers)], embedded[:, len(self.numbers) :].astype(np.int16)


def _moments(x: Array) -> tuple[Array, Array]:
    """Return (m,) means and population standard deviations, 1 where they are 0.

    Their sums are rounded once, whatever the order of summation: which of two rows is nearer by `literal_distance` may depend on
    the last bit.
    """
    centre = np.array([math.fsum(column.tolist()) for column in x.T]) / len(x)
    power = np.array([math.fsum(column.tolist()) for column in np.square(x - centre).T])
    return centre, np.where(np.ptp(x, axis=0) > 0, np.sqrt(power / len(x)), 1.0)


def _linear(name: Distance, x: Array, attributes: int) -> Array:
    """Return the (m, m) matrix that numbers are multiplied by. A constant column tells no rows apart and gets 0."""
    if name == "mahalanobis" and x.shape[1]:
        return _whitening(x)
    spread = x.std(axis=0) if name == "standardised" else np.ptp(x, axis=0)
    with np.errstate(divide="ignore"):
        weight = np.where(np.ptp(x, axis=0) > 0, 1.0 / spread, 0.0)
    return np.asarray(np.diag(weight / attributes if name in ("mixed", "standardised") else weight))


def _whitening(x: Array) -> Array:
    """Return (m, m) W with W W' = the (pseudo-)inverse of the covariance; computed from correlations, so that units do not
    matter."""
    spread = x.std(axis=0)
    scale = np.where(np.ptp(x, axis=0) > 0, spread, np.inf)
    standard = (x - x.mean(axis=0)) / scale
    value, vector = np.linalg.eigh(standard.T @ standard / len(x))
    keep = value > 1e-10 * value.max(initial=0.0)
    root = np.where(keep, 1.0 / np.sqrt(np.where(keep, value, 1.0)), 0.0)
    return np.asarray((vector * root) / scale[:, None])


def _check_size(words: Sequence[str], levels: Sequence[Sequence[str]], rows: int) -> None:
    """Raise DataError for an attribute of words that are nearly all different, such as an identifier."""
    for attribute, categories in zip(words, levels, strict=True):
        if len(categories) > MAX_WORDS:
            raise DataError(
                f"attribute {attribute!r}: holds {len(categories):,} different words in {rows:,} rows, at most {MAX_WORDS:,} make "
                "people similar or not; leave it out, or merge rare words"
            )


def _check_scale(numbers: Sequence[str], x: Array) -> None:
    """Raise DataError for numbers (N, m) whose squares, or the inverse of whose range, overflow or vanish in floats."""
    for j, name in enumerate(numbers):
        size = float(np.abs(x[:, j]).max(initial=0.0))
        spread = np.ptp(x[:, j]) if size <= LARGEST else 0.0
        if size > LARGEST or 0 < spread < 1 / LARGEST:
            raise DataError(f"attribute {name!r}: numbers up to {size:g}, {spread:g} apart, are no distances; use another unit")


def _check_column(frame: pd.DataFrame, name: str) -> None:
    count = list(frame.columns).count(name)
    if count != 1:
        problem = "no such column" if not count else f"{count} such columns"
        raise DataError(f"attribute {name!r}: the table has {problem}; it has {', '.join(map(str, frame.columns))}")
    missing = frame[name].isna().to_numpy()
    if missing.any():
        first, total = frame.index[int(np.argmax(missing))], int(missing.sum())
        raise DataError(
            f"attribute {name!r}: {total} {'row has' if total == 1 else 'rows have'} no value, first row {first}; "
            "drop such rows, or fill them in"
        )


def _numbers(frame: pd.DataFrame, names: Sequence[str]) -> Array:
    """(N, m) columns of numbers. Raises DataError for values that are not finite."""
    x = Aside.of(len(frame), len(names)).values
    for j, name in enumerate(names):
        x[:, j] = frame[name].to_numpy(dtype=float, na_value=np.nan)
        invalid = ~np.isfinite(x[:, j])
        if invalid.any():
            row = int(np.argmax(invalid))
            raise DataError(f"attribute {name!r}: row {frame.index[row]} holds {x[row, j]:g}, expected a finite number")
    return x


def _factor(column: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Return each row's position among the distinct values, and the distinct values as text."""
    codes, distinct = pd.factorize(column)
    return codes, [text(value) for value in distinct]
