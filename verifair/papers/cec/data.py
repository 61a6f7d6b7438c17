"""The CEC paper's four datasets as people in folds, and the measurements of a decider on a fold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from fairlearn.metrics import demographic_parity_difference, equalized_odds_difference
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from encoders.arrays import Integers
from verifair import datasets
from verifair.datasets import Dataset
from verifair.systems.cec.explanations import explanations, regimes
from verifair.systems.cec.matching import Reference, match_within
from verifair.systems.cec.measures import triviality
from verifair.systems.cec.people import People, people_of
from verifair.systems.cec.training import ColumnRoles, TrainedDecider, audit_decider
from verifair.training.onnx_writer import save_onnx

SENSITIVE = {"german": "sex", "synthetic": "group", "adult": "sex", "hmda": "race"}
"""The paper's protected attributes; the synthetic one is no input of the network."""
SOURCES = {"german": "german-years"}
"""Names of the paper's datasets here, if they differ: the paper's merit of German has the age in years."""
FOLDS = 5
ENCODINGS = ("one-hot, minmax", "one-hot, standardised", "codes, minmax", "codes, standardised")
"""Input encodings that the paper may have used; the first is ours."""
LOWER = (0.2, 0.3, 0.4)
"""Other thresholds for the share of regime B: the paper's is not known, and its shares suggest a lower one than 0.5."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CecData:
    """A dataset as people.   columns: of merit, of numbers, and of the sensitive feature."""

    name: str
    data: Dataset
    people: People
    columns: ColumnRoles

    @classmethod
    def load(cls, name: str, path: Path | None = None) -> CecData:
        """Return one of `SENSITIVE`. path: of the file of hmda, which is not shipped."""
        data = datasets.load(SOURCES.get(name, name), path)
        sensitive = SENSITIVE[name]
        inputs = [feature.name for feature in data.schema.features]
        columns = ColumnRoles.of(data.schema, [sensitive] if sensitive in inputs else [])
        return cls(name=name, data=data, people=people_of(data.schema, data.frame, sensitive), columns=columns)

    def splits(self) -> Iterator[tuple[Integers, Integers]]:
        """Return five pairs (rows to train on, rows to test on), stratified by label and group, seed 0."""
        cell = self.people.labels * len(self.people.names) + self.people.groups
        yield from StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(cell, cell)

    def encoded(self, kind: str) -> CecData:
        """Return the same people with other inputs, one of ENCODINGS: a category as the number of its code, or every column
        standardised."""
        schema = self.data.schema
        x, columns = self.people.x, self.columns
        if kind.startswith("codes"):
            sensitive = [v for v, feature in enumerate(schema.features) if feature.name == SENSITIVE[self.name]]
            numbers = [v for v, feature in enumerate(schema.features) if feature.numeric]
            merit = [v for v, feature in enumerate(schema.features) if feature.merit]
            x = schema.raw(self.data.frame)
            columns = ColumnRoles(merit=np.array(merit), numbers=np.array(numbers), sensitive=np.array(sensitive))
        scaler = StandardScaler() if kind.endswith("standardised") else MinMaxScaler()
        return replace(self, people=self.people.fed(scaler.fit_transform(x)), columns=columns)

    def folds(self) -> Iterator[tuple[People, People]]:
        """Yield the splits as (training people, test people)."""
        for train, test in self.splits():
            yield self.people.take(train), self.people.take(test)


def measured(decider: TrainedDecider, columns: ColumnRoles, train: People, test: People) -> dict[str, Any]:
    """Return utility, outcome and procedure on the test people; matches and baselines come from the training people.

    CEC within, PFR within, B within: the same for pairs within one group.   variance: of the score; a constant model has none, and
    its AUC is 0.5.   silent: share without any attribution.   on merit: share of all attribution, in absolute value, that merit
    has.
    """
    decision, score = decider.decide(test), decider.score(test)
    reference = Reference.of(train, columns.merit)
    audit = audit_decider(decider, reference, test)
    inner = audit_decider(decider, reference, test, matches=match_within(reference, test))
    visible = decider.seen(test)
    baseline = Reference.of(decider.seen(train), columns.merit).baseline(visible)
    g = np.abs(explanations(decider.network, visible.x, baseline))[audit.individual]
    fair = {"y_true": test.labels, "y_pred": decision, "sensitive_features": test.groups}
    return {
        "F1": f1_score(test.labels, decision), "AUC": roc_auc_score(test.labels, score),
        "accuracy": (decision == test.labels).mean(), "variance": score.var(), "positive": decision.mean(),
        "EO gap": equalized_odds_difference(**fair), "SP gap": demographic_parity_difference(**fair),
        "CEC": audit.score.mean(), "PFR": (~audit.same_decision).mean(), "CEC within": inner.score.mean(),
        "PFR within": (~inner.same_decision).mean(), "B within": (inner.regime == "B").mean(),
        **{regime: (audit.regime == regime).mean() for regime in "ABCD"},
        **{f"B at {t:g}": (regimes(audit.score, audit.same_decision, t) == "B").mean() for t in LOWER},
        "on merit": g[:, columns.merit].sum() / g.sum(),
        "silent": triviality(audit).silent, "distance": np.median(audit.matches.distance),
        "ties": np.median(audit.matches.ties), "notes": "; ".join(decider.notes),
    }


def keep(decider: TrainedDecider, case: CecData, path: Path, fold: int) -> None:
    """Write the decider's network as PATH.onnx with PATH.toml, for the verification engine. DIR's network takes repaired inputs."""
    weights = tuple((layer.weight.astype(np.float32), layer.bias.astype(np.float32)) for layer in decider.network.layers)
    metadata = {"dataset": case.name, "method": decider.method, "fold": str(fold), "sensitive": SENSITIVE[case.name]}
    path.parent.mkdir(parents=True, exist_ok=True)
    case.data.schema.save(path.with_suffix(".toml"))
    save_onnx(path.with_suffix(".onnx"), weights, metadata)
