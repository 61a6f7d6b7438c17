"""Tables XII to XVI of the FGCE paper: attributes, their allowed changes and types, beside those used here."""

from __future__ import annotations

import pandas as pd

from verifair.papers.fgce.data import PaperData
from verifair.papers.fgce.printed import TABLES_XII_XVI
from verifair.schema.feature import Feature

SIGNS = {"increase": "↑", "decrease": "↓", "fixed": "==", "free": "-", None: "-"}
SAME = {"=": "=="}
"""A sign that the paper explains nowhere -> the one that is meant."""
NAMES = {"educational-num": "education-num"}
"""The paper's -> the file's, where it is another one."""
OUTCOMES = ("target", "two_year_recid", "RiskPerformance")


def constraints(data: PaperData) -> pd.DataFrame:
    """One of the tables, line by line beside the paper's."""
    features = {feature.name: feature for feature in data.schema.features}
    lines = []
    for line in TABLES_XII_XVI[TABLES_XII_XVI["dataset"] == data.name].to_dict(orient="records"):
        attribute, paper = line["attribute"], (line["constraint"], line["dtype"])
        feature = features.get(NAMES.get(attribute, attribute))
        ours = _constraint_of(feature, data) if feature else ("outcome" if attribute in OUTCOMES else "no column", "")
        same = ours == (SAME.get(paper[0], paper[0]), paper[1])
        agree = "-" if attribute in OUTCOMES else "yes" if same else "no"
        lines.append({
            "dataset": data.name, "attribute": attribute, "constraint": ours[0], "paper's constraint": paper[0], "dtype": ours[1],
            "paper's dtype": paper[1], "agree": agree,
        })
    return pd.DataFrame(lines)


def _constraint_of(feature: Feature, data: PaperData) -> tuple[str, str]:
    """Constraint and type of a feature here. Categories that are taken for numbers are of type int64."""
    number = "Continuous" if feature.name in data.continuous else "int64"
    return "*" if feature.moves else SIGNS[feature.change], number if feature.numeric or feature.ordered else "category"
