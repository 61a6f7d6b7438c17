"""The settings of `explain`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verifair.systems.hyfair.pairs import VariantSettings
from verifair.systems.settings import Option, Outside
from verifair.systems.system import System


class ExplainSettings(VariantSettings):
    """The settings of `verifair explain`: the search for clusters of discrimination, and for rules (HyFair, Algorithm 2)."""

    measure: Literal["k", "gap"] = "k"
    """k: outcome buckets; gap: largest probability gap."""
    buckets: Annotated[int, Field(ge=2)] = 20
    """Number of outcome buckets, for k."""
    rounds: Annotated[int, Field(ge=1)] = 1
    """Number of clusters to find; each lies outside the rules of the earlier ones."""
    samples: Annotated[int, Field(ge=100)] = 5000
    """Number of samples near each cluster."""
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Samples whose severity is above this quantile count as high."""
    delta: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    """Keep rules whose negation lowers the severity by at least this (default: 5 % of the largest possible severity)."""
    depth: Annotated[int, Field(ge=1)] = 8
    """Largest depth of the decision tree."""
    leaf: Annotated[int, Field(ge=1)] = 25
    """Smallest number of samples in a leaf."""
    purity: Annotated[float | None, Field(gt=0, le=1)] = None
    """Share of high samples that makes a leaf a candidate rule (default: 0.3, or the largest share of any leaf if lower)."""
    iterations: Annotated[int, Field(ge=1)] = 500
    """Number of steps of each search for a cluster."""
    lime: Annotated[bool, Option(name="--lime")] = False
    """Compare with local surrogates as LIME fits them."""
    outside: Outside = "error"


SYSTEM = System(
    verb="explain",
    help="""
Searches for the person who falls into the most outcome buckets over all protected values, samples people near this person, and
states rules: the conditions under which this happens. These are findings, not proofs. `verifair guard` reads rules.json.

Example: verifair explain german.onnx --schema german.toml --protected sex --protected age --data german.csv --out explain/
""",
    settings=ExplainSettings,
    run=("out", "timeout", "seed", "json_file"),
    defaults={"timeout": 300.0},
    helps={
        "data": "Table of rows: CSV, CSV.GZ or Parquet (recommended).",
        "out": "Folder for rules.json, rules.txt and rules.png.",
    },
    text_file="rules.txt",
)
