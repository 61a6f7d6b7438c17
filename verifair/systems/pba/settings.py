"""The settings of PBA."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from verifair.systems.settings import Arithmetic, Inputs, Method, Option, Outside, Protected, Run, Settings, Units, no_claims
from verifair.systems.system import About, System


class PbaSettings(Settings):
    """The settings of `verifair pba`: the questions about persistent bias and robustness bias of every row."""

    protected: Protected = ()
    """Feature whose value should not matter, such as sex; repeat for several (then rates of their intersections are shown, too)."""
    delta: Annotated[tuple[Units, ...], Field(min_length=1)] = (1.0, 2.0, 3.0)
    """Size of the neighbourhood, in units of the schema; repeat for several."""
    intersections: bool = False
    """Also decide PBA and RB when several sensitive features change at once."""
    robustness: Annotated[bool, Option(without="Leave out robustness bias (RB).")] = True
    """Prove robustness bias (RB) as well."""
    arithmetic: Arithmetic = "real"
    """real, or float32: proofs must hold for every float32 evaluation, in any order of summation."""
    method: Method = "auto"
    """auto (decides), bnb, lp (the paper's triangle LP), milp, smt."""
    solver: str | None = None
    """Backend of lp, milp and smt; see `verifair doctor`."""
    limit: Annotated[int | None, Field(ge=1)] = None
    """Only the first N rows of the table."""
    rows: Annotated[int | None, Field(ge=1)] = None
    """Only this number of rows of the table, drawn with the seed."""
    outside: Outside = "error"

    def check_options(self, inputs: Inputs, run: Run) -> None:
        """Raise ValueError for --arithmetic float32 with a method whose proofs say nothing about float32."""
        no_claims(self.arithmetic, self.method, self.solver)


SYSTEM = System(
    verb="pba",
    help="""
Decides for every row of a table whether a sensitive value alone makes the model more confident, for this row and for all rows
within DELTA units of it: more confident in the row than in its counterfactual (observed), or the reverse (flipped).

Example: verifair pba german.onnx --schema german.toml --data german.csv --protected age --delta 1 --delta 2 --out runs/german
""",
    settings=PbaSettings,
    run=("out", "store", "resume", "jobs", "cluster", "nodes", "timeout", "seed", "json_file"),
    helps={
        "demo": "Use a shipped model and its test rows: german or adult.",
        "out": "Folder for table, plots, verdicts and certificate.",
        "store": "SQLite file of verdicts (default: OUT/verdicts.sqlite).",
    },
    text_file="table.txt",
    about=About(
        title="Persistent bias",
        question="Does a sensitive value alone move the probability, for a person and for everybody almost like them?",
        source="Uncovering Locally-Persistent Bias via Ceteris Paribus Fairness (PBA)",
    ),
    audit_defaults={"delta": (1.0,)},
    keys=("protected", "delta", "intersections", "robustness", "rows"),
)
