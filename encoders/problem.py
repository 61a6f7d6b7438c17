"""The numeric problem: what the raw variables are, how they become network inputs, and which boxes are asked about.

A *raw variable* is one feature of the schema: a number in its own unit, or the index of a category. Boxes, lattices and
splits live in raw variables, where integers are exact. The network is fed float32 columns:

    number      column = float32((raw - offset) / scale)
    one-hot     columns = e_raw  (raw is the index of the category)

so the input of the network at a raw point is *defined* as that float32 vector, exactly what a runtime is fed. Rounding to
float32 is monotone, hence an interval of raw values maps into the interval of the rounded ends: boxes need no extra slack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Network

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """V raw variables and the n network columns that they become.

    integer: (V,) the variable takes whole values only (always true for one-hot variables).
    lower, upper: (V,) its declared range, in raw units.
    offset, scale: (V,) of the affine map above, scale > 0; ignored for one-hot variables.
    start, width: (V,) first column, and number of columns: 1 for a number, the number of categories for one-hot.
    """

    integer: Booleans
    lower: Array
    upper: Array
    offset: Array
    scale: Array
    start: Integers
    one_hot: Booleans
    width: Integers

    @property
    def variables(self) -> int:
        return len(self.lower)

    @property
    def columns(self) -> int:
        return int(self.width.sum())

    def take(self, variables: Integers) -> Domain:
        """The domain of some of the variables, its columns packed in the given order."""
        width = self.width[variables]
        return Domain(
            integer=self.integer[variables],
            lower=self.lower[variables],
            upper=self.upper[variables],
            offset=self.offset[variables],
            scale=self.scale[variables],
            start=np.cumsum(width) - width,
            one_hot=self.one_hot[variables],
            width=width,
        )

    def columns_of(self, variables: Integers) -> Integers:
        """Positions of the network columns of some variables, in their order."""
        blocks = [np.arange(self.start[v], self.start[v] + self.width[v]) for v in variables]
        return np.concatenate([np.empty(0, dtype=np.int64), *blocks])

    def encode(self, raw: Array) -> Array:
        """Network inputs (B, n) of raw points (B, V): float64 arrays whose entries are float32 numbers."""
        return self.box(raw, raw)[0]

    def box(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The network box (B, n), (B, n) that holds every input of a raw point in [lower, upper] (B, V).

        Exact for numbers (the ends are inputs themselves). A one-hot block becomes 0/1 intervals: sound, and exact as soon
        as one category is left.
        """
        low = np.empty((len(lower), self.columns))
        high = np.empty_like(low)
        number = ~self.one_hot
        column = self.start[number]
        for target, raw in ((low, lower), (high, upper)):
            target[:, column] = ((raw[:, number] - self.offset[number]) / self.scale[number]).astype(np.float32)
        for v in np.flatnonzero(self.one_hot):
            block = slice(int(self.start[v]), int(self.start[v] + self.width[v]))
            index = np.arange(self.width[v])
            possible = (index >= lower[:, v, None]) & (index <= upper[:, v, None])
            low[:, block] = possible & (lower[:, v, None] == upper[:, v, None])
            high[:, block] = possible
        return low, high

    def legal(self, raw: Array) -> Booleans:
        """Which raw points (B, V) are legal rows: inside the declared range, whole where they must be."""
        whole = ~self.integer | (raw == np.floor(raw))
        return np.asarray(((raw >= self.lower) & (raw <= self.upper) & whole).all(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class TwinBatch:
    """B questions about two copies x, x' of one network that share all raw variables but the protected ones.

        x  in [lower, upper],    x'_v = x_v  (v not protected),    x'_v = protected_prime_v  (v protected)

    lower, upper: (B, V) raw box of x; protected variables are fixed there (lower = upper = z).
    prime: (B, V) the protected values z' of x'; ignored where `protected` is false.
    protected: (V,) which variables are protected.
    """

    lower: Array
    upper: Array
    prime: Array
    protected: Booleans

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, index: npt.ArrayLike) -> TwinBatch:
        """The questions at the given positions."""
        i = np.asarray(index)
        return replace(self, lower=self.lower[i], upper=self.upper[i], prime=self.prime[i])

    def second(self, raw: Array) -> Array:
        """Raw points x' (B, V) of raw points x (B, V)."""
        return np.where(self.protected, self.prime, raw)

    def centre(self, domain: Domain) -> Array:
        """A legal raw point (B, V) in the middle of each box."""
        middle = self.lower + (self.upper - self.lower) / 2
        return np.where(domain.integer, np.floor(middle), np.clip(middle, self.lower, self.upper))


@dataclass(frozen=True, kw_only=True, eq=False)
class Goal:
    """What is to be shown for every point of a box: *some* row holds.

        safe(x)   iff   for some r:   rows[r, 0] * g(x) + rows[r, 1] * g(x')  > 0     (>= 0 when not strict)

    PBA, observed:  rows = [(1, -1)], strict:        g(x) - g(x') > 0.
    Robustness:     rows = [(1, 0)]:                 g(x) > 0.
    No flip from + to -:  rows = [(-1, 0), (0, 1), (-1/2, 1/2)], not strict:  g(x) <= 0 or g(x') >= 0; the third row follows
    from the first two at any point, and is what lets a whole box be closed where neither of them holds throughout.
    A point is a *witness against* the goal when no row holds there; a box is *closed* when one row holds throughout.
    """

    rows: Array
    strict: bool



@dataclass(frozen=True, kw_only=True, eq=False)
class TwinProblem:
    """A network, the domain of its raw variables, a batch of questions, and the goals asked of every one of them.

    margin: (n_N,) weights on the logits: the margin of a copy is  g(x) = margin . f(x),  e.g. logit_i - logit_j.
    """

    network: Network
    domain: Domain
    batch: TwinBatch
    margin: Array
    goals: tuple[Goal, ...]

    @property
    def rows(self) -> Array:
        """The rows (R, 2) of all goals, one after the other."""
        return np.concatenate([goal.rows for goal in self.goals])

    def goals_met(self, rows_met: Booleans) -> Booleans:
        """(..., G) whether some row of each goal is met, from (..., R) row by row."""
        first = np.cumsum([0, *(len(goal.rows) for goal in self.goals)])[:-1]
        return np.asarray(np.logical_or.reduceat(rows_met, first, axis=-1))

    @property
    def strict(self) -> Booleans:
        """(R,) whether each row must be positive (else non-negative)."""
        return np.concatenate([np.full(len(goal.rows), goal.strict) for goal in self.goals])

    @property
    def goal_of(self) -> Integers:
        """(R,) the goal that each row belongs to."""
        return np.repeat(np.arange(len(self.goals)), [len(goal.rows) for goal in self.goals])

    def rows_met(self, values: Array) -> Booleans:
        """(..., R) which rows are met by values (or are met throughout, by lower bounds); NaN meets nothing."""
        return np.asarray(np.where(self.strict, values > 0, values >= 0))
