"""The five datasets of the FGCE paper, encoded and constrained as in its graphs, from VERIFAIR_DATA (`fgce/` and `tabular/`).

If tables XII to XVI and the authors' public code differ, the code is followed, since its graphs are those of the paper; each loader
names the differences. Only rows named here are dropped; duplicate rows stay separate nodes, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer

from encoders.arrays import Array, Integers
from verifair.datasets import read_table
from verifair.errors import DataError
from verifair.schema.feature import Feature
from verifair.schema.file import Change
from verifair.schema.schema import Schema
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.space import FeatureSpace

SEED, TEST = 482, 0.3
"""random_state and the test part of the paper's split (appendix C); the classifier takes the same seed."""
CONFIDENT = 0.6
Rules = Mapping[str, Change]


@dataclass(frozen=True, kw_only=True, eq=False)
class PaperData:
    """frame: the features (N rows), in the words of the schema.   target: (N,) 1 for what the authors call positive.

    group: (N,) 0 or 1, rows of G0 and G1, called `groups`.   eps: of the paper; see `fgce.graphs` for what it leaves alone.
    continuous: features whose values are bin numbers.
    """

    name: str
    frame: pd.DataFrame
    target: Integers
    schema: Schema
    group: Integers
    groups: tuple[str, str]
    eps: float
    continuous: tuple[str, ...]

    @cached_property
    def space(self) -> FeatureSpace:
        return FeatureSpace.of(self.schema)

    @cached_property
    def raw(self) -> Array:
        """(N, V) rows for a feasibility graph."""
        return np.asarray(self.schema.raw(self.frame))

    @cached_property
    def split(self) -> tuple[Integers, Integers]:
        """Rows of the training and of the test part."""
        train, test = train_test_split(np.arange(len(self.frame)), test_size=TEST, random_state=SEED)
        return train, test


def load(name: str, folder: Path) -> PaperData:
    """Load one of `LOADERS` from the folder that VERIFAIR_DATA names. Raises DataError for another name, or a file that is
    missing."""
    if name not in LOADERS:
        raise DataError(f"the FGCE paper has no dataset {name!r}; use one of {', '.join(LOADERS)}")
    return LOADERS[name](folder)


def classifier(data: PaperData) -> Pipeline:
    """The paper's model, fitted on the training part: logistic regression on points of [0, 1]; it takes frames like data.frame.

    Fitted to the optimum, as the paper's numbers require: at its default tolerance today's scikit-learn stops earlier,
    and leaves 19 factuals in COMPAS's G0 instead of 18, and 9 in Adult's instead of 10.
    """
    points = FunctionTransformer(lambda frame: data.space.points(np.asarray(data.schema.raw(frame))))
    train, _ = data.split
    model = make_pipeline(points, LogisticRegression(random_state=SEED, tol=1e-10, max_iter=10_000))
    return model.fit(data.frame.iloc[train], data.target[train])


def audits(data: PaperData, *, whole: bool = False) -> tuple[Instance, Instance]:
    """Return the instances of the paper's tables, for G0 and G1: false negatives and the candidates that they can reach.

    Factuals are false negatives of the test part; candidates are rows of the test part with probability above `CONFIDENT` (the
    code's default `tp`); paths stay in the group's own subgraph.   whole: candidates are all rows decided positively instead, and
    paths lead through all rows, as the paper's text (and a later version of the code, but for the paths) would have it.
    Nodes are numbers of rows among those of the graph: the group's, or with `whole` all.
    """
    probability = classifier(data).predict_proba(data.frame)[:, 1]
    is_test = np.zeros(len(data.frame), dtype=bool)
    is_test[data.split[1]] = True
    false_negative = (probability <= 0.5) & (data.target == 1) & is_test
    candidate = probability > 0.5 if whole else (probability > CONFIDENT) & is_test
    result: list[Instance] = []
    shared = _graph_and_reach(data, np.arange(len(data.frame))) if whole else None
    for group in (0, 1):
        rows = np.arange(len(data.frame)) if whole else np.flatnonzero(data.group == group)
        graph, reach = shared or _graph_and_reach(data, rows)
        people = false_negative[rows] & (data.group[rows] == group)
        result.append(Instance.of(graph, reach, np.flatnonzero(people), np.flatnonzero(candidate[rows]), group=data.groups[group]))
    return result[0], result[1]


def _graph_and_reach(data: PaperData, rows: Integers) -> tuple[FeasibilityGraph, Reachability]:
    graph = FeasibilityGraph.build(data.space, data.raw[rows], data.eps)
    return graph, Reachability.of(graph)


def student(folder: Path) -> PaperData:
    """Table XII without G1, G2 and G3, which are not in the authors' file (target: 1 where G3 >= 12; the appendix says 10).

    Slip: famsize is numbered GT3 = 0, LE3 = 1, so its way up is towards a smaller family.
    """
    table = read_table(folder / "fgce" / "fgce_student.csv.gz")
    frame = table.drop(columns="target")
    frame["sex"] = frame["sex"].map({0: "F", 1: "M"})
    up = ("age", "famsize", "Medu", "Fedu", "nursery", "health")
    rules = {**_all(up, "increase"), "sex": "fixed"}
    return _data("Student", frame, table["target"], rules, outcomes=("G3 < 12", "G3 >= 12"), eps=3.0)


def compas(folder: Path) -> PaperData:
    """Table XIII, but race fixed and the charge's degree free: the code groups rows by sex and race, and never looks at the degree.

    A degree does not move at the paper's eps anyway: felony and misdemeanor are 1 apart. Target 1: not arrested again.
    """
    table = read_table(folder / "fgce" / "fgce_compas.csv.gz")
    frame = table[["age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]].copy()
    frame["c_charge_degree"] = table["c_charge_degree"].map({0: "felony", 1: "misdemeanor"})
    for name in ("sex", "race"):
        block = [column for column in table.columns if column.startswith(f"{name} = ")]
        frame[name] = table[block].idxmax(axis=1).str.removeprefix(f"{name} = ")
    down = ("juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
    rules = {**_all(down, "decrease"), "age": "increase", "sex": "fixed", "race": "fixed"}
    outcomes = ("arrested again", "not arrested again")
    return _data("COMPAS", frame, table["two_year_recid"], rules, outcomes=outcomes, eps=0.3, protected=("sex", "race"))


def adult(folder: Path) -> PaperData:
    """Table XIV: all 48,842 rows, every category but race numbered by the alphabet and taken for a number (`ordered` here).

    So education goes up by the alphabet, and by its years too. Slip: target 1 is <= 50K (37,155 rows), so that the false negatives
    to explain are people of low income who were taken for rich.
    """
    table = read_table(folder / "fgce" / "fgce_adult.csv.gz")
    words = read_table(folder / "tabular" / "adult.csv.gz")
    frame = table.drop(columns="target")
    numbered = ("workclass", "education", "marital-status", "occupation", "relationship")
    categories: dict[str, Sequence[str]] = {}
    for name in (*numbered, "race", "sex"):
        categories[name] = sorted(words[name if name in words else name.replace("-", "_")].unique())
        frame[name] = np.array(categories[name])[frame[name]]
    numbers = [name for name in frame.columns if name not in categories]
    frame[numbers] = frame[numbers].astype(int)
    rules = {**_all(("age", "education", "education-num"), "increase"), "sex": "fixed", "race": "fixed"}
    return _data(
        "Adult", frame, table["target"], rules, outcomes=("> 50K", "<= 50K"), eps=0.3, protected=("sex", "race"),
        ordered=numbered,
    )


def german(folder: Path) -> PaperData:
    """Table XV, but marital status free and A14, A65 left where they are: the code means to fix the one and to rename the others
    (no account to A10, unknown savings to A60), and does not. Codes of UCI; credit history as the code has it: once delayed or
    critical (A33, A34) it may only get better, and otherwise it may not get there. Target 1: good."""
    table = read_table(folder / "tabular" / "german.csv").rename(columns=GERMAN)
    frame = table.drop(columns="credit")
    frame["Marital-Status"] = frame["Sex"].map(
        {"A91": "divorced", "A92": "divorced or married", "A93": "single", "A94": "married or widowed"}
    )
    frame["Sex"] = frame["Sex"].map({"A91": "male", "A92": "female", "A93": "male", "A94": "male"})
    rules = {
        **_all(("Existing-Account-Status", "Savings-Account", "Age", "Present-Employment"), "increase"),
        **_all(("Guarantors", "Housing", "Job", "Telephone"), "increase"),
        **_all(("Month-Duration", "Credit-Amount", "Instalment-Rate", "Installment", "Property"), "decrease"),
        **_all(("Sex", "Foreign-Worker"), "fixed"),
    }
    paid = ("A30", "A31", "A32")
    better = {**dict.fromkeys(("A30", "A31", "A32", "A33"), paid), "A34": (*paid, "A33")}
    return _data(
        "German", frame, 2 - table["credit"], rules, outcomes=("bad", "good"), eps=2.9, protected=("Sex",),
        moves={"Credit-History": better}, continuous=("Credit-Amount",),
    )


def heloc(folder: Path) -> PaperData:
    """Table XVI: the 2,502 rows without a special (negative) value, twelve features in at most six bins of equal width.

    G0: MaxDelqEver at most 5 (the paper's text has it the other way round, its counts of nodes do not). Target 1: Good.
    """
    table = read_table(folder / "tabular" / "heloc.csv.gz")
    table = table[(table.drop(columns="RiskPerformance") >= 0).all(axis=1)].reset_index(drop=True)
    frame = table.drop(columns="RiskPerformance")
    group = (frame["MaxDelqEver"] > 5).to_numpy().astype(np.int64)
    rules = {
        **_all(("NumSatisfactoryTrades", "PercentTradesNeverDelq"), "increase"),
        **_all(("NetFractionInstallBurden", "MSinceMostRecentDelq", "ExternalRiskEstimate", "MaxDelqEver"), "decrease"),
        **_all(("NumTrades60Ever2DerogPubRec", "NumTrades90Ever2DerogPubRec", "MaxDelq2PublicRecLast12M"), "decrease"),
    }
    good = (table["RiskPerformance"] == "Good").astype(int)
    return _data(
        "HELOC", frame, good, rules, outcomes=("Bad", "Good"), eps=1.4, protected=(), group=group,
        groups=("MaxDelqEver <= 5", "MaxDelqEver > 5"), continuous=CONTINUOUS,
    )


GERMAN = {
    "status": "Existing-Account-Status", "month": "Month-Duration", "credit_history": "Credit-History", "purpose": "Purpose",
    "credit_amount": "Credit-Amount", "savings": "Savings-Account", "employment": "Present-Employment",
    "investment_as_income_percentage": "Instalment-Rate", "personal_status": "Sex", "other_debtors": "Guarantors",
    "residence_since": "Residence", "property": "Property", "age": "Age", "installment_plans": "Installment", "housing": "Housing",
    "number_of_credits": "Existing-Credits", "skill_level": "Job", "people_liable_for": "Num-People", "telephone": "Telephone",
    "foreign_worker": "Foreign-Worker",
}
CONTINUOUS = (
    "MSinceOldestTradeOpen", "AverageMInFile", "NetFractionInstallBurden", "NetFractionRevolvingBurden",
    "MSinceMostRecentTradeOpen", "PercentInstallTrades", "PercentTradesWBalance", "NumTotalTrades", "MSinceMostRecentDelq",
    "NumSatisfactoryTrades", "PercentTradesNeverDelq", "ExternalRiskEstimate",
)
LOADERS: Mapping[str, Callable[[Path], PaperData]] = {
    "Student": student, "COMPAS": compas, "Adult": adult, "German": german, "HELOC": heloc
}


def _all(names: Sequence[str], change: Change) -> dict[str, Change]:
    return dict.fromkeys(names, change)


def _binned(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Appendix B: continuous features become the number of one of at most six bins of equal width."""
    result = frame.copy()
    for name in names:
        column = frame[name]
        count = min(6, int(np.log2(column.nunique())) + 1, int(column.max() - column.min()))
        bins = KBinsDiscretizer(n_bins=count, encode="ordinal", strategy="uniform", subsample=None)
        result[name] = bins.fit_transform(column.to_frame())[:, 0].astype(int)
    return result


def _data(
    name: str, frame: pd.DataFrame, target: pd.Series, rules: Rules, *, outcomes: tuple[str, str], eps: float,
    protected: Sequence[str] = ("sex",), ordered: Sequence[str] = (), moves: Mapping[str, Any] | None = None,
    group: Integers | None = None, groups: tuple[str, str] = ("female", "male"), continuous: tuple[str, ...] = (),
) -> PaperData:
    """group: without it, the first protected feature's two categories, in alphabetical order.   continuous: put into bins."""
    unknown = {*rules, *protected, *ordered} - set(frame.columns)
    if unknown:
        raise DataError(f"{name}: no columns {', '.join(sorted(unknown))} in the file; take the file of the FGCE authors")
    frame = _binned(frame, continuous)
    features = [_feature(frame[column], rules, protected, ordered, moves or {}) for column in frame.columns]
    if group is None:
        group = pd.factorize(frame[protected[0]], sort=True)[0].astype(np.int64)
    schema = Schema(features=tuple(features), outcomes=outcomes)
    classes = target.to_numpy().astype(np.int64)
    return PaperData(
        name=name, frame=frame, target=classes, schema=schema, group=group, groups=groups, eps=eps, continuous=continuous
    )


def _feature(
    column: pd.Series, rules: Rules, protected: Sequence[str], ordered: Sequence[str], moves: Mapping[str, Any]
) -> Feature:
    """Numbers range over what the data holds, as min-max scaling does; categories are numbered by the alphabet."""
    name = str(column.name)
    change, guarded = rules.get(name), name in protected
    if pd.api.types.is_numeric_dtype(column):
        return Feature(name=name, kind="integer", range=(column.min(), column.max()), change=change, protected=guarded)
    categories = tuple(sorted(column.unique()))
    return Feature(
        name=name, kind="categorical", categories=categories, change=change, ordered=name in ordered, moves=moves.get(name),
        protected=guarded,
    )
