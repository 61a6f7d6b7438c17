"""Datasets as the papers preprocess them: German Credit and Adult (shipped), COMPAS, HMDA, law school (by path), synthetic ones."""

from verifair.datasets.sources import (
    Dataset,
    adult,
    audit_path,
    causal_path,
    compas,
    german,
    hmda,
    law_school,
    load,
    loan,
    named,
    network_path,
    synthetic,
)
from verifair.datasets.table import read_table

__all__ = [
    "Dataset",
    "adult",
    "audit_path",
    "causal_path",
    "compas",
    "german",
    "hmda",
    "law_school",
    "load",
    "loan",
    "named",
    "network_path",
    "read_table",
    "synthetic",
]
