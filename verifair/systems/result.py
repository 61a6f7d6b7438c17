"""Results: one typed object a system. Its fields are the JSON; tables, pictures, sentences and the page are made from it.

A field with `exclude=True` is for tables and pictures alone and stays out of the JSON. The JSON schema is generated from the types,
with the docstrings of the fields as descriptions.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic_core import core_schema

from solvers.outcome import Limit, Termination
from verifair.engine.verdict import Reason, Status

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seconds = Annotated[float, Field(ge=0, description="Wall-clock seconds.")]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1, description="Part of a whole, 0 to 1.")]
Probability = Annotated[float, Field(ge=0, le=1, description="Of the positive class.")]
Seed = Annotated[int, Field(ge=0, description="Of every random draw.")]
Value = str | bool | int | float | None
"""A feature's value, in the schema's words: a category's name, or a number in the feature's unit."""
Row = Annotated[dict[str, Value], Field(description="A person: feature -> value, in the schema's words and units.")]
RowName = Annotated[str | int | float, Field(description="What the table's index calls a row; its position where it has no names.")]
Trust = Annotated[Literal["checked", "claimed"], BeforeValidator(lambda found: getattr(found, "value", found))]
"""checked: `verifair check` can prove it again.   claimed: a solver's word."""
Measured = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}]})]
"""NaN where there was nothing to measure; null in the JSON."""
Table = list[dict[str, Any]]
"""Rows of a table whose columns depend on the question."""


class Shape(BaseModel):
    """An object with these keys and no others. Where one is expected, an object with such attributes will do."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, frozen=True, protected_namespaces=(), arbitrary_types_allowed=True,
        from_attributes=True,
        serialize_by_alias=True, populate_by_name=True, json_schema_serialization_defaults_required=True,
    )


class RowsOf:
    """`Annotated[pd.DataFrame, RowsOf(Line)]`: a table whose JSON is a list of objects of the type Line, one a row."""

    def __init__(self, line: Any) -> None:
        self.line = line

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        records = core_schema.plain_serializer_function_ser_schema(lambda frame: frame.to_dict(orient="records"))
        return core_schema.json_or_python_schema(
            json_schema=core_schema.list_schema(handler.generate_schema(self.line)),
            python_schema=core_schema.is_instance_schema(pd.DataFrame), serialization=records,
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        return handler(schema["json_schema"])


class Answer(Shape):
    """What every answer ends with."""

    versions: dict[str, str] = Field(default_factory=lambda: _versions())
    """Package -> version, of what made the answer."""


class Result(Answer):
    """What a system found, and which model and schema it is about."""

    model_sha256: Sha256
    """Of the ONNX file."""
    schema_sha256: Sha256
    """Of the schema, as it was understood."""
    seconds: Seconds
    seed: Seed
    interrupted: str | None = Field(default=None, exclude=True)
    """What became of the run after Ctrl-C, where some of it is kept."""
    exit_code: int = Field(default=0, exclude=True)
    """Of the command, with --exit-verdict."""


class Interval(Shape):
    """A mean with its percentile bootstrap interval over people, 95 %."""

    mean: float
    low: float
    high: float


class MeasuredTrust(Shape):
    """Which numbers are proved, and which are measured."""

    proved: list[str]
    measured: list[str]


class CertificateNote(Shape):
    trust: Trust
    """checked: the certificate can be re-proved.   claimed: it records a solver's word."""


class WitnessShape(Shape):
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
    witness: WitnessShape | None
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


class Gap(Shape):
    """The largest gap, from both sides."""

    status: Literal["bounded"] = "bounded"
    reason: Reason | None
    """Why the sides are further apart than the tolerance; null: they are not."""
    lower: float
    """Met by the witness, exactly."""
    upper: float | None
    """Certified; null: no bound."""
    scale: Literal["probability", "logit"]
    witness: WitnessShape | None
    certificate: CertificateNote | None
    engine: str
    nodes: Count
    semantics: str
    seconds: Seconds


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
    kind: Literal["individual-fairness"] = "individual-fairness"
    epsilon: float | None
    """Probabilities may differ by so much; null: decisions may not flip."""


class GapQuery(PairQuery):
    kind: Literal["probability-gap"] = "probability-gap"
    scale: Literal["probability", "logit"]


def _versions() -> dict[str, str]:
    from verifair.systems.files import versions

    return versions()


def json_schema(name: str, title: str, made_of: Any) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of what is written of a type; of a file that is read, of what it may hold."""
    is_file = isinstance(made_of, TypeAdapter)
    made = _plain(made_of.json_schema() if is_file else TypeAdapter(made_of).json_schema(mode="serialization"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:verifair:json:{name}", "title": title, **made}


def _plain(node: Any, *, named: bool = False) -> Any:
    """Return the schema without what pydantic adds for other readers. named: the keys of this object are names, not keywords."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    if named:
        return {name: _plain(value) for name, value in node.items()}
    kept = {key: value for key, value in node.items() if key not in ("title", "default", "discriminator", "readOnly")}
    return {key: _plain(value, named=key in ("properties", "$defs")) for key, value in kept.items()}


def json_text(content: Any) -> str:
    """Return the JSON of a result or of plain values, in ASCII: names may hold what no file can be written with."""
    from verifair.systems.files import plain

    return json.dumps(plain(content.model_dump() if isinstance(content, BaseModel) else content), indent=1, allow_nan=False) + "\n"
