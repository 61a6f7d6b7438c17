"""The settings of kmax."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verifair.systems.hyfair.pairs import VariantSettings
from verifair.systems.settings import Inputs, Option, Run
from verifair.systems.system import About, System


class KmaxSettings(VariantSettings):
    """The settings of `verifair kmax`: the search for the person with the most outcome buckets, and the bound."""

    buckets: Annotated[int, Field(ge=2, le=1000)] = 20
    """Number of outcome buckets of equal width in [0, 1]."""
    search: Literal["rw", "sa", "sa-knn"] = "sa"
    """Search (HyFair, Algorithm 1): rw (random walk), sa (simulated annealing), or sa-knn (annealing among nearest rows)."""
    chains: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Number of rows from which the search moves at the same time."""
    bound: Annotated[bool, Option(without="Only search; certify no upper bound.")] = True
    """Certify an upper bound after the search."""

    def check_options(self, inputs: Inputs, run: Run) -> None:
        """Raise ValueError for a certificate of a bound that is not asked for."""
        super().check_options(inputs, run)
        if run.certificate is not None and not self.bound:
            raise ValueError("--certificate and --no-bound exclude each other: drop one")


SYSTEM = System(
    verb="kmax",
    help="""
Searches for the person who can get the most different outcomes when only protected values change (k of --buckets), and proves an
upper bound of k.

Example: verifair kmax --demo german --protected sex --protected age

With files: verifair kmax adult.onnx --schema adult.toml --protected race --protected sex --protected age --values age=20:80:10
""",
    settings=KmaxSettings,
    run=("json_file", "certificate", "plot", "jobs", "cluster", "timeout", "seed"),
    defaults={"timeout": 60.0},
    helps={
        "data": "Table of rows that the search starts from and moves among.",
        "protected": "Feature whose value should not matter, such as sex; repeat for several, whose values are combined.",
        "certificate": "Write the bound's proof (.json or .json.gz).",
        "plot": "Draw the search and the cluster (PNG, PDF or SVG).",
    },
    about=About(
        title="How many different outcomes one person can get",
        question="How differently can one and the same person be treated, over all combinations of sensitive values?",
        source="HyFair: Uncovering Discrimination Clusters (Akash and others)",
    ),
    keys=("protected", "values", "buckets", "box"),
)
