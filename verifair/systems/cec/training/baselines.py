"""One method trained on people: the CEC paper's six baselines and its own, on the same architecture and by the same loop.

One more is ours: `merit-only` is the unconstrained network on the columns of merit alone. Counterparts agree in merit alone, so
a network that sees merit alone explains them alike by construction. CEC training should be measured against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from encoders.arrays import Array, Integers
from encoders.network import Network
from verifair.errors import DataError, TrainingError, require
from verifair.schema.schema import Schema
from verifair.systems.cec.matching import Reference, match, match_within
from verifair.systems.cec.people import People, merit_columns
from verifair.systems.cec.training.decider import TrainedDecider
from verifair.systems.cec.training.repair import Repair
from verifair.systems.cec.training.settings import CEC_LOOP, EXCESS_TERMS, ConsistencyTerms
from verifair.training.measure import network_of
from verifair.training.settings import Loop

if TYPE_CHECKING:
    from verifair.training.objectives import Objective
@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnRoles:
    """Columns by role.   merit: (F,) make people comparable.   numbers: (C,) are repaired by DIR.   sensitive: (S,) are the group
    itself."""

    merit: Integers
    numbers: Integers
    sensitive: Integers

    @classmethod
    def of(cls, schema: Schema, sensitive: Sequence[str] = ()) -> ColumnRoles:
        """Find the columns. sensitive: features, if the network takes them. Raises SchemaError for unknown ones, or no merit."""
        domain, hidden = schema.domain, [schema.index(name) for name in sensitive]
        spans = [np.arange(start, start + width) for start, width in zip(domain.start, domain.width, strict=True)]
        numbers = [spans[v] for v, feature in enumerate(schema.features) if feature.numeric and v not in hidden]
        empty = np.zeros(0, dtype=np.int64)
        return cls(
            merit=merit_columns(schema),
            numbers=np.concatenate([empty, *numbers]),
            sensitive=np.concatenate([empty, *(spans[v] for v in hidden)]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """The data and settings of a training.   consistency: weights of "cec" and "excess"."""

    people: People
    columns: ColumnRoles
    loop: Loop
    consistency: ConsistencyTerms


def train_decider(
    method: str, people: People, columns: ColumnRoles, *, loop: Loop = CEC_LOOP, consistency: ConsistencyTerms | None = None,
) -> TrainedDecider:
    """Train a method of METHODS on these people.

    consistency: weights of "cec" and "excess".   The same seed, machine and torch give the same decider.
    Raises TrainingError for an unknown method, DataError where a group lacks a label, MissingPackage without torch or fairlearn.
    """
    if method not in METHODS:
        raise TrainingError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    _check(method, people)
    terms = consistency or (EXCESS_TERMS if method == "excess" else ConsistencyTerms())
    order = Order(people=people, columns=columns, loop=loop, consistency=terms)
    return METHODS[method](order)


def _unconstrained(order: Order) -> TrainedDecider:
    return TrainedDecider(method="unconstrained", network=_fit_plain(order.people, order.loop))


def _merit_only(order: Order) -> TrainedDecider:
    """Train with all columns but merit at 0, and then set their weights to 0: the network takes all columns and uses merit
    alone."""
    people = order.people
    is_merit = np.isin(np.arange(people.x.shape[1]), order.columns.merit)
    network = _fit_plain(people.fed(people.x * is_merit), order.loop)
    first, *rest = network.layers
    return TrainedDecider(
        method="merit-only", network=replace(network, layers=(replace(first, weight=first.weight * is_merit), *rest), rounding=None)
    )


def _dir(order: Order) -> TrainedDecider:
    repair = Repair.of(order.people, order.columns.numbers, order.columns.sensitive)
    return TrainedDecider(method="dir", network=_fit_plain(repair.apply(order.people), order.loop), repair=repair)


def _hardt(order: Order) -> TrainedDecider:
    from verifair.systems.cec.training.by_fairlearn import equalized_odds_rule  # imports fairlearn

    network = _fit_plain(order.people, order.loop)
    return TrainedDecider(method="hardt", network=network, rule=equalized_odds_rule(network, order.people))


def _agarwal(order: Order) -> TrainedDecider:
    from verifair.systems.cec.training.by_fairlearn import ROUNDS, reduce  # imports fairlearn
    from verifair.training.objectives import CrossEntropy

    def train(x: Array, labels: Integers, weights: Array) -> Network:
        return _fit_network(x, order.loop, CrossEntropy(labels, weights=weights))

    mixture = reduce(order.people, train)
    note = f"{len(mixture.networks)} networks of {mixture.trainings} trained in {ROUNDS} rounds"
    return TrainedDecider(method="agarwal", network=mixture.expected, rule=mixture.rule(), notes=(note,))


def _adversarial(order: Order) -> TrainedDecider:
    from verifair.systems.cec.training.objectives import Adversarial  # imports torch

    return TrainedDecider(method="adversarial", network=_fit_network(order.people.x, order.loop, Adversarial(order.people)))


def _lagrangian(order: Order) -> TrainedDecider:
    from verifair.systems.cec.training.objectives import Lagrangian  # imports torch

    return TrainedDecider(method="lagrangian", network=_fit_network(order.people.x, order.loop, Lagrangian(order.people)))


def _cec(order: Order) -> TrainedDecider:
    from verifair.systems.cec.training.loss import CecObjective  # these import torch
    from verifair.training.objectives import CrossEntropy

    people, terms = order.people, order.consistency
    reference = Reference.of(people, order.columns.merit)
    within = match_within(reference, people, tau=terms.tau) if terms.lambda_excess else None
    objective = CecObjective(CrossEntropy(people.labels), reference, match(reference, people, tau=terms.tau), terms, within)
    return TrainedDecider(method="cec", network=_fit_network(people.x, order.loop, objective))


def _excess(order: Order) -> TrainedDecider:
    """Train by CEC's objective with the excess, above floors (ours)."""
    from verifair.systems.cec.training.floors import fit_above_floors  # imports torch

    weights, _ = fit_above_floors(order.people, order.columns.merit, order.loop, order.consistency)
    return TrainedDecider(method="excess", network=network_of(weights))


OURS = ("merit-only", "excess")
"""Methods that the paper does not have."""
METHODS: dict[str, Callable[[Order], TrainedDecider]] = {
    "unconstrained": _unconstrained, "merit-only": _merit_only, "dir": _dir, "hardt": _hardt, "agarwal": _agarwal,
    "adversarial": _adversarial, "lagrangian": _lagrangian, "cec": _cec, "excess": _excess,
}


def _fit_plain(people: People, loop: Loop) -> Network:
    """Train a network for prediction alone."""
    from verifair.training.objectives import CrossEntropy  # imports torch

    return _fit_network(people.x, loop, CrossEntropy(people.labels))


def _fit_network(x: Array, loop: Loop, objective: Objective) -> Network:
    from verifair.training.fit import fit  # imports torch

    return network_of(fit(x.astype(np.float32), loop, objective)[0])


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
        require(package, extra, method)
