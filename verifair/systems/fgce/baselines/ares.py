"""AReS: a few rules "if q and c, then make c to c'" for a whole group, chosen for correctness, coverage and cost.

q (the subgroup) and c, c' (before and after, on the same features, each of which changes) are frequent itemsets over binned
features. A row moves from one bin to another by the distance of their middles, rounded to a legal value, and every changed row is
decided again. A rule applies to everybody who meets q and c; people whom it does not help count against it. Measured, not proved.
Limits on directions of change are ignored, as in the paper.

The authors published no code, and the one in GLOBE-CE's repository is not installable, so it is written here, from the papers.
Differences: cost is the L2 length in `FeatureSpace`, counted for each row helped (the paper counts it once for each
rule); a row is covered when some rule helps it (the paper: when it meets a rule's conditions, even in vain); and the local
search over sets of rules adds and deletes, without exchanges.
Reference: Rawal and Lakkaraju, Beyond Individualized Recourse, NeurIPS 2020 (section 3); Ley et al. (2023), appendix C;
compared with in FGCE, section V-B2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.fgce.baselines.recourse import ROWS, GroupRecourse, Positive, accepted, actionable, check_factuals
from verifair.systems.fgce.space import FeatureSpace, distance

MIN_GAIN = 1e-3
"""A step of the search must gain this much of a row."""
Itemset = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """rules: the most that are chosen.   bins: of numbers.   support: share of the rows that a predicate must hold for.

    subgroup, change: the most features that q, and that c, may name.   candidates: changes (c, c') that are tried at most, those
    for most factuals first.   wrong: penalty of a rule for each row that it applies to but does not help; a helped row earns at
    most 1.
    """

    rules: int = 10
    bins: int = 10
    support: float = 0.05
    subgroup: int = 1
    change: int = 2
    candidates: int = 20_000
    wrong: float = 0.1

    def __post_init__(self) -> None:
        for name, minimum in (("rules", 1), ("bins", 2), ("subgroup", 0), ("change", 1), ("candidates", 1), ("wrong", 0)):
            if getattr(self, name) < minimum:
                raise QueryError(f"{name} = {getattr(self, name)}: expected at least {minimum}")
        if not 0 < self.support <= 1:
            raise QueryError(f"support = {self.support:g}: expected a share of the rows, above 0 and at most 1")


def ares(
    space: FeatureSpace,
    raw: Array,
    factuals: Array,
    positive: Positive,
    *,
    rules: Rules | None = None,
    actionable_features: Sequence[str] | None = None,
) -> GroupRecourse:
    """Return counterfactuals for factuals (n, V) by rules for features that may be acted on (default: not protected, not fixed).

    raw: (N, V) rows of the data; rules are made of frequent values; q may name any feature.
    Raises DataError for a factual that is decided positively already, QueryError when no predicate is frequent enough.
    """
    settings = rules or Rules()
    check_factuals(space, positive, factuals, "AReS")
    items = Items.of(space.schema, raw, settings.bins)
    allowed = np.isin(items.feature, actionable(space, actionable_features))
    before = frequent(items, raw, settings.support, settings.change, allowed)
    groups: list[Itemset] = [(), *frequent(items, raw, settings.support, settings.subgroup, np.ones(len(items), dtype=bool))]
    holds = items.hold(factuals)
    changes = _changes(items, before, meets(holds, before), settings.candidates)
    if not changes:
        raise QueryError(
            f"AReS: no two values of a feature that may change each hold for {settings.support:.3g} of the {len(raw)} rows, one of "
            "them for a row to be explained; lower support"
        )
    objective = _Ground.of(space, items, factuals, positive, groups, changes, settings.wrong)
    chosen = objective.search(settings.rules)
    counterfactuals = np.full(factuals.shape, np.nan)
    cheapest = np.full(len(factuals), np.inf)
    for q, p in chosen:
        helped = np.flatnonzero(objective.meets_q[q] & objective.helped(p))
        rows = substituted(items, factuals[helped], *changes[p])
        better = objective.cost[p, helped] < cheapest[helped]
        counterfactuals[helped[better]], cheapest[helped[better]] = rows[better], objective.cost[p, helped][better]
    texts = tuple(_words(items, groups[q], *changes[p]) for q, p in chosen)
    return GroupRecourse(name="AReS", counterfactuals=counterfactuals, size=len(chosen), rules=texts)


def substituted(items: Items, rows: Array, before: Itemset, after: Itemset) -> Array:
    """Return (n, V) raw rows (n, V) after making c to c': another value, or the distance of the bins' middles farther.

    Clipped to the declared ranges and rounded where values are whole.
    """
    return _substituted(items, rows, *(np.tile(np.array(itemset), (len(rows), 1)) for itemset in (before, after)))


def _substituted(items: Items, rows: Array, before: Integers, after: Integers) -> Array:
    """Return the same, with c and c' (n, w) for each row."""
    result, index, domain = rows.copy(), np.arange(len(rows)), items.schema.domain
    for c, target in zip(before.T, after.T, strict=True):
        v = items.feature[c]
        shifted = np.clip(result[index, v] + items.value[target] - items.value[c], domain.lower[v], domain.upper[v])
        shifted = np.where(domain.integer[v], np.rint(shifted), shifted)
        result[index, v] = np.where(items.binned[c], shifted, items.value[target])
    return result


def _changes(items: Items, sets: Sequence[Itemset], met: Booleans, max_pairs: int) -> list[tuple[Itemset, Itemset]]:
    """Return at most `max_pairs` pairs (c, c') on the same features, all changed: those whose c is met by most factuals (n, S)."""
    same_features = defaultdict(list)
    for s, itemset in enumerate(sets):
        same_features[tuple(items.feature[list(itemset)])].append(s)
    pairs = []
    for members in same_features.values():
        table = np.array([sets[s] for s in members])
        all_differ = (table[:, None, :] != table[None, :, :]).all(axis=2)
        pairs += [(members[i], members[j]) for i, j in zip(*np.nonzero(all_differ), strict=True)]
    factuals = met.sum(axis=0)
    pairs = [pair for pair in sorted(pairs, key=lambda pair: -factuals[pair[0]]) if factuals[pair[0]]]
    return [(sets[c], sets[target]) for c, target in pairs[:max_pairs]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ground:
    """All rules (q, p): a subgroup and a change. meets_q: (Q, n).   meets_c: (P, n).   cost: (P, n), infinite where it does not
    help.

    fits: (P, Q) q and c name different features.   worth: (P, n) gain of helping a row.   wrong: see `Rules`.
    """

    meets_q: Booleans
    meets_c: Booleans
    cost: np.ndarray
    fits: Booleans
    worth: np.ndarray
    wrong: float

    @classmethod
    def of(
        cls, space: FeatureSpace, items: Items, factuals: Array, positive: Positive, groups: Sequence[Itemset],
        changes: Sequence[tuple[Itemset, Itemset]], wrong: float,
    ) -> _Ground:
        """Decide every factual after every change whose condition it meets, in batches."""
        holds = items.hold(factuals)
        meets_c = meets(holds, [before for before, _ in changes]).T
        cost = np.full(meets_c.shape, np.inf, dtype=np.float32)
        for width in {len(before) for before, _ in changes}:
            index = np.array([p for p, (before, _) in enumerate(changes) if len(before) == width])
            before, after = (np.array([changes[p][side] for p in index]) for side in (0, 1))
            for k, i in _batches(meets_c[index]):
                rows = _substituted(items, factuals[i], before[k], after[k])
                good = accepted(space, positive, rows)
                cost[index[k[good]], i[good]] = distance(space.points(factuals[i[good]]), space.points(rows[good]))
        worth = np.where(np.isfinite(cost), 1 - cost / (2 * space.largest_cost), 0.0).astype(np.float32)
        names_q, names_c = (_names(items, sets) for sets in (groups, [before for before, _ in changes]))
        return cls(
            meets_q=meets(holds, groups).T, meets_c=meets_c, cost=cost, fits=(names_c @ names_q.T) == 0, worth=worth, wrong=wrong
        )

    def helped(self, p: int) -> Booleans:
        return np.asarray(np.isfinite(self.cost[p]))

    def search(self, max_rules: int) -> list[tuple[int, int]]:
        """Add the rule that gains most; if none gains, delete the rule whose removal gains most; end if neither gains."""
        chosen: list[tuple[int, int]] = []
        while True:  # every step raises the value, so no set recurs
            value = self._value(chosen)
            gain, rule = self._best(self._row_gains(chosen)) if len(chosen) < max_rules else (0.0, (0, 0))
            if gain > MIN_GAIN and self._value([*chosen, rule]) > value:
                chosen.append(rule)
                continue
            without = [self._value(chosen[:r] + chosen[r + 1 :]) for r in range(len(chosen))]
            if not without or max(without) <= value + MIN_GAIN:
                return chosen
            del chosen[int(np.argmax(without))]

    def _row_gains(self, chosen: Sequence[tuple[int, int]]) -> Array:
        """Return (n,) each row's gain by the best of the chosen rules."""
        parts = [self.meets_q[q] * self.worth[p] for q, p in chosen]
        return np.asarray(np.max([np.zeros(self.meets_q.shape[1]), *parts], axis=0))

    def _value(self, chosen: Sequence[tuple[int, int]]) -> float:
        missed = sum(int((self.meets_q[q] & self.meets_c[p] & ~self.helped(p)).sum()) for q, p in chosen)
        return float(self._row_gains(chosen).sum()) - self.wrong * missed

    def _best(self, earned: Array) -> tuple[float, tuple[int, int]]:
        """Return the rule that gains most over `earned`, and its gain: one matrix product for all rules of many changes."""
        best, rule = 0.0, (0, 0)
        met = self.meets_q.T.astype(np.float32)
        size = max(1, (1 << 24) // met.shape[1])
        for start in range(0, len(self.cost), size):
            part = slice(start, start + size)
            gain = np.maximum(self.worth[part] - earned.astype(np.float32), 0)
            gain -= np.float32(self.wrong) * (self.meets_c[part] & ~np.isfinite(self.cost[part]))
            gains = np.where(self.fits[part], gain @ met, -np.inf)
            p, q = np.unravel_index(int(gains.argmax()), gains.shape)
            if gains[p, q] > best:
                best, rule = float(gains[p, q]), (int(q), start + int(p))
        return best, rule


def _batches(met: Booleans) -> Iterator[tuple[Integers, Integers]]:
    """Yield batches of (change, row) pairs for which met (P, n) is True."""
    for start in range(0, len(met), max(1, ROWS // met.shape[1])):
        k, i = np.nonzero(met[start : start + max(1, ROWS // met.shape[1])])
        if len(k):
            yield k + start, i


def _names(items: Items, sets: Sequence[Itemset]) -> np.ndarray:
    """Return (S, V) with 1 where a set names a feature."""
    result = np.zeros((len(sets), len(items.schema.features)), dtype=np.float32)
    for s, itemset in enumerate(sets):
        result[s, items.feature[list(itemset)]] = 1
    return result


def _words(items: Items, group: Itemset, before: Itemset, after: Itemset) -> str:
    conditions = " and ".join(items.words(item) for item in (*group, *before))
    return f"if {conditions} then {', '.join(items.words(item) for item in after)}"


# Itemsets: an item is "feature v takes this value" or, for numbers of many values, "lies in this bin"
# Reference: Agrawal and Srikant (1994); AReS, section 3 (candidate sets)


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """I items. feature: (I,).   low, high: (I,) values that it holds for, equal for a single value; a top bin holds its end too.

    value: (I,) the single value, or the bin's middle.   binned: (I,) it is a bin.   last: (I,) it is the top bin of its feature.
    """

    schema: Schema
    feature: Integers
    low: Array
    high: Array
    binned: Booleans
    last: Booleans

    @classmethod
    def of(cls, schema: Schema, raw: Array, bins: int) -> Items:
        """Return the items of rows (N, V): numbers of more than `bins` values are cut into `bins` equal parts, others kept."""
        feature, low, high, binned, last = [], [], [], [], []
        for v, spec in enumerate(schema.features):
            values = np.unique(raw[:, v])
            is_cut = spec.numeric and len(values) > bins
            edges = np.linspace(values[0], values[-1], bins + 1)
            begin, end = (edges[:-1], edges[1:]) if is_cut else (values, values)
            feature.append(np.full(len(begin), v))
            low.append(begin)
            high.append(end)
            binned.append(np.full(len(begin), is_cut))
            last.append(np.arange(len(begin)) == len(begin) - 1)
        return cls(
            schema=schema, feature=np.concatenate(feature), low=np.concatenate(low), high=np.concatenate(high),
            binned=np.concatenate(binned), last=np.concatenate(last),
        )

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def value(self) -> Array:
        return (self.low + self.high) / 2

    def hold(self, rows: Array) -> Booleans:
        """Return (n, I) True where an item holds for a raw row (n, V)."""
        x = rows[:, self.feature]
        holds = (x >= self.low) & np.where(self.binned & ~self.last, x < self.high, x <= self.high)
        return np.asarray(holds)

    def words(self, item: int) -> str:
        """Return "age in 20 .. 25" or "sex = F"."""
        feature = self.schema.features[self.feature[item]]
        if self.binned[item]:
            return f"{feature.name} in {self.low[item]:.4g} .. {self.high[item]:.4g}"
        return f"{feature.name} = {feature.word(self.low[item])}"


def frequent(items: Items, raw: Array, support: float, width: int, allowed: Booleans) -> list[Itemset]:
    """Return all sets of at most `width` allowed (I,) items, of different features, that hold for this share of the rows (N, V).

    Sets are grown level by level (apriori): one is extended by an item of a later feature, and all extensions of a level are
    counted in one matrix product.
    """
    min_count = support * len(raw) - 1e-9
    kept = np.flatnonzero(allowed)
    level: list[Itemset] = [()]
    result: list[Itemset] = []
    for _ in range(width):
        counts = _extensions(items, raw, level, kept)
        last = np.array([items.feature[itemset[-1]] if itemset else -1 for itemset in level])
        later = items.feature[kept][None, :] > last[:, None]
        level = [(*level[s], int(kept[i])) for s, i in zip(*np.nonzero((counts >= min_count) & later), strict=True)]
        result += level
        if not level:
            break
    return result


def _extensions(items: Items, raw: Array, sets: Sequence[Itemset], kept: Integers) -> Array:
    """Return (S, K) the number of rows for which each set holds together with each kept item (K,)."""
    counts = np.zeros((len(sets), len(kept)))
    for start in range(0, len(raw), ROWS):
        held = items.hold(raw[start : start + ROWS])
        counts += meets(held, sets).T.astype(np.float32) @ held[:, kept].astype(np.float32)
    return counts


def meets(held: Booleans, sets: Sequence[Itemset]) -> Booleans:
    """Return (n, S) True where a set holds for a row, given the rows' items (n, I). Sets of one call may differ in size."""
    padded = np.column_stack([held, np.ones(len(held), dtype=bool)])  # the extra item, always true, fills short sets
    width = max((len(itemset) for itemset in sets), default=0)
    result = np.ones((len(held), len(sets)), dtype=bool)
    for w in range(width):
        result &= padded[:, [itemset[w] if w < len(itemset) else -1 for itemset in sets]]
    return result
