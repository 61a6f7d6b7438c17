"""What the shapes of all answers share: numbers with their units, enumerations, and what stands in every answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from solvers.outcome import Limit, Termination
from verifair.engine.verdict import Reason, Status

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seconds = Annotated[float, Field(ge=0, description="Wall-clock seconds.")]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1, description="Part of a whole, 0 to 1.")]
Probability = Annotated[float, Field(ge=0, le=1, description="Of the positive class.")]
Seed = Annotated[int, Field(ge=0, description="Of every random draw.")]
Value = str | float | bool | None
"""A feature's value, in the schema's words: a category's name, or a number in the feature's unit."""
Row = Annotated[dict[str, Value], Field(description="A person: feature -> value, in the schema's words and units.")]
RowName = Annotated[str | int | float, Field(description="What the table's index calls a row; its position where it has no names.")]
Trust = Literal["checked", "claimed"]
"""checked: `verifair check` can prove it again.   claimed: a solver's word."""
Table = list[dict[str, Any]]
"""Rows of a table whose columns depend on the question."""


class Shape(BaseModel):
    """An object with these keys and no others."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, protected_namespaces=())


class Answer(Shape):
    """What every answer ends with."""

    versions: dict[str, str]
    """Package -> version, of what made the answer."""


class About(Answer):
    """Which model and schema an answer is about."""

    model_sha256: Sha256
    """Of the ONNX file."""
    schema_sha256: Sha256
    """Of the schema, as it was understood."""
    seconds: Seconds
    seed: Seed


class CertificateNote(Shape):
    trust: Trust
    """checked: the certificate can be re-proved.   claimed: it records a solver's word."""


class Witness(Shape):
    """An exact counterexample: two legal rows."""

    x: Row
    x_prime: Row
    outputs: Annotated[list[float], Field(min_length=2, max_length=2)]
    """Margins g(x) and g(x'), log-odds of the positive class; their signs were decided in exact arithmetic."""
    probabilities: Annotated[list[Probability], Field(min_length=2, max_length=2)]
    margin: float | None
    """What should have been positive, as float64."""
    float32_agrees: bool | None
    """Whether onnxruntime shows the same in float32; null: not asked."""


class SolverOutcome(Shape):
    """What a solver answered on the way. Bounds are null for a feasibility question, and where there are none."""

    termination: Termination
    limit: Limit | None
    backend: str
    version: str
    tolerance: float
    """Within which its claims hold; 0: exact arithmetic."""
    primal_bound: float | None
    dual_bound: float | None
    build_seconds: Seconds
    solve_seconds: Seconds


class VerdictShape(Shape):
    """PROVED comes with a certificate, VIOLATED with a witness, UNKNOWN with a reason; none of them with another's evidence."""

    status: Status
    reason: Reason | None
    """Why it is unknown; null otherwise."""
    witness: Witness | None
    lower: float | None
    """Certified lower bound of what has to stay positive; null: not computed."""
    upper: float | None
    """Least value met of what has to stay positive; null: none was met."""
    certificate: CertificateNote | None
    engine: str
    """The methods that decided."""
    semantics: str
    """Which function the verdict is about."""
    seconds: Seconds
    outcomes: list[SolverOutcome]


class PairQuery(Shape):
    """Which pairs of people are compared: alike in all but the protected features (and `relax`)."""

    protected: list[str]
    box: dict[str, Any]
    """Feature -> value or [low, high], as asked for."""
    differ: Literal["all", "any"]
    """Pairs differ in all protected features, or in at least one."""
    relax: dict[str, int]
    """Feature -> by how many of its units it may differ as well."""


class FairnessQuery(PairQuery):
    kind: Literal["individual-fairness"]
    epsilon: float | None
    """Probabilities may differ by so much; null: decisions may not flip."""


class GapQuery(PairQuery):
    kind: Literal["probability-gap"]
    scale: Literal["probability", "logit"]
