"""The independent re-checker of group counterfactuals (FGCE): is no other choice of rows better?

What a file states, of a table of raw rows and a model. A row may become another in one move where every feature changes as
`changes` and the schema's `moves` allow and the two are at most eps apart; over any number of moves it reaches rows. People of a
group are the rows asked about, all decided unfavourably, that reach a row decided favourably; these are the candidates. A candidate
that somebody reaches costs their distance. Distances are Euclidean: numbers and ordered categories on [0, 1] by their declared
range, two categories 0 or 1, others one-hot; computed in float64, and compared within 1e-9 of the limit.
    without a cost limit   the chosen, at most k, cover the share `coverage` of the people at cost `value`, and no k rows do at less
    with one               the chosen cover `value` people at that cost, and no k rows cover more

Decisions are exact. That no k rows cover `target` people follows from a tree of bounds: in a branch where some rows are in and some
out, whatever the multipliers u in [0, 1], at most  sure + sum (1 - u) + the k' largest sums of u over a candidate  are covered; all
sums are of whole numbers below 2^53, so float64 has them exactly.   Imports no search.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from encoders.arrays import Array, Booleans
from encoders.exact.dyadic import exact
from encoders.model import Model
from verifair.checker.certificates.centers import FILE, MOST_ROWS, NEAR, UNIT, CentersCertificate, GroupProof, up_to
from verifair.checker.kind import Kind
from verifair.checker.report import Batches, CheckReport, Rejection
from verifair.checker.words import exactly
from verifair.schema.space import InputSpace

AT_ONCE = 256
MOVED = {"fixed": np.equal, "increase": np.greater_equal, "decrease": np.less_equal}


def check_centers(cert: CentersCertificate, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport:
    """Check a certificate of group counterfactuals."""
    started, count = time.perf_counter(), sum(len(proof.steps) for proof in cert.groups.values())
    flaw = next(cert.misfits(network, schema), None) or _flaw(cert, schema)
    reasons = list(_confirm(cert, network, schema, batches)) if flaw is None else [flaw]
    rejections = [Rejection(proof=None, reason=reason) for reason in reasons]
    return CheckReport.of(rejections, proofs=len(cert.groups), leaves=count, started=started, extent=cert.extent, unit="groups")


def _flaw(cert: CentersCertificate, schema: InputSpace) -> str | None:
    query, count = cert.query, len(cert.rows)
    if set(query.changes) != {feature.name for feature in schema.features}:
        return "the query must say of every feature of the schema how it may move"
    if count > MOST_ROWS:
        return f"its table has {count:,} rows, more than the {MOST_ROWS:,} whose graph is closed here"
    if not schema.domain.within(cert.rows).all():
        return "a row of its table lies outside the declared domain"
    if not set(cert.groups) <= set(query.asked) or len(cert.groups) + cert.undecided != len(query.asked):
        return "its groups are not those that were asked about, or left undecided"
    for name, rows in query.asked.items():
        if len(set(rows)) < len(rows) or max(rows, default=0) >= count:
            return f"group {name!r} lists a row twice, or one that the table does not have"
    return None


def _confirm(cert: CentersCertificate, network: Model, schema: InputSpace, batches: Batches) -> Iterator[str]:
    """Yield the flaw of each group whose proof fails."""
    favoured = _favoured(cert.rows, network, schema)
    if favoured is None:
        yield "decisions of a smooth model are not exact: there is no such certificate of one"
        return
    flaw_of = partial(_checked, cert, favoured, _points(cert, schema), _edges(cert, schema))
    yield from (flaw for flaw in batches(flaw_of, zip(cert.groups, strict=True), len(cert.groups)) if flaw is not None)


def _favoured(rows: Array, network: Model, schema: InputSpace) -> Booleans | None:
    """Return (N,) True for rows that are decided favourably, by exact arithmetic; None for a model without exact outputs."""
    judge = schema.judges(network)
    if not judge.piecewise_linear:
        return None
    positive = []
    for start in range(0, len(rows), AT_ONCE):
        logits = judge.forward(exact(schema.domain.encode(rows[start : start + AT_ONCE])))
        margin = logits[:, 0] if judge.outputs == 1 else logits[:, 1] - logits[:, 0]
        positive.append(margin.sign > 0)
    return np.asarray(np.concatenate(positive) == (schema.outcome.good == 1))


def _points(cert: CentersCertificate, schema: InputSpace) -> Array:
    """Return (N, p) coordinates."""
    columns = []
    for v, feature in enumerate(schema.features):
        value, words = cert.rows[:, v], len(feature.categories or ())
        ordered = feature.ordered or cert.query.changes[feature.name] in ("increase", "decrease")
        if words > 2 and not ordered:
            columns.append((value[:, None] == np.arange(words)).astype(np.float64))
            continue
        low, high = feature.range or (0.0, words - 1.0)
        columns.append(((value - low) / (high - low) if high > low else np.zeros(len(value)))[:, None])
    return np.concatenate(columns, axis=1)


def _edges(cert: CentersCertificate, schema: InputSpace) -> np.ndarray:
    """Return (N, N) float32, 1 where the first may become the second in one move."""
    points, limit = _points(cert, schema), up_to(cert.query.eps)
    edges = np.zeros((len(points), len(points)), dtype=np.float32)
    for i, point in enumerate(points):
        ok = np.sqrt(((points - point) ** 2).sum(axis=1)) <= limit
        for v, feature in enumerate(schema.features):
            change, before, after = cert.query.changes[feature.name], cert.rows[i, v], cert.rows[:, v]
            if change != "free":
                ok &= MOVED[change](after, before)
            if change != "fixed" and feature.moves is not None:
                names = feature.categories or ()
                targets = feature.moves.get(names[int(before)])
                ok &= True if targets is None else np.isin(after, [before, *(names.index(name) for name in targets)])
        edges[i] = ok
    return edges


def _checked(cert: CentersCertificate, favoured: Booleans, points: Array, edges: np.ndarray, name: str) -> tuple[int, str | None]:
    flaw = _group_flaw(cert, favoured, points, edges, name)
    return 1, flaw and f"group {name!r}: {flaw}"


def _group_flaw(cert: CentersCertificate, favoured: Booleans, points: Array, edges: np.ndarray, name: str) -> str | None:
    query, proof, candidates = cert.query, cert.groups[name], np.flatnonzero(favoured)
    rows = np.unique(np.array(query.asked[name], dtype=np.int64))
    if favoured[rows].any():
        return "somebody asked about is decided favourably"
    reached = np.zeros((len(rows), len(points)), dtype=bool)
    reached[np.arange(len(rows)), rows] = True
    while True:
        extended = reached | ((reached.astype(np.float32) @ edges) > 0)
        if (extended == reached).all():
            break
        reached = extended
    people = reached[:, candidates].any(axis=1)
    if not people.any():
        return "nobody in it can reach a row that is decided favourably"
    positions, feasible = points[rows[people]], reached[people][:, candidates]
    cost = np.array([np.sqrt(((points[candidates] - point) ** 2).sum(axis=1)) for point in positions])
    cost = np.where(feasible, cost, np.inf)
    chosen = np.array(proof.chosen, dtype=np.int64)
    if len(chosen) > query.k or len(set(proof.chosen)) < len(chosen) or not np.isin(chosen, candidates).all():
        return f"it chooses more than {query.k} rows, or one twice, or one that is not decided favourably"
    limit = proof.value if query.max_cost is None else query.max_cost
    costs = cost[:, np.searchsorted(candidates, chosen)].min(axis=1, initial=np.inf)
    covered = int((costs <= up_to(limit)).sum())
    if query.max_cost is None:
        target = max(int(np.ceil(query.coverage * len(positions) - NEAR)), 1)
        stated, covers = target, up_to(cost) < limit
    else:
        stated, covers = int(proof.value), cost <= up_to(limit)
        target = stated + 1
    if stated != proof.value and query.max_cost is not None:
        return "it states no whole number of people"
    if covered < stated:
        return f"its choice covers {covered} people, not {stated}"
    return _tree_flaw(covers, query.k, target, proof)


def _tree_flaw(covers: Booleans, k: int, target: int, proof: GroupProof) -> str | None:
    """Return why the steps do not show that no k columns of a table (F, C) cover `target` rows, or None."""
    maximal: Booleans = np.asarray(covers.any(axis=0))
    pairs = np.array(proof.contained, dtype=np.int64).reshape(-1, 2)
    if (pairs >= covers.shape[1]).any() or len(np.unique(pairs[:, 0])) < len(pairs) or np.isin(pairs[:, 1], pairs[:, 0]).any():
        return "a candidate that is left out is contained in none that stays"
    if (covers[:, pairs[:, 0]] & ~covers[:, pairs[:, 1]]).any():
        return "a candidate is left out that is not contained in another"
    maximal[pairs[:, 0]] = False
    table, need, one = covers.astype(np.float64), target << UNIT, 1 << UNIT
    branches = [(maximal, np.zeros(len(covers), dtype=bool), k)]
    for number, step in enumerate(proof.steps):
        if not branches or len(step.multipliers) != len(covers):
            return f"step {number} belongs to no branch, or has not one multiplier for each of the {len(covers)} people"
        candidates, covered, left = branches.pop()
        columns = np.flatnonzero(candidates)
        subtable = table[:, columns]
        uncovered = ~covered & subtable.any(axis=1)
        units = np.where(uncovered, np.array(step.multipliers, dtype=np.float64), 0.0)
        sums = units @ subtable
        largest = -np.sort(-sums)[:left] if left else np.empty(0)
        total = int(covered.sum()) * one + int(uncovered.sum()) * one - int(units.sum()) + int(largest.sum())
        if step.split == -1:
            if total >= need:
                return f"step {number} closes a branch that may cover {total / one:.3f}, not fewer than {target}"
            continue
        smallest = int(largest[-1]) if len(largest) == left > 0 else 0
        candidates = candidates.copy()
        candidates[columns[total - np.maximum(smallest - sums, 0) < need]] = False
        if step.split == -2:
            branches.append((candidates, covered, left))
            continue
        if left == 0 or step.split >= len(candidates) or not candidates[step.split]:
            return f"step {number} decides on a candidate that is not open"
        candidates[step.split] = False
        branches += [(candidates, covered, left), (candidates, covered | covers[:, step.split], left - 1)]
    return f"{len(branches)} branches are left open" if branches else None


def _statement(cert: CentersCertificate, schema: InputSpace, network: Model) -> str:
    """Return the file's statement in words."""
    query, parts = cert.query, []
    for name, proof in cert.groups.items():
        costs, counts = f"the largest cost is at least {exactly(proof.value)}", f"at most {proof.value:.0f} people can be covered"
        parts.append(f"{name!r}: {costs if query.max_cost is None else counts}, reached with {len(proof.chosen)} chosen")
    cover = f"cover at least the share {exactly(query.coverage)} of those who can be helped"
    goal = cover if query.max_cost is None else f"cost at most {exactly(query.max_cost)}"
    moves = ", ".join(f"{name} {change}" for name, change in query.changes.items() if change != "free") or "all features free"
    return (
        f"It states: of all choices of at most {query.k} rows of its table of {len(cert.rows):,} that {goal} ({schema.positive}; "
        f"moves of at most {exactly(query.eps)}; {moves}), none is better (costs within 1e-9). "
        f"By the file's own names of the groups: {'; '.join(parts)}."
    )


KIND = Kind(
    format=CentersCertificate.FORMAT, counts="groups", load=CentersCertificate.load, check=check_centers, statement=_statement,
    file=FILE, title="Files of optimal group counterfactuals",
)
