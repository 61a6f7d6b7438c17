"""What can be asked of `explain`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verifair.systems.hyfair.pairs import VariantSettings
from verifair.systems.settings import Option, Outside
from verifair.systems.system import System


class ExplainSettings(VariantSettings):
    """Where clusters of discrimination are searched, and how rules about them are found (HyFair, Algorithm 2)."""

    measure: Literal["k", "gap"] = "k"
    """k: outcome buckets; gap: largest probability gap."""
    buckets: Annotated[int, Field(ge=2)] = 20
    """Outcome buckets of k."""
    rounds: Annotated[int, Field(ge=1)] = 1
    """Clusters, each outside the rules of those before."""
    samples: Annotated[int, Field(ge=100)] = 5000
    """Local samples around each cluster."""
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Samples above this quantile count as high."""
    delta: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    """Least fall of severity when a rule is negated (default: 5 % of the largest)."""
    depth: Annotated[int, Field(ge=1)] = 8
    """Depth of the decision tree."""
    leaf: Annotated[int, Field(ge=1)] = 25
    """Fewest samples of a leaf."""
    purity: Annotated[float | None, Field(gt=0, le=1)] = None
    """Share of high samples that makes a leaf high (default: 0.3, or that of the purest leaf where none has so much)."""
    iterations: Annotated[int, Field(ge=1)] = 500
    """Steps of each search for a cluster."""
    lime: Annotated[bool, Option(name="--lime")] = False
    """Compare with local surrogates as LIME fits them."""
    outside: Outside = "error"


SYSTEM = System(
    verb="explain",
    help="""
Searches the person who falls into the most outcome buckets over all protected values, samples around, and says by rules under
which conditions that happens. Findings, not proofs. rules.json goes into `verifair guard`.

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
