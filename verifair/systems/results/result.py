"""Results: one typed object for each system. Its fields are the JSON; tables, pictures, sentences and the page are made from it.

A field with `exclude=True` is for tables and pictures alone and stays out of the JSON. The JSON schema is generated from the types,
with the docstrings of the fields as descriptions.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic_core import core_schema

from verifair.checker.certificates.extent import Sha256
from verifair.errors import QueryError
from verifair.notebook.shown import Pictured

if TYPE_CHECKING:
    import pandas as pd

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
"""checked: `verifair check` can prove it again.   claimed: a solver's claim."""
Measured = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}]})]
"""NaN if there was nothing to measure; null in the JSON."""
Table = list[dict[str, Any]]
"""Rows of a table whose columns depend on the question."""


class Shape(BaseModel):
    """An object with these keys and no others. It can also be built from any object with such attributes."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, frozen=True, protected_namespaces=(), arbitrary_types_allowed=True,
        from_attributes=True, defer_build=True,  # most are only built as parts of others
        serialize_by_alias=True, populate_by_name=True, json_schema_serialization_defaults_required=True,
    )


class RowsOf:
    """`Annotated[pd.DataFrame, RowsOf(Line)]`: a table whose JSON is a list of objects of the type Line, one for each row."""

    def __init__(self, line: Any) -> None:
        self.line = line

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        import pandas as pd

        def rows(frame: pd.DataFrame, info: SerializationInfo) -> Any:
            """Return the rows as objects, made by `info.context` if there is one: it writes files row by row."""
            return info.context(frame) if info.context else frame.to_dict(orient="records")

        records = core_schema.plain_serializer_function_ser_schema(rows, info_arg=True)
        return core_schema.json_or_python_schema(
            json_schema=core_schema.list_schema(handler.generate_schema(self.line)),
            python_schema=core_schema.is_instance_schema(pd.DataFrame), serialization=records,
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        return handler(schema["json_schema"])


class Answer(Shape):
    """The base of all answers: the versions that made them."""

    versions: dict[str, str] = Field(default_factory=lambda: _versions(), repr=False)
    """Package -> version, of the packages that made the answer."""


class SystemAnswer(Pictured, Answer):
    """The answer of a system, which may have been cut short. A notebook shows the first of its tables and of its pictures."""

    interrupted: str | None = Field(default=None, exclude=True, repr=False)
    """A note on a run that Ctrl-C cut short; null if it was not."""
    exit_code: int = Field(default=0, exclude=True, repr=False)
    """Exit code of the command with --exit-verdict."""

    def to_frame(self) -> pd.DataFrame:
        """Return the first table that the system writes; if it writes none, one row for each field, abbreviated."""
        tables = part(_package(self), "tables", "tables")
        frames: dict[str, pd.DataFrame] = {} if tables is None else tables(self)
        return next(iter(frames.values())) if frames else super().to_frame()

    def _repr_html_(self) -> str:
        from verifair.notebook.tables import headline, html

        return html(headline(self), self.to_frame())

    def _draw(self, path: Path) -> None:
        plot, plots = (part(_package(self), "plots", name) for name in ("plot", "plots"))
        draw = None if plot is None else partial(plot, self)
        draw = draw or next(iter({} if plots is None else plots(self).values()), None)
        if draw is None:
            raise QueryError(f"a {type(self).__name__} has no picture; to_frame() gives it as a table")
        draw(path)

    def whole(self) -> Self:
        """Return the answer. Raises KeyboardInterrupt if Ctrl-C cut the run short."""
        if self.interrupted is not None:
            raise KeyboardInterrupt
        return self


class Result(SystemAnswer):
    """The answer of a system about a model and a schema."""

    model_sha256: Sha256 = Field(repr=False)
    """SHA-256 of the ONNX file."""
    schema_sha256: Sha256 = Field(repr=False)
    """SHA-256 of the schema as it was read."""
    seconds: Seconds = Field(repr=False)
    seed: Seed = Field(repr=False)


class Interval(Shape):
    """A mean over people with its 95 % interval; the ends are null for too few people."""

    mean: float
    low: Measured
    high: Measured


class MeasuredTrust(Shape):
    """The numbers that are proved, and those that are measured."""

    proved: list[str]
    measured: list[str]


def part(package: str, module: str, name: str) -> Any:
    """Import a module of a system's folder and return a name of it; None if there is no such module or name."""
    return getattr(import_module(f"{package}.{module}"), name, None) if find_spec(f"{package}.{module}") else None


def _package(answer: SystemAnswer) -> str:
    return type(answer).__module__.rpartition(".")[0]


def _versions() -> dict[str, str]:
    from verifair.systems.results.files import versions

    return versions()


def json_schema(name: str, title: str, made_of: Any) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a type as it is written or, for files that are read, as it may be."""
    is_file = isinstance(made_of, TypeAdapter)
    schema = _plain(made_of.json_schema() if is_file else TypeAdapter(made_of).json_schema(mode="serialization"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:verifair:json:{name}", "title": title, **schema}


def _plain(node: Any, *, named: bool = False) -> Any:
    """Return the schema without keywords that pydantic adds.   named: the keys of this object are names, not keywords."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    if named:
        return {name: _plain(value) for name, value in node.items()}
    keywords = {key: value for key, value in node.items() if key not in ("title", "default", "discriminator", "readOnly")}
    return {key: _plain(value, named=key in ("properties", "$defs")) for key, value in keywords.items()}
