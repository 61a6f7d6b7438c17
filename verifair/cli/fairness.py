"""The question of individual fairness as options: what `certify` and `export` share, and in part `explain` and `guard`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from encoders.onnx.reader import read_onnx
from verifair.cli import options
from verifair.cli.inputs import Inputs
from verifair.engine.queries import IndividualFairness
from verifair.errors import QueryError

Protected = Annotated[list[str] | None, typer.Option("--protected", help="Protected feature; repeat for several.")]
Flip = Annotated[bool, typer.Option("--flip", help="No decision flips (the default question).")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="No probability moves by more than this.")]
Relax = Annotated[
    list[str] | None, typer.Option("--relax", help="feature=units: the two may differ by so much here as well; repeat.")
]
Differ = Annotated[str, typer.Option("--differ", help="all: every protected feature differs; any: at least one.")]


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options as they were given. verb: who asks, for messages."""

    verb: str
    protected: list[str] | None
    flip: bool
    epsilon: float | None
    box: list[str] | None
    relax: list[str] | None
    differ: str

    def check(self) -> None:
        """Raise QueryError for two questions in one; before anything is read."""
        if self.flip and self.epsilon is not None:
            raise QueryError("--flip asks about decisions, --epsilon about probabilities: choose one (--flip is the default)")

    def about(self, given: Inputs) -> IndividualFairness:
        """The query. Raises QueryError."""
        if not self.protected:
            known = ", ".join(given.schema.protected_names) or "none is declared protected"
            raise QueryError(f"{self.verb} needs a protected feature: pass --protected NAME (protected in the schema: {known})")
        return IndividualFairness(
            network=read_onnx(given.model), schema=given.schema, protected=self.protected, box=options.parsed_box(self.box or []),
            epsilon=self.epsilon, differ=self.differ, relax=options.widths(self.relax or []),
        )  # fmt: skip
