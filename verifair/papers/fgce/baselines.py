"""Table VI of the FGCE paper beside ours: the feasible share of the advice of AReS and GLOBE-CE, beside FACE and FGCE.

Student and COMPAS, both groups together, false negatives of the test part, graph and candidates of the test part. FGCE covers nine
tenths of those who have a feasible counterfactual or, if k is too small for that, as many as k can (the paper stops at 80 and 90
%).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import QueryError
from verifair.papers.fgce.data import CONFIDENT, PaperData, classifier
from verifair.papers.fgce.printed import TABLE_VI
from verifair.systems.fgce.baselines.ares import ares
from verifair.systems.fgce.baselines.comparison import compare
from verifair.systems.fgce.baselines.globe_ce import globe_ce
from verifair.systems.fgce.decider import frame_of
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import centers
from verifair.systems.fgce.optimum.cover import largest_coverage

SHARE = 0.9
CASES = {"Student": (5, ("age", "health")), "COMPAS": (9, ("age", "priors_count"))}
"""For each dataset: k of FGCE, and the features whose constraints are removed one by one."""


def compared(data: PaperData) -> pd.DataFrame:
    """Table VI of one of `CASES`, beside the paper's."""
    k, single = CASES[data.name]
    model = classifier(data)
    test = data.split[1]
    raw = data.raw[test]

    def positive(rows: Array) -> Booleans:
        return np.asarray(model.predict(frame_of(data.schema, rows)) == 1)

    false_negatives = np.flatnonzero(~positive(raw) & (data.target[test] == 1))
    candidates = np.flatnonzero(model.predict_proba(frame_of(data.schema, raw))[:, 1] > CONFIDENT)
    recourses = [ares(data.space, raw, raw[false_negatives], positive), globe_ce(data.space, raw, raw[false_negatives], positive)]
    all_features = [feature.name for feature in data.schema.features]
    removed = {"none": (), **{name: (name,) for name in single}, "all": all_features}
    table = compare(data.space, raw, false_negatives, candidates, recourses, _fgce, k, eps=(data.eps, np.inf), removed=removed)
    return _with_paper(data.name, table)


def _fgce(instance: Instance, k: int) -> Integers:
    try:
        return centers(instance, k, SHARE).chosen
    except QueryError:
        return largest_coverage(instance, k, np.inf).chosen


def _with_paper(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """One line for each row of the table, ours and the paper's."""
    paper = TABLE_VI[TABLE_VI["dataset"] == name]
    lines: list[dict[str, object]] = []
    for (eps, removed), row in table.iterrows():
        line = {"dataset": name, "eps": eps, "removed": removed}
        printed = paper[(paper["eps"] == eps) & (paper["freed"] == removed)]
        for method in ("AReS", "GLOBE-CE", "FACE", "FGCE"):
            paper_rows = printed[printed["method"] == method]
            reported = "" if paper_rows.empty else f" | {100 * paper_rows['coverage'].iloc[0]:g} / {paper_rows['cost'].iloc[0]:g}"
            line[method] = f"{100 * row[method, 'coverage']:.1f} / {row[method, 'cost']:.2f} ({row[method, 'size']:.0f}){reported}"
        lines.append(line)
    return pd.DataFrame(lines)
