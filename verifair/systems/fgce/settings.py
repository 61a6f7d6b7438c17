"""The settings of FGCE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from verifair.schema.file import Change
from verifair.systems.settings import Grouped, Inputs, Option, Run, Units, Whole, assignments, typed
from verifair.systems.system import About, System

CHANGES: tuple[Change, ...] = get_args(Change)
Cost = Literal["l2", "path", "hops"]
Factuals = Literal["negatives", "false-negatives"]
Method = Literal["exact", "components", "mip", "greedy"]
"""exact: thresholds and set covers.   components: each weak component, combined.   mip: the paper's.   greedy: (1 - 1/e)."""
Weighting = Literal["inverse", "negative-log", "literal", "length"]
"""inverse: length / (KDE + 1e-8), the authors' code.   negative-log: length * -log(KDE / largest KDE), FACE's, never negative.
literal: length * KDE, the paper's text.   length: the plain length."""
CostGrid = Literal["ten", "paper", "all"]
"""Costs of kAUC. ten: as dAUC's.   paper: from 70 % of full coverage's.   all: where an optimum changes, and for all areas."""
AboveZero = Annotated[float, Field(gt=0)]
"""Infinite: no limit."""
Bandwidth = float | Literal["scott", "cross-validated"]


def _changes(texts: Sequence[str]) -> dict[str, str]:
    expected = f"expected feature=one of {', '.join(CHANGES)}, e.g. age=increase"
    changes = assignments(texts, expected=expected)
    for name, change in changes.items():
        if change not in CHANGES:
            raise ValueError(f"{name}={change}: {expected}")
    return changes


def _width(value: Any, info: ValidationInfo) -> Any:
    if value in ("scott", "cross-validated"):
        return value
    try:
        width = float(value) if info.context or not isinstance(value, (bool, str)) else 0.0
    except (TypeError, ValueError):
        width = 0.0
    if not 0 < width < float("inf"):
        raise ValueError("expected a positive number, or one of scott, cross-validated")
    return width


class FgceSettings(Grouped):
    """The settings of `verifair fgce`: the choice of counterfactuals for each group, and further analyses."""

    belongs: ClassVar = {
        **dict.fromkeys(("weighting", "bandwidth"), (("cost", "path"),)), "compare": (("cost", "l2"),),
        "solver": (("method", "mip"),), "grid": (("measures", True),),
    }
    k: Annotated[int, Field(ge=1, le=1 << 20)] = 5
    """Largest number of counterfactuals for each group."""
    coverage: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the people with a feasible counterfactual who must be covered."""
    max_cost: AboveZero | None = None
    """Cover as many people as possible at no more than this cost each."""
    cost: Cost = "l2"
    """l2 (distance), path (weighted by density) or hops (moves)."""
    eps: Annotated[AboveZero, Field(allow_inf_nan=False)] | None = None
    """Largest distance of one move (default: the smallest at which every row that can have a neighbour has one)."""
    factuals: Factuals = "negatives"
    """Explain all negatives, or false-negatives only."""
    changes: Annotated[dict[str, Change], typed(_changes), Option(name="--change", type=list[str])] = Field(default_factory=dict)
    """feature=increase, decrease, fixed or free, in place of the schema's; repeat."""
    weighting: Weighting = "inverse"
    """Weights of --cost path: inverse, negative-log, literal or length."""
    bandwidth: Annotated[Bandwidth, BeforeValidator(_width), Option(type=str)] = "scott"
    """Bandwidth of the density in these weights: scott, cross-validated, or a number."""
    method: Method = "exact"
    """exact, components, mip (the paper's) or greedy."""
    solver: str = "highs"
    """Backend of mip; see `verifair doctor`."""
    empty: Literal["error", "skip"] = "error"
    """Groups with nobody to explain, or nobody who can be helped: error, or skip (leave them out)."""
    robust: tuple[Units, ...] = ()
    """Prove that counterfactuals stay positive within DELTA units; repeat."""
    only_robust: Units | None = None
    """Choose only rows that are proved to stay positive within DELTA units."""
    measures: bool = False
    """Compute k0, d0, kAUC, dAUC and cAUC, and compare groups by them."""
    grid: CostGrid = "ten"
    """Costs at which kAUC and dAUC are computed: ten, paper (as in its tables), or all (exact)."""
    compare: bool = False
    """Also show how much of the advice of AReS, GLOBE-CE and FACE is feasible."""
    too_few: Literal["error", "most"] = "error"
    """Where --k cannot reach the coverage: error, or most (cover as many people as --k can, and say so)."""
    rows: Annotated[Whole | None, Option(hidden=True)] = None
    """Only this number of rows of the table, drawn with the seed."""

    @property
    def deltas(self) -> list[float]:
        """Sizes, in units, of the neighbourhoods in which counterfactuals are to be proved robust."""
        return sorted({*self.robust, *([] if self.only_robust is None else [self.only_robust])})

    @model_validator(mode="after")
    def _method_fits(self) -> FgceSettings:
        if self.max_cost is not None and self.method in ("components", "mip"):
            raise ValueError(f"method {self.method} minimises cost; with a cost limit use exact or greedy")
        if self.max_cost is None and self.method == "greedy":
            raise ValueError("method greedy covers the most at a cost limit; pass max_cost (--max-cost), or use method exact")
        return self

    @model_validator(mode="after")
    def _grid_fits(self) -> FgceSettings:
        if self.grid == "all" and self.method == "greedy":
            raise ValueError("grid all is about optima: take another method than greedy")
        if self.grid == "paper" and self.cost != "l2":
            raise ValueError("grid paper is a range of distances: take cost l2")
        return self

    def check_options(self, inputs: Inputs, run: Run) -> None:
        if run.certificate is not None and not self.deltas and (self.cost != "l2" or self.method in ("mip", "greedy")):
            raise ValueError(
                "--certificate holds the proof that no choice is better, for --cost l2 and methods exact and components; or with "
                "--robust DELTA that counterfactuals keep: change these, or drop it"
            )


SYSTEM = System(
    verb="fgce",
    help="""
Chooses, for each group, at most --k rows of the table that rejected people can reach by allowed moves. The choice makes the largest
cost as small as possible (with --max-cost: reaches as many people as possible), and verifair proves that no choice is better.

Example: verifair fgce --demo german --protected sex --k 20

An optimum that others can check: verifair fgce --demo german --protected sex --k 20 --certificate optimum.json.gz

Advice that keeps working: verifair fgce --demo german --protected sex --k 20 --robust 1 --robust 5 --certificate proof.json

With files: verifair fgce adult.onnx --schema adult.toml --data adult.csv --protected sex --k 15 --measures --out runs/adult
""",
    settings=FgceSettings,
    run=("certificate", "out", "plot", "jobs", "cluster", "timeout", "seed", "json_file"),
    defaults={"jobs": 2, "timeout": 600.0},
    helps={
        "audit": "Rows whose decisions are explained: all, test (with --demo), or column=value.",
        "plot": "Draw the groups side by side (PNG, PDF or SVG).",
        "jobs": "Threads for graph and densities; processes for --measures.",
        "timeout": "Seconds for optima, proofs and measures. The graph is built first; if that takes longer, the run ends.",
    },
    about=About(
        title="Ways to the favourable decision, by group",
        question="What would people refused have to change, and is that harder for one group?",
        source="FGCE: Feasible Group Counterfactual Explanations (Fragkathoulas, Papanikou, Pitoura, Terzi)",
    ),
    audit_defaults={"k": 20, "empty": "skip", "too_few": "most"},
    keys=("protected", "split", "rows", "k", "coverage", "max_cost", "cost", "eps", "factuals", "changes", "robust"),
)
