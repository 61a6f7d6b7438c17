"""The CST paper's audits, ready to run: tables, stated causal models, deciders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from encoders.arrays import Array
from verifair import datasets
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.mechanisms import Mechanism, Spec
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import Decider, LinearRule, Recorded
from verifair.systems.cst.estimator import SituationTesting


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedQuestion:
    """frame: the table.   decider: recorded decisions, and the rule for counterfactuals.   do: each is tested alone."""

    frame: pd.DataFrame
    model: CausalModel
    decider: Decider
    do: dict[str, Any]
    attributes: tuple[str, ...] | None

    def estimator(
        self, *, do: dict[str, Any] | None = None, attributes: Sequence[str] | None = None, **settings: Any
    ) -> SituationTesting:
        """Return the estimator, not yet fitted."""
        names = self.attributes if attributes is None else tuple(attributes)
        return SituationTesting(self.model, self.decider, do=self.do if do is None else do, attributes=names, **settings)


def audit(name: str, frame: pd.DataFrame) -> PublishedQuestion:
    """Return the question about loan or law_school, with its shipped causal model."""
    file = causal_file.load(datasets.causal_path(name))
    decision, do = file.decision, file.situation.do
    assert decision.weights
    assert decision.column
    assert do
    rule = LinearRule(weights=decision.weights, above=decision.above, at_least=decision.at_least)
    decider = Recorded(column=decision.column, positive=decision.positive, counterfactual=rule)
    return PublishedQuestion(
        frame=frame, model=CausalModel(nodes=file.nodes), decider=decider, do=dict(do), attributes=file.situation.attributes
    )


def authors_loan(folder: Path) -> PublishedQuestion:
    """LoanApplication_v2: 4,993 applicants. folder: VERIFAIR_DATA."""
    return audit("loan", pd.read_csv(folder / "cst" / "LoanApplication_v2.csv.gz"))


@dataclass(frozen=True, kw_only=True, eq=False)
class OfRounded:
    """A mechanism that is fitted to the rounded column, and takes a row's noise from it: the authors' equation of LSAT."""

    mechanism: Spec

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> Mechanism:
        return _OfRounded(fitted=self.mechanism.fit(parents, child.round(), seed=seed))


@dataclass(frozen=True, kw_only=True, eq=False)
class _OfRounded(Mechanism):
    fitted: Mechanism

    def noise(self, parents: pd.DataFrame, child: pd.Series, draws: Draws) -> Array:
        return self.fitted.noise(parents, child.round(), draws)

    def value(self, parents: pd.DataFrame, noise: Array) -> Any:
        return self.fitted.value(parents, noise)

    def equation(self, node: str) -> str:
        return self.fitted.equation(f"rounded {node}")


def law_school(folder: Path) -> PublishedQuestion:
    """21,790 applicants. folder: VERIFAIR_DATA.

    As the authors: people are compared by the LSAT as it stands in the file, its equation is that of the rounded one.
    """
    base = audit("law_school", datasets.law_school(folder / "tabular" / "law_school.csv.gz").frame)
    frame = base.frame.assign(LSAT=base.frame["LSAT-unrounded"])
    nodes = tuple(
        replace(node, mechanism=OfRounded(mechanism=node.mechanism)) if node.name == "LSAT" else node for node in base.model.nodes
    )
    return replace(base, frame=frame, model=CausalModel(nodes=nodes))


def law_school_jointly(folder: Path) -> PublishedQuestion:
    """The authors' intersectional test: one attribute, 1 for nonwhite women, whose equations leave out sex and race themselves.

    Their test group is everybody else, not only white men. (`intersectional=True` asks something else: what if she were neither?)
    """
    law = law_school(folder)
    frame = law.frame.assign(both=law.frame["female"] * law.frame["nonwhite"])
    nodes = [Node(name="both")]
    nodes += [replace(law.model.by_name[name], parents=("both",)) for name in law.attributes or ()]
    return replace(law, frame=frame, model=CausalModel(nodes=tuple(nodes)), do={"both": 0})
