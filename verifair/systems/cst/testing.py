"""Counterfactual situation testing: each complainant's control and test group, and the resulting claims. Start at `situation_test`.

For a complainant c of a protected group, with counterfactual c~ under do(A := a):

ST        control: the k rows of c's own group nearest to c;   test: the k rows with A = a nearest to c        (Thanh et al. 2011)
CST w/o   the same control;                                     test: the k rows with A = a nearest to c~       (CST, section 3.4)
CST       the same as CST w/o, where c and c~ count as well (with search centers, n = k + 1)
CF        c and c~ alone: c is refused and c~ is not                                                          (Kusner et al. 2017)

delta = p_c - p_t, the difference of the shares of negative decisions, above tau is a case of potential discrimination; it is
significant when its interval lies above tau. In the other direction, positive discrimination, delta below -tau is a case (the
paper's authors publish such counts), and of CF a counterfactual who would be refused where c is not:

wald       delta +- z sqrt(p_c (1 - p_c) / n_c + p_t (1 - p_t) / n_t)            CST, equation 5 (Thanh et al. 2011)
newcombe   from the Wilson intervals of p_c and p_t: Newcombe 1998, method 10; of a few rows no more than the exact bound of the
           most extreme outcome, so that nothing is significant where even that one may be chance (at 95 %: of 2 rows and 2)

*Corrects the paper:* equation 5 has a minus under the root. Wald's interval has no width where both proportions are 0 or 1, however
small the groups; Newcombe's has, and stays within -1 .. 1. Both are approximations: the k nearest rows are no random sample.
Sound? Complete? neither: statistical evidence under a stated causal model.
Reference: CST (Alvarez and Ruggieri 2023), definitions 3.1-3.5, equations 4 and 5, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, norm

from encoders.arrays import Array, Booleans, Integers
from verifair.aside import stacked
from verifair.checker.report import Progress
from verifair.engine.verdict import Finding
from verifair.errors import DataError, QueryError
from verifair.systems.arguments import booleans, check_number
from verifair.systems.cst.groups import check_k, check_sizes, groups_under, in_words, least_group, left_out
from verifair.systems.cst.neighbours.counts import NeighbourPool, control, nearest, negatives
from verifair.systems.cst.neighbours.distance import Metric
from verifair.systems.cst.settings import DEFAULTS, Correction, Direction, Distance, Interval, Small, Ties
from verifair.systems.groups import blocks, identities
from verifair.systems.proportions import critical, newcombe_lower_of_few
from verifair.systems.stores import NO_STORE, Parts

Method = Literal["ST", "CST w/o", "CST", "CF"]
METHODS: tuple[Method, ...] = get_args(Method)
INTERVALS: tuple[Interval, ...] = get_args(Interval)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
STEPS = 60
"""Steps of bisection for a p-value: z to 1e-16 of MAX_Z."""
MAX_Z = 38.0
"""Beyond it the normal tail is 0 in floats."""
ROUNDING = 1e-12
"""Differences of shares that are smaller are none."""


def lower_end(kind: Interval, p_c: Array, n_c: Array | float, p_t: Array, n_t: Array | float, z: Array | float) -> Array:
    """Return the lower end of the interval of delta at z. The upper end is the negated lower end for -delta."""
    if kind == "wald":
        return p_c - p_t - z * np.sqrt(p_c * (1 - p_c) / n_c + p_t * (1 - p_t) / n_t)
    if kind == "newcombe":
        return newcombe_lower_of_few(p_c, n_c, p_t, n_t, z)
    raise QueryError(f"interval {kind!r}: there is no such interval; known are {', '.join(INTERVALS)}")


def p_value(kind: Interval, p_c: Array, n_c: Array | float, p_t: Array, n_t: Array | float, tau: float, sides: int) -> Array:
    """Return the smallest 1 - level at which the interval lies above tau (1 where none does), so that both always agree.

    The interval's lower end falls as z grows, so the z where it crosses tau is bisected, once for all people with equal shares.
    """
    shares = np.column_stack(np.broadcast_arrays(p_c, n_c, p_t, n_t))
    identity = identities(shares)
    p_c, n_c, p_t, n_t = shares[np.unique(identity, return_index=True)[1]].T
    low, high = np.zeros_like(p_c), np.full_like(p_c, MAX_Z)
    for _ in range(STEPS):
        z = (low + high) / 2
        above = lower_end(kind, p_c, n_c, p_t, n_t, z) > tau
        low, high = np.where(above, z, low), np.where(above, high, z)
    return np.asarray(np.where(p_c - p_t - tau > ROUNDING, np.minimum(sides * norm.sf(low), 1.0), 1.0)[identity])


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The definition of a case, as parameters.

    tau: the least difference of shares.   level, sides: of the intervals, 0.95 and 2 for z = 1.96.   interval: its kind.
    correction: "bh" for Benjamini and Hochberg's control of the false discovery rate over the complainants of one method and k.
    decimals: differences and limits are rounded to so many places before they are compared with tau (the authors' code: 3).
    z: the critical value itself, in place of that of level and sides (the authors' code: 1.645).   direction: "negative" for people
    who are treated worse than the test group, "positive" for people who are treated better.
    """

    tau: float = DEFAULTS.tau
    level: float = DEFAULTS.level
    sides: int = DEFAULTS.sides
    interval: Interval = DEFAULTS.interval
    correction: Correction | None = DEFAULTS.correction
    decimals: int | None = None
    z: float | None = DEFAULTS.z
    direction: Direction = DEFAULTS.direction

    def __post_init__(self) -> None:
        check_number("tau", self.tau)
        check_number("level", self.level)
        critical(self.level, self.sides)
        if self.z is not None:
            check_number("z", self.z)
            if not 0 < self.z <= MAX_Z:
                raise QueryError(f"z = {self.z:g}: expected a critical value above 0 and at most {MAX_Z:g}, such as 1.645")
        if self.direction not in DIRECTIONS:
            raise QueryError(f"direction {self.direction!r}: expected one of {', '.join(DIRECTIONS)}")
        if not -1 <= self.tau < 1:
            raise QueryError(f"tau = {self.tau:g}: a difference of shares lies in -1 .. 1; expected 0 or a small positive number")
        if self.interval not in INTERVALS:
            raise QueryError(f"interval {self.interval!r}: there is no such interval; known are {', '.join(INTERVALS)}")
        if self.correction not in (None, "bh"):
            raise QueryError(f"correction {self.correction!r}: expected None or 'bh' (Benjamini and Hochberg)")

    @property
    def critical(self) -> float:
        """The critical value z of intervals."""
        return critical(self.level, self.sides) if self.z is None else self.z

    @property
    def tail(self) -> float:
        """The probability that the interval of a true difference tau lies above tau: (1 - level) / sides."""
        return (1 - self.level) / self.sides if self.z is None else float(norm.sf(self.z))

    @property
    def alpha(self) -> float:
        """1 - level; where z is given, the tail beyond it."""
        return 1 - self.level if self.z is None else self.tail

    @property
    def label(self) -> str:
        """The intervals' level, such as "95 %" or "z = 1.645"."""
        return f"{100 * self.level:g} %" if self.z is None else f"z = {self.z:g}"

    @property
    def words(self) -> str:
        """The intervals, such as "95 % Newcombe interval (two-sided)"."""
        sides = "" if self.z is not None else f" ({'two-sided' if self.sides == 2 else 'one-sided'})"
        return f"{self.label} {self.interval.capitalize()} interval{sides}"

    @property
    def bound(self) -> float:
        """The limit that delta must exceed: tau, or -tau."""
        return self.tau if self.direction == "negative" else -self.tau

    @property
    def case(self) -> str:
        """The definition of a case, in words."""
        return "delta p > tau" if self.direction == "negative" else "delta p < -tau (treated better: positive discrimination)"

    @property
    def beyond(self) -> str:
        """The same of an interval, such as "above tau = 0"."""
        return f"above tau = {self.tau:g}" if self.direction == "negative" else f"below -tau = {-self.tau or 0.0:g}"

    def exceeded(self, values: Array) -> Booleans:
        """Return True where a difference, or its limit, is above tau by more than rounding (shared places make shares
        fractions)."""
        values = values if self.decimals is None else np.round(values, self.decimals)
        return np.asarray(values > self.tau + ROUNDING)


@dataclass(frozen=True, kw_only=True, eq=False)
class Claims:
    """The claims of one method with groups of k, all (C,).   n: size of the test groups.   n_control: of the control groups, one
    for all or (C,).

    positive: True for cases, in the direction of `terms`.
    """

    method: Method
    k: int
    n: int
    n_control: Array | float
    terms: Terms
    p_control: Array
    p_test: Array
    positive: Booleans

    @property
    def delta(self) -> Array:
        return self.p_control - self.p_test

    @cached_property
    def low(self) -> Array:
        """The interval's lower end."""
        return self._lower_limit(False, slice(None))

    @cached_property
    def high(self) -> Array:
        return -self._lower_limit(True, slice(None))

    def _lower_limit(self, better: bool, mask: Integers | slice) -> Array:
        """The lower end of the interval of delta, or of -delta."""
        control = self.p_control[mask], self.n_control if isinstance(self.n_control, float) else self.n_control[mask]
        test = self.p_test[mask], self.n
        (p, n), (q, m) = (test, control) if better else (control, test)
        return lower_end(self.terms.interval, p, n, q, m, self.terms.critical)

    @cached_property
    def p_value(self) -> Array:
        """The smallest 1 - level at which the interval is beyond tau; adjusted if there is a correction."""
        terms, sides = self.terms, 1 if self.terms.z is not None else self.terms.sides
        if terms.direction == "negative":
            raw = p_value(terms.interval, self.p_control, self.n_control, self.p_test, self.n, terms.tau, sides)
        else:
            raw = p_value(terms.interval, self.p_test, self.n, self.p_control, self.n_control, terms.tau, sides)
        return raw if terms.correction is None else np.asarray(false_discovery_control(raw, method="bh"))

    @cached_property
    def significant(self) -> Booleans:
        """True for cases whose interval is above tau, or below -tau; with a correction, whose adjusted p-value is at most 1 -
        level."""
        terms = self.terms
        if terms.correction is not None:
            return np.asarray(self.positive & (self.p_value <= terms.alpha))
        result, cases = self.positive.copy(), np.flatnonzero(self.positive)  # intervals take most of the time when there are many k
        result[cases] = terms.exceeded(self._lower_limit(terms.direction == "positive", cases))
        return result


def claims_of(
    terms: Terms, method: Method, k: int, control: Array, sizes: Integers | int, test: Array, refused: Booleans,
    refused_tilde: Booleans | Array | None,
) -> Claims:
    """Return claims from the numbers of negative decisions (C,) in control groups of `sizes`, one for all or (C,), and test groups
    of k, and those on the centers (C,) if the centers count.

    A control group of size k + 1 holds the k + 1 nearest rows without the center; search centers do not enlarge it.
    """
    n, n_c = k, float(sizes) if isinstance(sizes, int) else sizes.astype(np.float64)
    if method in ("CST", "CF"):
        assert refused_tilde is not None
        n, n_c = k + 1, k + 1.0
        counted = refused if isinstance(sizes, int) else refused & (sizes == k)
        p_c, p_t = (control + counted) / n_c, (test + refused_tilde) / n
    else:
        p_c, p_t = control / n_c, test / n
    is_negative = terms.direction == "negative"
    if method == "CF":
        assert refused_tilde is not None
        positive = np.asarray(refused & (refused_tilde == 0) if is_negative else ~refused & (refused_tilde == 1))
    else:
        positive = terms.exceeded(p_c - p_t if is_negative else p_t - p_c)
    return Claims(method=method, k=k, n=n, n_control=n_c, terms=terms, p_control=p_c, p_test=p_t, positive=positive)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Situations(Finding):
    """The test of one `do`: a Finding whose value is the share of complainants with a case (CST at the smallest k; CST w/o where no
    decision on counterfactuals is known). Never a proof.

    do: attribute -> its value for those who are not protected.   complainants: (C,) positions in the table.   k: (K,) group sizes.
    control, standard, counterfactual: (K, C) how many of the k rows were decided negatively: of the control group, of ST's and of
    CST's test group.   sizes: (K, C) of the control groups: k, or k + 1 with ties "heap".   refused: (C,) whether the complainant
    was;   refused_tilde: (C,) the same of c~, None where nobody decides.
    groups: (C,) position in `names` of the complainant's protected values.
    pools, metric, centers, centers_tilde (C, E), literal, literal_tilde (C, d): for `case`.
    """

    do: Mapping[str, Any]
    complainants: Integers
    k: tuple[int, ...]
    terms: Terms
    control: Array
    standard: Array
    counterfactual: Array
    sizes: Integers
    refused: Booleans
    refused_tilde: Booleans | None
    groups: Integers
    names: tuple[str, ...]
    pools: tuple[NeighbourPool, ...] = field(repr=False)
    test_pool: NeighbourPool = field(repr=False)
    metric: Metric = field(repr=False)
    ties: Ties
    centers: Array = field(repr=False)
    centers_tilde: Array = field(repr=False)
    literal: Array | None = field(repr=False)
    literal_tilde: Array | None = field(repr=False)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that can be computed: CF and CST need decisions on counterfactuals."""
        return METHODS if self.refused_tilde is not None else ("ST", "CST w/o")

    def claims(self, method: Method, k: int) -> Claims:
        """Return a method's claims with groups of k. CF's interval is that of CST, as in the paper. Raises QueryError."""
        row, tilde = self._row(method, k), self.refused_tilde
        test = self.standard if method == "ST" else self.counterfactual
        sizes = self.sizes[row] if self.ties == "heap" else k       # one for all is much faster
        return claims_of(self.terms, method, k, self.control[row], sizes, test[row], self.refused, tilde)

    def counts(self) -> pd.DataFrame:
        """Return the numbers of Table 1: a line for each method and k with cases, significant ones, and their shares of the
        complainants."""
        lines = []
        for method in self.methods:
            for k in self.k:
                claims = self.claims(method, k)
                cases, significant = int(claims.positive.sum()), int(claims.significant.sum())
                total = len(self.complainants)
                line = {"method": method, "k": k, "cases": cases, "share": cases / total}
                lines.append(line | {"significant": significant, "significant share": significant / total})
        return pd.DataFrame(lines)

    def case(self, complainant: int, k: int) -> dict[str, tuple[Integers, Array, Array]]:
        """Return the neighbours of one complainant (a position in the table): "control", "ST", "CST" -> rows, distances,
        weights."""
        matches = np.flatnonzero(self.complainants == complainant)
        if not len(matches):
            raise QueryError(f"row {complainant} is no complainant: it is not of the protected group {', '.join(self.names)}")
        index = int(matches[0])
        self._row("ST", k)
        literal, literal_tilde = (None if array is None else array[index] for array in (self.literal, self.literal_tilde))
        pool = self.pools[self.groups[index]]
        return {
            "control": nearest(pool, self.centers[index], k, own=complainant, ties=self.ties, literal=literal),
            "ST": nearest(self.test_pool, self.centers[index], k, ties=self.ties, literal=literal),
            "CST": nearest(self.test_pool, self.centers_tilde[index], k, ties=self.ties, literal=literal_tilde),
        }

    def _row(self, method: Method, k: int) -> int:
        if method not in METHODS:
            raise QueryError(f"method {method!r}: there is no such method; known are {', '.join(METHODS)}")
        if method not in self.methods:
            raise QueryError(
                f"{method} compares with the decision on the counterfactual, and the decisions are recorded ones; give a rule, a "
                "classifier or a network that decides, or use 'CST w/o'"
            )
        try:
            return self.k.index(k)
        except ValueError:
            raise QueryError(f"k = {k}: was not asked for; asked for were {', '.join(map(str, self.k))}") from None


def situation_test(
    frame: pd.DataFrame, counterfactual: pd.DataFrame, *, do: Mapping[str, Any], attributes: Sequence[str], decisions: Booleans,
    counterfactual_decisions: Booleans | None = None, k: Sequence[int] = DEFAULTS.k, terms: Terms | None = None,
    distance: Distance = DEFAULTS.distance, own_scale: bool = False, ties: Ties = DEFAULTS.ties, categorical: Sequence[str] = (),
    small: Small = DEFAULTS.small, threads: int = 2, progress: Progress | None = None, parts: Parts = NO_STORE,
) -> Situations:
    """Test every protected row of a table.

    frame: (N rows).   counterfactual: (C rows) its complainants under `do`, in the table's order.
    do: attribute -> the value of those who are not protected; rows that differ from it in *every* attribute are the complainants,
    rows that have it all are those among whom test groups are sought.
    attributes: what makes two people similar, protected attributes excluded.   decisions: (N,) True where positive;
    counterfactual_decisions: (C,), None where nobody decides on counterfactuals.
    own_scale: counterfactuals are scaled by the spread of the table in which they replace the complainants, as by the authors.
    categorical: attributes that are categories although they hold numbers.   small: "leave-out" leaves out complainants whose group
    is smaller than the largest k + 1, and `details` names them; "error" raises.   progress(done, total) counts searches.
    parts: the store of the searches' partial results.
    Raises QueryError for invalid arguments, DataError for tables that do not fit, or a group smaller than a k.
    """
    sizes = check_k(k)
    terms = Terms() if terms is None else terms
    names, group, test = groups_under(frame, do, least=least_group(sizes, small))
    check_sizes(sizes, names, group, test)
    complainants, negative = np.flatnonzero(group >= 0), ~booleans(decisions, len(frame), "decisions")
    if len(counterfactual) != len(complainants):
        raise DataError(f"counterfactual: has {len(counterfactual)} rows for {len(complainants)} complainants: one for each")
    refused_tilde = None
    if counterfactual_decisions is not None:
        refused_tilde = ~booleans(counterfactual_decisions, len(complainants), "counterfactual_decisions")
    metric = Metric.of(distance, frame, attributes, categorical)
    scaled = _own_scale(metric, frame, complainants, counterfactual) if own_scale else metric
    embedded, tilde = metric.embed(frame), scaled.embed(counterfactual)
    literal, literal_tilde = metric.literal(frame, embedded), scaled.literal(counterfactual, tilde)
    pool_of = partial(NeighbourPool.of, embedded=embedded, negative=negative, metric=metric, literal=literal)
    pools, pool = tuple(pool_of(np.flatnonzero(group == g)) for g in range(len(names))), pool_of(np.flatnonzero(test))
    centers = stacked(embedded[complainants[part]] for part in blocks(len(complainants)))
    own = None if literal is None else literal[complainants]
    del pool_of, embedded, literal  # searches take long, and for a million rows these are large
    total, done = 3 * len(complainants), 0

    def report(count: int) -> None:
        if progress is not None:
            progress(done + count, total)

    found = list[tuple[Integers, Array, Integers]]()
    for g, own_pool in enumerate(pools):
        index = np.flatnonzero(group[complainants] == g)
        rows = complainants[index]
        group_counts = control(
            own_pool, centers[index], sizes, rows, ties=ties, threads=threads, literal=None if own is None else own[index],
            progress=report, parts=parts,
        )
        found.append((index, *group_counts))
        done += len(index)
    found_control, found_sizes = found[0][1:]
    if len(found) > 1:
        order = np.argsort(np.concatenate([index for index, _, _ in found]))
        found_control, found_sizes = (np.concatenate(arrays, axis=1)[:, order] for arrays in list(zip(*found, strict=True))[1:])
    standard = negatives(pool, centers, sizes, ties=ties, threads=threads, literal=own, progress=report, parts=parts)
    done += len(complainants)
    counter = negatives(pool, tilde, sizes, ties=ties, threads=threads, literal=literal_tilde, progress=report, parts=parts)
    situations = Situations(
        kind="counterfactual situation testing", value=float("nan"), method=f"k-NN CST, {distance} distance", seed=None,
        details={
            "do": in_words(do), "complainants": len(complainants), "test group": int(test.sum()), "k": sizes, "ties": ties,
            "left out": left_out(frame, do, names),
        },
        do=dict(do), complainants=complainants, k=sizes, terms=terms, control=found_control, standard=standard,
        counterfactual=counter, sizes=found_sizes, refused=negative[complainants],
        refused_tilde=refused_tilde,
        groups=group[complainants], names=names, pools=pools, test_pool=pool, metric=metric, ties=ties,
        centers=centers, centers_tilde=tilde, literal=own, literal_tilde=literal_tilde,
    )
    return _with_value(situations)


def with_counterfactuals(
    found: Situations, frame: pd.DataFrame, counterfactual: pd.DataFrame, decisions: Booleans | None, *, k: int,
    own_scale: bool, threads: int, parts: Parts = NO_STORE,
) -> Situations:
    """Return a test with other counterfactuals (C rows) of the same complainants, and decisions (C,) on them, for groups of k.

    frame: the table (N rows) of the test.   own_scale, parts: as in `situation_test`.
    Control groups, ST's test groups and groups around unchanged counterfactuals are reused; only the others are searched for.
    """
    i = found.k.index(k)
    scaled = _own_scale(found.metric, frame, found.complainants, counterfactual) if own_scale else found.metric
    tilde = scaled.embed(counterfactual)
    literal = scaled.literal(counterfactual, tilde)
    moved = (tilde != found.centers_tilde).any(axis=1)
    if literal is not None:
        moved |= (literal != found.literal_tilde).any(axis=1)
    counter = found.counterfactual[[i]]
    if moved.any():
        own = None if literal is None else literal[moved]
        counter[:, moved] = negatives(
            found.test_pool, tilde[moved], (k,), ties=found.ties, threads=threads, literal=own, parts=parts
        )
    return _with_value(replace(
        found, k=(k,), control=found.control[[i]], standard=found.standard[[i]], sizes=found.sizes[[i]], counterfactual=counter,
        refused_tilde=None if decisions is None else ~decisions, centers_tilde=tilde, literal_tilde=literal,
    ))


def _own_scale(metric: Metric, frame: pd.DataFrame, complainants: Integers, counterfactual: pd.DataFrame) -> Metric:
    """Return the metric with the spread of the table in which the counterfactuals replace the complainants."""
    if metric.name == "mahalanobis":
        raise QueryError("own_scale compares two scales axis by axis, which mahalanobis has not; use another distance")
    others = frame.iloc[np.setdiff1d(np.arange(len(frame)), complainants)]
    scaled = Metric.of(metric.name, pd.concat([others, counterfactual]), (*metric.numbers, *metric.words), metric.words)
    return replace(scaled, levels=metric.levels)  # a category may be absent there; both must use the same coordinates


def _with_value(situations: Situations) -> Situations:
    claims = situations.claims("CST" if "CST" in situations.methods else "CST w/o", min(situations.k))
    return replace(situations, value=float(claims.positive.mean()))
