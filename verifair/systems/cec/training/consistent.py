"""`verifair train --method cec`: the people that it compares, and measurements of the trained network.

The network is one of `verifair.training`, on the same rows and by the same loop; only the objective (`loss`) is CEC's. Importing
this does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Unpack

from encoders.network import Network
from verifair.checker.report import Progress
from verifair.datasets import Dataset
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import audit, control
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.measures import Triviality, triviality
from verifair.systems.cec.people import People, merit_columns, people_of
from verifair.systems.cec.settings import CecSettings
from verifair.systems.cec.training.settings import CecTrainingSettings, ConsistencyTerms
from verifair.training.measure import TrainingReport, network_of
from verifair.training.settings import Choices
from verifair.training.trainer import TrainedModel, TrainingTask, require_torch, two_classes


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingPeople:
    """reference: the training people.   matches: of these among themselves.   held_out: the test people.   tau: farthest match."""

    reference: Reference
    matches: Matches
    held_out: People
    tau: float | None

    @classmethod
    def of(cls, schema: Schema, dataset: Dataset, settings: CecTrainingSettings) -> TrainingPeople:
        """Match the people before the training, so that errors come first.

        Raises SchemaError and DataError: no merit, an unknown sensitive column, one group, a group that lacks a label, and
        nobody within tau, be it in training or held out.
        """
        assert settings.sensitive is not None
        columns, tau = merit_columns(schema), settings.consistency.tau
        people = people_of(schema, dataset.train, settings.sensitive)
        reference = Reference.of(people, columns)
        held_out = people_of(schema, dataset.test, settings.sensitive, names=people.names)
        match(reference, held_out, tau=tau)
        return cls(reference=reference, matches=match(reference, people, tau=tau), held_out=held_out, tau=tau)


@dataclass(frozen=True, kw_only=True)
class Consistent:
    """Measurements on the held-out rows; a low score has value only if the model still decides.

    cec: mean score.   excess: over the mean score within the own group.   flips: prediction flip rate.   hidden: share in regime B,
    at the default threshold.   matched: share of pairs with a counterpart.   variance: of p(1 | x).   positive: share predicted
    positive.   auc: of p(1 | x).   silent: share of people without any attribution.
    """

    cec: float
    excess: float
    flips: float
    hidden: float
    matched: float
    variance: float
    positive: float
    auc: float
    silent: float

    @classmethod
    def of(cls, network: Network, people: TrainingPeople) -> Consistent:
        """Measure with the exact path integral."""
        settings = CecSettings(tau=people.tau)
        pairs = audit(network, people.reference, people.held_out, settings)
        inner = control(network, people.reference, pairs, settings)
        trivial = triviality(pairs)
        return cls(
            cec=float(pairs.score.mean()),
            excess=float(pairs.score.mean() - inner.score.mean()),
            flips=float((~pairs.same_decision).mean()),
            hidden=float((pairs.regime == "B").mean()),
            matched=pairs.matches.coverage,
            variance=trivial.variance,
            positive=trivial.positive,
            auc=trivial.auc,
            silent=trivial.silent,
        )

    @property
    def trivial(self) -> Triviality:
        """Measures of a model that hardly decides."""
        return Triviality(variance=self.variance, positive=self.positive, auc=self.auc, silent=self.silent)


@dataclass(frozen=True, kw_only=True)
class ConsistencyReport(TrainingReport):
    """consistency: of the network.   plain: of one trained with the same draws for prediction alone."""

    consistency: Consistent
    plain: Consistent


def train(
    dataset: Dataset, *, sensitive: str | None = None, consistency: ConsistencyTerms | None = None,
    progress: Progress | None = None, **choices: Unpack[Choices],
) -> TrainedModel:
    """Train a network as `verifair.training.train` does, by CEC's objective, with `auc_loss` above floors; its report is a
    `ConsistencyReport`.

    sensitive: any column of the dataset's frame, also one that is no input. Raises the same errors, and those of
    `TrainingPeople.of`.
    """
    require_torch()
    schema = two_classes(dataset)
    settings = CecTrainingSettings.of(schema, sensitive=sensitive, consistency=consistency or ConsistencyTerms(), **choices)
    task = TrainingTask.of(dataset, schema, settings)
    compared = TrainingPeople.of(schema, dataset, settings)

    from verifair.systems.cec.training.floors import fit_above_floors  # these import torch
    from verifair.systems.cec.training.loss import CecObjective
    from verifair.training.objectives import CrossEntropy

    prediction = CrossEntropy(task.rows.labels, class_weight=settings.class_weight)
    terms, reference = settings.consistency, compared.reference
    if terms.auc_loss is None:
        within = match_within(reference, reference.people, tau=terms.tau) if terms.lambda_excess else None
        model = task.train(CecObjective(prediction, reference, compared.matches, terms, within), progress)
    else:
        people, columns = reference.people, reference.columns
        model = task.measured(*fit_above_floors(
            people, columns, settings, terms, class_weight=settings.class_weight, progress=progress,
        ))
    plain = task.train(prediction)  # takes a fifth of the time, and shows the effect of the fairness term
    plain_scores, scores = (Consistent.of(network_of(trained.weights), compared) for trained in (plain, model))
    return replace(model, report=ConsistencyReport(**vars(model.report), consistency=scores, plain=plain_scores))
