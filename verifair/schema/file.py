"""The schema's file format, TOML: its reader, and messages about its problems."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo

from verifair.errors import SchemaError
from verifair.schema.spelling import nearest

Change = Literal["increase", "decrease", "fixed", "free"]
"""The permitted moves of a feature: the words of a schema's `change`."""

LONGEST, MOST_LINES, LONGEST_LINE = 300, 100, 2000
"""The most characters of a value in a message, problems in it, and characters of each."""


MAX_BYTES, MAX_PARTS = 1 << 24, 30
"""The most bytes of a TOML file, and parts of a dotted key: Python's parser takes the square of these in time and memory."""
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*+{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_PARTS}}}", re.MULTILINE)


def read(path: str | Path, what: str = "a schema") -> str:
    """Return the text of a TOML file. what: the kind of file, for errors.   Raises SchemaError if it is missing or no text."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SchemaError(f"{path}: is larger than {MAX_BYTES >> 20} MiB, and {what} is a TOML file that people write")
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror}); pass the path of {what} in TOML") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: is not UTF-8 text; {what} is a TOML file") from error


def loaded(text: str, name: str, what: str) -> dict[str, Any]:
    """Return the content of TOML text. what: the kind of file, for errors.   Raises SchemaError naming `name` and line."""
    if (long_key := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, long_key.start()) + 1
        raise SchemaError(f"{name}: line {line}: a key of more than {MAX_PARTS} parts; {what} has sections of keys, no more")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and so is Python's error for a number of 5,000 digits
        raise SchemaError(f"{name}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise SchemaError(f"{name}: nested too deeply; {what} has sections of keys, no more") from error


def shown(value: Any) -> str:
    """Return a value for a message, cut if it is long: a file may have a megabyte where a word is expected."""
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def with_name(error: Exception, name: str) -> str:
    """Return the problems of a file, one a line that begins with its name, up to MOST_LINES."""
    lines = str(error).splitlines()
    rest = [f"and {len(lines) - MOST_LINES:,} more problems of this file"] if len(lines) > MOST_LINES else []
    return "\n".join(f"{name}: {line[:LONGEST_LINE]}" for line in (*lines[:MOST_LINES], *rest))


def parse(text: str, name: str) -> dict[str, Any]:
    """Return the fields of a schema from TOML text, not yet validated. Raises SchemaError naming `name`, line and remedy."""
    content = loaded(text, name, "a schema")
    unknown = sorted(set(content) - {"model", "feature", "constraint"})
    if unknown:
        raise SchemaError(
            f"{name}: unknown section {', '.join(unknown)}; a schema has [model] and [[feature]] sections, and maybe [[constraint]]"
        )
    features, model = content.get("feature"), content.get("model", {})
    if features is None:
        raise SchemaError(f"{name}: has no [[feature]] section; describe each input column in one")
    if not isinstance(features, list):
        raise SchemaError(f"{name}: [feature] is one section; write [[feature]], with two brackets, once for each feature")
    if not isinstance(model, dict):
        raise SchemaError(f"{name}: model is {shown(model)}; write a [model] section")
    for key, section in (("features", "feature"), ("constraints", "constraint")):
        if key in model:
            raise SchemaError(f"{name}: [model]: {key}: unknown key; describe each {section} in a [[{section}]] section of its own")
    constraints = content.get("constraint", [])
    if not isinstance(constraints, list):
        raise SchemaError(f"{name}: [constraint] is one section; write [[constraint]], with two brackets, once for each constraint")
    return {**model, "features": features, **({"constraints": constraints} if constraints else {})}


def sections(value: Any, kind: type[BaseModel], word: str) -> Any:
    """Return every section validated on its own, so that all problems are reported at once and each names its feature or
    constraint."""
    if not isinstance(value, (list, tuple)):
        return value
    result, lines = [], []
    for number, content in enumerate(value, start=1):
        if not isinstance(content, (Mapping, kind)):
            lines.append(f"{word} number {number}: found {shown(content)}, expected a [[{word}]] section")
            continue
        try:
            result.append(content if isinstance(content, kind) else kind.model_validate(content))
        except SchemaError as error:
            lines += str(error).replace(f"{word} without a name: ", f"{word} number {number}: ").splitlines()
    if lines:
        raise ValueError("\n".join(lines))
    return result


class SchemaPart(BaseModel):
    """A part of a schema. Raises SchemaError, one line a problem, where pydantic would raise its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    WORD: ClassVar[str] = ""
    """The word for such a part in errors, beside its name."""
    KNOWN: ClassVar[Sequence[str]] = ()
    """The keys named in errors, if not all of its fields are keys."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            model = handler(data)
            lines = (model.flaw() or "").splitlines()
        except ValidationError as error:
            lines = list(problems(error, cls, cls.KNOWN))
        if not lines:
            return model
        name = data.get("name") if isinstance(data, Mapping) else None
        prefix = (f"{cls.WORD} {name!r}: " if name else f"{cls.WORD} without a name: ") if cls.WORD else ""
        raise SchemaError("\n".join(prefix + line for line in lines))

    def flaw(self) -> str | None:
        """Return why fields that are valid by themselves do not fit together, or None."""
        raise NotImplementedError


def problems(error: ValidationError, kind: type[BaseModel], keys: Sequence[str] = ()) -> Iterator[str]:
    """Yield pydantic's problems in plain words, one line each: key, what was found, the remedy.

    kind: the type that was read.   keys: its keys, if not all of its fields are keys.
    """
    keys = keys or [field.alias or name for name, field in kind.model_fields.items()]
    for problem in error.errors():
        tags = ("word", "affine")
        key = ".".join(str(part) for part in problem["loc"] if part not in tags)
        value = problem["input"]
        match problem["type"]:
            case "extra_forbidden":
                yield f"{key}: unknown key; {nearest(key, keys)}"
            case "missing":
                yield f"{key}: is missing; add it"
            case "value_error" if not key or key in ("features", "constraints"):
                yield from str(problem["ctx"]["error"]).splitlines()
            case "too_short" if key == "features":
                yield "there is no feature; describe each input column in a [[feature]] section"
            case "value_error":
                for line in str(problem["ctx"]["error"]).splitlines():
                    yield f"{key}: {line}"
            case error_type if error_type in RANGES:
                yield f"{key} = {shown(value)}, expected {expected(problem, kind)}"
            case _:
                text = problem["msg"].removeprefix("Value error, ").replace("valid tuple", "valid list")
                yield f"{key}: {text}, found {shown(value)}"


RANGES = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}
"""pydantic's name of a range error -> the end that was passed."""
ENDS = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}


def expected(problem: Any, kind: type[BaseModel]) -> str:
    """Return the whole range of a field of `kind` that a value lies outside of, and its default as an example."""
    field = next((f for name, f in kind.model_fields.items() if problem["loc"][:1] in ((name,), (f.alias,))), None)
    marks = list(_marks(field))
    bounds = {end: getattr(mark, end) for end in ENDS for mark in marks if isinstance(getattr(mark, end, None), (int, float))}
    limit = RANGES[problem["type"]]
    if bounds.get(limit) != problem["ctx"][limit]:  # the range belongs to another model within the field
        marks, bounds = [], {limit: problem["ctx"][limit]}
    text = " and ".join(f"{ENDS[end]} {value:.10g}" for end, value in bounds.items())
    if set(bounds) == {"ge", "le"}:
        text = f"from {bounds['ge']:.10g} to {bounds['le']:.10g}"
    default = field.default if field is not None and marks else None
    example = default[0] if isinstance(default, tuple) and default else default
    example_text = f", such as {example:.10g}" if isinstance(example, (int, float)) else ""
    return f"a {'whole ' if int in marks and float not in marks else ''}number {text}{example_text}"


def _marks(kind: Any) -> Iterator[Any]:
    """Yield a type, its parts, and the annotations of all of them."""
    yield kind
    for part in (kind.annotation, *kind.metadata) if isinstance(kind, FieldInfo) else get_args(kind):
        yield from _marks(part)
