"""The people of CEC training: those who train, matched among themselves, and those who are held out, matched to them."""

from __future__ import annotations

from dataclasses import dataclass

from encoders.network import Network
from verifair.datasets import Dataset
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import audit
from verifair.systems.cec.matching import Matches, Reference, match
from verifair.systems.cec.measures import Triviality, triviality
from verifair.systems.cec.people import People, merit_columns, people_of
from verifair.training.settings import Settings


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """reference: the training people.   matches: of these among themselves.   held_out: the test people.   tau: farthest match."""

    reference: Reference
    matches: Matches
    held_out: People
    tau: float | None

    @classmethod
    def of(cls, schema: Schema, dataset: Dataset, settings: Settings) -> Explained | None:
        """None unless the method is cec.

        Raises SchemaError and DataError: no merit, an unknown sensitive column, one group, a group that lacks a label, and
        nobody within tau, be it in training or held out: before the training, so that none is in vain.
        """
        if settings.consistency is None:
            return None
        columns, tau = merit_columns(schema), settings.consistency.tau
        people = people_of(schema, dataset.train, settings.sensitive)
        reference = Reference.of(people, columns)
        held_out = people_of(schema, dataset.test, settings.sensitive, names=people.names)
        match(reference, held_out, tau=tau)
        return cls(reference=reference, matches=match(reference, people, tau=tau), held_out=held_out, tau=tau)


@dataclass(frozen=True, kw_only=True)
class Consistent:
    """What was measured on the held-out rows; a low score is worth something only where the model still decides.

    cec: mean score.   flips: prediction flip rate.   hidden: share in regime B, at the default threshold.   matched: share of
    pairs with a counterpart.   variance: of p(1 | x).   positive: share predicted positive.   auc: of p(1 | x).
    silent: share of people without any attribution.
    """

    cec: float
    flips: float
    hidden: float
    matched: float
    variance: float
    positive: float
    auc: float
    silent: float

    @classmethod
    def of(cls, network: Network, explained: Explained) -> Consistent:
        """Measured with the exact path integral."""
        found = audit(network, explained.reference, explained.held_out, tau=explained.tau)
        trivial = triviality(found)
        return cls(
            cec=float(found.score.mean()),
            flips=float((~found.same_decision).mean()),
            hidden=float((found.regime == "B").mean()),
            matched=found.matches.coverage,
            variance=trivial.variance,
            positive=trivial.positive,
            auc=trivial.auc,
            silent=trivial.silent,
        )

    @property
    def trivial(self) -> Triviality:
        """Whether it decides at all."""
        return Triviality(variance=self.variance, positive=self.positive, auc=self.auc, silent=self.silent)
