"""One method trained on people: the CEC paper's six baselines and its own, on the same architecture and by the same loop.

One more is ours: `merit-only` is the unconstrained network on the columns of merit alone. Counterparts agree in merit and nothing
else, so a network that sees nothing else explains them alike by its construction: what CEC training should be measured against.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.network import Array, Integers, Network
from verifair.errors import DataError, MissingPackage, TrainingError
from verifair.schema.schema import Schema
from verifair.systems.cec.matching import Reference, match
from verifair.systems.cec.people import People, merit_columns
from verifair.training.baselines.decider import Decider
from verifair.training.baselines.repair import Repair
from verifair.training.measure import network_of
from verifair.training.settings import CEC_LOOP, Consistency, Loop

METHODS = ("unconstrained", "merit-only", "dir", "hardt", "agarwal", "adversarial", "lagrangian", "cec")


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """merit: (F,) what makes people comparable.   numbers: (C,) what DIR repairs.   sensitive: (S,) what tells the group itself."""

    merit: Integers
    numbers: Integers
    sensitive: Integers

    @classmethod
    def of(cls, schema: Schema, sensitive: Sequence[str] = ()) -> Columns:
        """sensitive: the features, if the network takes them. Raises SchemaError for unknown ones, or without any merit."""
        domain, hidden = schema.domain, [schema.index(name) for name in sensitive]
        spans = [np.arange(start, start + width) for start, width in zip(domain.start, domain.width, strict=True)]
        numbers = [spans[v] for v, feature in enumerate(schema.features) if feature.numeric and v not in hidden]
        empty = np.zeros(0, dtype=np.int64)
        return cls(
            merit=merit_columns(schema),
            numbers=np.concatenate([empty, *numbers]),
            sensitive=np.concatenate([empty, *(spans[v] for v in hidden)]),
        )


def train_decider(
    method: str, people: People, columns: Columns, *, loop: Loop = CEC_LOOP, consistency: Consistency | None = None,
    repair_level: float = 1.0,
) -> Decider:  # fmt: skip
    """Train a method of METHODS on these people.

    consistency: weights of "cec".   repair_level: of "dir".   The same seed, machine and torch give the same decider.
    Raises TrainingError for an unknown method, DataError where a group lacks a label, MissingPackage without torch or fairlearn.
    """
    if method not in METHODS:
        raise TrainingError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    _check(method, people)
    if method == "agarwal":
        return _agarwal(people, loop)
    repair = Repair.of(people, columns.numbers, columns.sensitive, repair_level) if method == "dir" else None
    seen = people if repair is None else repair.apply(people)
    if method == "merit-only":
        return Decider(method=method, network=_merit_only(people, columns, loop))
    network = _fitted(method, seen, columns, loop, consistency or Consistency())
    if method == "hardt":
        from verifair.training.baselines.hardt import equalized_odds_rule  # imports fairlearn

        return Decider(method=method, network=network, rule=equalized_odds_rule(network, people))
    return Decider(method=method, network=network, repair=repair)


def _fitted(method: str, people: People, columns: Columns, loop: Loop, consistency: Consistency) -> Network:
    from verifair.training.baselines.adversarial import Adversarial  # these import torch
    from verifair.training.baselines.lagrangian import Lagrangian
    from verifair.training.cec import Cec
    from verifair.training.fit import fit
    from verifair.training.objectives import CrossEntropy, Objective

    objective: Objective = CrossEntropy(people.labels)
    match method:
        case "adversarial":
            objective = Adversarial(people)
        case "lagrangian":
            objective = Lagrangian(people)
        case "cec":
            reference = Reference.of(people, columns.merit)
            matches = match(reference, people, tau=consistency.tau)
            objective = Cec(CrossEntropy(people.labels), reference, matches, consistency)
    weights, _ = fit(people.x.astype(np.float32), loop, objective)
    return network_of(weights)


def _merit_only(people: People, columns: Columns, loop: Loop) -> Network:
    """Trained with every other column at 0, whose weights are then 0: it takes all columns and looks at those of merit."""
    from verifair.training.fit import fit  # imports torch
    from verifair.training.objectives import CrossEntropy

    seen = np.isin(np.arange(people.x.shape[1]), columns.merit).astype(np.float32)
    (weight, bias), *above = fit(people.x.astype(np.float32) * seen, loop, CrossEntropy(people.labels))[0]
    return network_of(((weight * seen, bias), *above))


def _agarwal(people: People, loop: Loop) -> Decider:
    from verifair.training.baselines.agarwal import ROUNDS, reduce  # imports fairlearn
    from verifair.training.fit import fit
    from verifair.training.objectives import CrossEntropy

    def train(x: Array, labels: Integers, weights: Array) -> Network:
        return network_of(fit(x.astype(np.float32), loop, CrossEntropy(labels, weights=weights))[0])

    found = reduce(people, train)
    note = f"{len(found.networks)} networks of {found.trainings} trained in {ROUNDS} rounds"
    return Decider(method="agarwal", network=found.expected, rule=found.rule(), notes=(note,))


def _check(method: str, people: People) -> None:
    count = np.zeros((2, len(people.names)), dtype=int)
    np.add.at(count, (people.labels, people.groups), 1)
    if not count.all():
        label, group = np.argwhere(count == 0)[0]
        raise DataError(
            f"group {people.names[group]!r} has no row with the true label {label}, so the groups' error rates cannot be compared; "
            "add rows, or join groups"
        )
    packages = {"torch": "torch", **({"fairlearn": "fairlearn"} if method in ("hardt", "agarwal") else {})}
    for package, extra in packages.items():
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(f'{method} needs {package}, which is not installed; run: pip install "verifair[{extra}]"')
