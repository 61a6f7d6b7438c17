"""The CST paper's audits, ready to run: tables, stated causal models, who decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from verifair import datasets
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import Decider, LinearRule, Recorded
from verifair.systems.cst.estimator import SituationTesting


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """frame: the table.   decider: recorded decisions, and the rule for counterfactuals.   do: each is tested alone."""

    frame: pd.DataFrame
    model: CausalModel
    decider: Decider
    do: dict[str, Any]
    attributes: tuple[str, ...] | None

    def estimator(
        self, *, do: dict[str, Any] | None = None, attributes: Sequence[str] | None = None, **settings: Any
    ) -> SituationTesting:
        """Not yet fitted."""
        chosen = self.attributes if attributes is None else tuple(attributes)
        return SituationTesting(self.model, self.decider, do=self.do if do is None else do, attributes=chosen, **settings)


def audit(name: str, frame: pd.DataFrame) -> Audit:
    """Of loan or law_school, by the causal model that is shipped for it."""
    file = causal_file.load(datasets.causal_path(name))
    decision, do = file.decision, file.situation.do
    assert decision.weights
    assert decision.column
    assert do
    rule = LinearRule(weights=decision.weights, above=decision.above, at_least=decision.at_least)
    decider = Recorded(column=decision.column, positive=decision.positive, counterfactual=rule)
    return Audit(
        frame=frame, model=CausalModel(nodes=file.nodes), decider=decider, do=dict(do), attributes=file.situation.attributes
    )


def authors_loan(folder: Path) -> Audit:
    """LoanApplication_v2: 4,993 applicants. folder: VERIFAIR_DATA."""
    return audit("loan", pd.read_csv(folder / "cst" / "LoanApplication_v2.csv.gz"))


def law_school(folder: Path) -> Audit:
    """21,790 applicants. folder: VERIFAIR_DATA."""
    return audit("law_school", datasets.law_school(folder / "tabular" / "law_school.csv.gz").frame)


def law_school_jointly(folder: Path) -> Audit:
    """The authors' intersectional test: one attribute, 1 for nonwhite women, whose equations leave out sex and race themselves.

    Their test group is everybody else, not only white men. (`intersectional=True` asks something else: what if she were neither?)
    """
    law = law_school(folder)
    frame = law.frame.assign(both=law.frame["female"] * law.frame["nonwhite"])
    nodes = [Node(name="both")]
    nodes += [replace(law.model.by_name[name], parents=("both",)) for name in law.attributes or ()]
    return replace(law, frame=frame, model=CausalModel(nodes=tuple(nodes)), do={"both": 0})
