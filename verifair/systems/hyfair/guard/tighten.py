"""A guardrail built from counterexamples: refuse what the certified search finds, until the largest gap left is small enough.

Rules around a cluster say where a network discriminates; they need not cover the one person in the whole domain who is treated
worst. Here every round maximises the probability gap over what is not refused yet, with a proof above and an exact witness below.
Samples around the witness with a gap above the target are told apart from the rows of data by a shallow decision tree, and the
leaves that the samples dominate become rules: short conditions that refuse the witness and few real people.

The first maximisation, before any rule of ours, and the last one, about exactly what is answered in the end, get the same time:
what lies between their bounds is due to the rules. Sound? yes: `upper` is certified, whatever the rules are.
Complete? no: rounds or time may run out first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from encoders.network import Array
from encoders.shares import logistic
from solvers import clock
from solvers.outcome import Budget
from verifair.engine.gap.maximise import MaximumGap, maximise
from verifair.engine.queries import KDiscrimination, ProbabilityGap
from verifair.engine.verdict import Reason
from verifair.errors import QueryError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.refusals import snapped
from verifair.systems.hyfair.explain.rounds import outside
from verifair.systems.hyfair.explain.rules import Rule, high_leaves
from verifair.systems.hyfair.explain.samples import Neighbourhood, severity_of
from verifair.systems.hyfair.search.space import Space

SCALES = ((0.8, 1.0), (0.5, 1.0), (0.8, 0.2), (0.5, 0.2))
"""Of the samples around a witness: chance to keep a value, and size of a step."""
SAMPLES = 1500
ROUNDS = 10
DEPTH = 4
"""Of each round's tree: the most conditions that a rule can have."""
PURITY = 0.3


@dataclass(frozen=True, kw_only=True)
class Step:
    """A round: how many rules there were, and the largest gap outside of them, met and certified."""

    rules: int
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Tightened:
    """rules: snapped, those given first.   bound: the last maximisation, outside of all of them.   steps: round by round.

    The first step is outside of the given rules alone.
    """

    rules: tuple[Rule, ...]
    bound: MaximumGap
    steps: tuple[Step, ...]


def tighten(
    query: KDiscrimination,
    rows: Array,
    target: float,
    *,
    rules: Sequence[Rule] = (),
    seconds: float = 60.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Tightened:
    """Add rules until the certified largest gap between any two protected variants is at most `target`.

    rows: (N, V) raw data, whom the rules should spare.   seconds: for all; a third of them each for the proof before the rounds
    and the one after. Raises QueryError for a target that is no gap, KeyboardInterrupt after Ctrl-C, and SchemaError when nothing
    would be left to answer.
    """
    if not 0 < target < 1:
        raise QueryError(f"target = {target}: a gap between two probabilities lies strictly between 0 and 1")
    end, kept, steps = clock.now() + seconds, tuple(rules), list[Step]()
    proof, each = seconds / 3, seconds / (3 * ROUNDS)
    while True:
        left = end - clock.now() - proof
        last = len(steps) > ROUNDS or (len(steps) > 0 and left < each)
        bound = _bound(query, kept, proof if last or not steps else each, target, seed)
        if bound.reason is Reason.INTERRUPTED:
            raise KeyboardInterrupt  # maximise gives back what it knows; nobody wants the next round
        steps.append(Step(rules=len(kept), lower=bound.lower, upper=bound.upper))
        if progress is not None:
            progress(len(steps), ROUNDS + 2)
        if bound.upper <= target or last:
            return Tightened(rules=kept, bound=bound, steps=tuple(steps))
        if bound.lower > target:
            kept = (*kept, *_refusing(query, kept, _row(query.schema, bound), rows, target, seed + len(steps)))
        else:  # nothing is known that should be refused: look longer
            each *= 3


def _bound(query: KDiscrimination, rules: Sequence[Rule], seconds: float, target: float, seed: int) -> MaximumGap:
    gap = ProbabilityGap(
        network=query.network, schema=outside(query, rules).schema, protected=query.protected, box=query.box, differ="any",
        scale="probability" if logistic(query.network) else "logit",
    )
    return maximise(gap, budget=Budget(seconds=seconds, seed=seed), tolerance=max(1e-6, min(1e-3, target / 20)))


def _row(schema: Schema, bound: MaximumGap) -> Array:
    assert bound.witness is not None, "a positive lower bound has a witness"
    return np.array([schema.raw_value(feature.name, bound.witness.x[feature.name]) for feature in schema.features])


def _refusing(
    query: KDiscrimination, kept: Sequence[Rule], witness: Array, rows: Array, target: float, seed: int
) -> tuple[Rule, ...]:
    """Rules that refuse the witness, and what is like it but unlike the rows."""
    space, rng = Space.of(query), np.random.default_rng(seed)
    gap, near = severity_of(space, "gap"), Neighbourhood.of(space, witness, None)
    drawn = [replace(near, keep=keep, spread=near.spread * size).draw(SAMPLES, rng) for keep, size in SCALES]
    raw = np.concatenate([near.centre[None, :], *drawn])
    high = raw[gap(raw) > target]
    if not len(high):  # float32 may put the witness itself just below
        high = near.centre[None, :]
    spared = rows[gap(rows) <= target] if len(rows) else rows
    return _separated(space, query.schema, high, spared, near.centre, seed)


def _separated(
    space: Space, schema: Schema, high: Array, spared: Array, witness: Array, seed: int
) -> tuple[Rule, ...]:
    """Boxes of a tree between high samples and spared rows, each side weighing the same; the witness's own is always among them.

    Where there are no rows to spare (or the tree cannot split), a box is the samples' bounding box.
    """
    # Rules speak of no protected feature, of the query's or of the schema's: refusing people by one would be discrimination itself.
    columns = [int(v) for v in space.free if not schema.features[v].protected]
    whole = schema.domain.integer
    leaves: list[Rule] = []
    if len(spared):
        raw = np.concatenate([high, spared])
        label = np.arange(len(raw)) < len(high)
        tree = DecisionTreeClassifier(
            max_depth=DEPTH, class_weight={True: len(spared) / len(high), False: 1.0}, min_impurity_decrease=1e-4, random_state=seed
        ).fit(raw[:, columns], label)
        everything = list(high_leaves(tree, columns, whole, 0.0))
        pure = list(high_leaves(tree, columns, whole, PURITY))
        leaves = pure + [rule for rule in everything if rule.contain(witness[None, :])[0]]
        leaves = [rule for k, rule in enumerate(leaves) if rule.conditions and not any(_same(rule, r) for r in leaves[:k])]
    if not any(rule.contain(witness[None, :])[0] for rule in leaves):
        lower, upper = np.full(len(whole), -np.inf), np.full(len(whole), np.inf)
        lower[columns], upper[columns] = high[:, columns].min(axis=0), high[:, columns].max(axis=0)
        leaves.append(Rule(lower=lower, upper=upper))
    try:
        return snapped(leaves, schema)
    except QueryError:
        raise SchemaError(
            "the counterexamples spread over the whole domain: a guardrail for this target would refuse everybody; set a larger "
            "--target"
        ) from None


def _same(one: Rule, other: Rule) -> bool:
    return bool((one.lower == other.lower).all() and (one.upper == other.upper).all())
