"""The settings that certify, kmax, export, explain and guard share: the people and the protected values that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from verifair.errors import QueryError
from verifair.systems.settings import Box, Option, Protected, Settings, assignments, typed, widths

if TYPE_CHECKING:
    from verifair.engine.queries import IndividualFairness
    from verifair.schema.schema import Schema
    from verifair.systems.subject import Subject


class PairSettings(Settings):
    """The compared people: pairs that differ in protected features alone."""

    protected: Protected = ()
    """Feature whose value should not matter, such as sex; repeat for several."""
    box: Box = Field(default_factory=dict)
    """Ask only about rows with feature=value or feature=low:high; repeat. Default: all that the schema allows."""

    def names(self, verb: str, known: Sequence[str]) -> tuple[str, ...]:
        """Return the protected features. known: those of the schema. Raises QueryError if none is named."""
        if not self.protected:
            declared = ", ".join(known) or "none is declared protected"
            raise QueryError(f"{verb} needs a protected feature: pass --protected NAME (protected in the schema: {declared})")
        return self.protected


def _listed(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    expected = "expected feature=low:high:step or feature=one,two, e.g. age=20:80:10"
    assigned = assignments(texts, expected=expected, once="list all its values in one")
    return {name: tuple(part.strip() for part in value.split(",")) for name, value in assigned.items()}


class VariantSettings(PairSettings):
    """The compared variants of a person: all combinations of protected values."""

    values: Annotated[
        dict[str, Annotated[tuple[bool | int | float | str, ...], Field(min_length=1)]], typed(_listed), Option(type=list[str])
    ] = Field(default_factory=dict)
    """Use only these protected values: feature=low:high:step or feature=one,two; repeat. Default: all legal values."""

    def raw_values(self, schema: Schema) -> dict[str, list[float]]:
        """Return protected feature -> the raw values to combine. Raises QueryError for an invalid range."""
        return {name: _raw(schema, name, listed) for name, listed in self.values.items()}


def _raw(schema: Schema, name: str, listed: tuple[Any, ...]) -> list[float]:
    """Return the raw values that were listed one by one or, for numbers, as low:high:step with both ends included."""
    result: list[float] = []
    for value in listed:
        is_range = isinstance(value, str) and ":" in value and schema[name].numeric
        result += _range(schema, name, value) if is_range else [schema.raw_value(name, value)]
    return result


def _range(schema: Schema, name: str, text: str) -> list[float]:
    import numpy as np

    from verifair.engine.exchange import MAX_COMBINATIONS

    numbers = [schema.raw_value(name, part) for part in text.split(":")]
    low, high, step = numbers if len(numbers) == 3 else (*numbers, 1.0) if len(numbers) == 2 else (0.0, 0.0, 0.0)
    if step <= 0 or low > high:
        raise QueryError(
            f"--values {name}={text}: expected low:high:step with low <= high and a positive step, e.g. age=20:80:10"
        )
    if (high - low) / step > MAX_COMBINATIONS:
        raise QueryError(f"--values {name}={text}: are more than {MAX_COMBINATIONS:,} values; take a larger step")
    return [float(value) for value in np.arange(low, high + step / 2, step) if value <= high]


class FairnessSettings(PairSettings):
    """The outcome that must not change between the two people of a pair: the decision or the probability."""

    flip: bool = False
    """Ask whether any decision flips (the default)."""
    epsilon: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    """Ask whether any probability (of a regression model: any value) moves by more than this."""
    signs: Literal["deployed", "strict"] = "deployed"
    """deployed: positive means logit > 0; strict (Fairify): a logit of exactly 0 counts on neither side."""
    classes: Literal["favourable", "any"] = "favourable"
    """What counts as a flip. favourable: between favourable and other classes; any: between any two classes."""
    relax: Annotated[dict[str, int | Literal["any"]], typed(widths), Option(type=list[str])] = Field(default_factory=dict)
    """feature=units: the two people may also differ here by this many units (ordered categories: steps; any: freely); repeat."""
    differ: Literal["all", "any"] = "all"
    """The two people differ in all protected features, or in any (at least one)."""

    def check_flip(self) -> None:
        """Raise ValueError if two questions are asked at once."""
        if self.flip and self.epsilon is not None:
            raise ValueError("--flip asks about decisions, --epsilon about probabilities: choose one (--flip is the default)")
        if "signs" in self.model_fields_set and self.epsilon is not None:
            raise ValueError("--signs says when a decision flips, --epsilon asks about probabilities: drop one of the two")

    def question(self, verb: str, subject: Subject) -> IndividualFairness:
        """Return the query about a subject. Raises QueryError."""
        from verifair.engine.queries import IndividualFairness

        return IndividualFairness(
            model=subject.network, schema=subject.schema, protected=self.names(verb, subject.schema.protected_names),
            box=self.box, epsilon=self.epsilon, differ=self.differ, relax=self.relax, signs=self.signs, classes=self.classes,
        )
