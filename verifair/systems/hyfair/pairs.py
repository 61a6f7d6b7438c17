"""Which people are compared: the settings that certify, kmax, export, explain and guard share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from verifair.errors import QueryError
from verifair.systems.settings import Box, Option, Protected, Settings, typed, widths

if TYPE_CHECKING:
    from verifair.engine.queries import IndividualFairness
    from verifair.systems.subject import Subject


class PairSettings(Settings):
    """People who are alike in all but protected features."""

    protected: Protected = ()
    """Protected feature; repeat for several."""
    box: Box = Field(default_factory=dict)
    """feature=value or feature=low:high; repeat."""

    def names(self, verb: str, known: Sequence[str]) -> tuple[str, ...]:
        """Return the protected features. known: those of the schema. Raises QueryError where none is named."""
        if not self.protected:
            declared = ", ".join(known) or "none is declared protected"
            raise QueryError(f"{verb} needs a protected feature: pass --protected NAME (protected in the schema: {declared})")
        return self.protected


class FairnessSettings(PairSettings):
    """Are such people treated alike?"""

    flip: bool = False
    """No decision flips (the default question)."""
    epsilon: Annotated[float | None, Field(gt=0, lt=1)] = None
    """No probability moves by more than this."""
    signs: Literal["deployed", "strict"] = "deployed"
    """deployed: positive means logit > 0; strict: Fairify's, a tie counts on neither side."""
    classes: Literal["favourable", "any"] = "favourable"
    """favourable: favourable decisions become others; any: any of several classes becomes another."""
    relax: Annotated[dict[str, int | Literal["any"]], typed(widths), Option(type=list[str])] = Field(default_factory=dict)
    """feature=units: the two may differ by so much here as well (steps of ordered categories; any: of all); repeat."""
    differ: Literal["all", "any"] = "all"
    """all: every protected feature differs; any: at least one."""

    def check_flip(self) -> None:
        """Raise ValueError for two questions in one."""
        if self.flip and self.epsilon is not None:
            raise ValueError("--flip asks about decisions, --epsilon about probabilities: choose one (--flip is the default)")
        if "signs" in self.model_fields_set and self.epsilon is not None:
            raise ValueError("--signs says when a decision flips, --epsilon asks about probabilities: drop one of the two")

    def question(self, verb: str, subject: Subject) -> IndividualFairness:
        """Return what is asked of a subject. Raises QueryError."""
        from verifair.engine.queries import IndividualFairness

        return IndividualFairness(
            network=subject.network, schema=subject.schema, protected=self.names(verb, subject.schema.protected_names),
            box=self.box, epsilon=self.epsilon, differ=self.differ, relax=self.relax, signs=self.signs, classes=self.classes,
        )
