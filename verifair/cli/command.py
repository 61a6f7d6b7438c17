"""A system becomes a command: its settings are the options, and what it finds goes to files, to JSON and to the screen.

Everything that all commands have in common stands here once: range errors, "files before the screen", Ctrl-C, time-out, exit codes.
"""

from __future__ import annotations

import inspect
import time
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from verifair.errors import QueryError
from verifair.systems.settings import Option, Run, Settings
from verifair.systems.system import System

RANGES = {
    "greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le"), "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
}
"""pydantic's name of a range error -> how it is told, and where its end is."""


def app_of(system: System, run: Callable[[System, dict[str, Any]], None] | None = None) -> typer.Typer:
    """Return the command of a system. run: what it does with its options; by default what all systems do."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")

    def command(**given: Any) -> None:
        (run or run_system)(system, given)

    groups: tuple[type[Settings], ...] = (system.inputs, system.settings, Run)
    fields = [(name, one) for group in groups for name, one in group.model_fields.items() if group is not Run or name in system.run]
    parameters = [_parameter(name, one, system) for name, one in fields if not marker(one).hidden]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(system.verb, help=system.help)(command)
    return app


def marker(one: FieldInfo) -> Option:
    """Return how a field looks on the command line."""
    return next((mark for mark in one.metadata if isinstance(mark, Option)), Option())


def option_name(name: str, one: FieldInfo) -> str:
    """Return "--json" for a field, MODEL for a positional one."""
    mark = marker(one)
    return mark.name or (name.upper() if mark.argument else "--" + name.replace("_", "-"))


def _parameter(name: str, one: FieldInfo, system: System) -> inspect.Parameter:
    """Return a field as a parameter that Typer reads: its type, its range, its default and its help."""
    mark, default = marker(one), system.defaults.get(name, one.get_default(call_default_factory=True))
    kind, help_text = mark.type or _plain_type(one.annotation), system.helps.get(name, one.description)
    several = get_origin(kind) is list
    shown: Any = (list(default) if isinstance(default, (list, tuple)) and default else None) if several else default
    shown = inspect.Parameter.empty if one.is_required() else shown
    if mark.argument:
        info: Any = typer.Argument(help=help_text, show_default=False, metavar=mark.name)
    else:
        ends = [f"at least {limit.ge:g}" for limit in one.metadata if isinstance(limit, Ge) and isinstance(limit.ge, (int, float))]
        ends += [f"at most {limit.le:g}" for limit in one.metadata if isinstance(limit, Le) and isinstance(limit.le, (int, float))]
        help_text = f"{help_text} ({', '.join(ends)})" if ends and kind in (int, float) else help_text
        names = [option_name(name, one)]
        if kind is bool and default is True:
            names = [f"{names[0]}/--no-{names[0].removeprefix('--')}"]
        info = typer.Option(*names, help=help_text)
    shown = None if mark.unsaid else shown
    optional = shown is None
    annotation: Any = Annotated.__class_getitem__((kind | None if optional else kind, info))  # type: ignore[attr-defined]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=annotation)


def _plain_type(annotation: Any) -> Any:
    """Return the type that Typer reads of a field's: without None, texts for choices, lists for several values."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain_type(inner[0])
    if origin in (Union, types.UnionType):
        return _plain_type(next(one for one in inner if one is not type(None)))
    if origin is Literal:
        return str
    if origin in (tuple, list):
        return list[_plain_type(inner[0])]  # type: ignore[misc]
    return annotation


def build(group: type[Settings], given: dict[str, Any], defaults: Any = ()) -> Any:
    """Return the settings of a group. Raises QueryError that names the option, what was found and what is expected."""
    own = {name: value for name, value in given.items() if name in group.model_fields and value is not None}
    try:
        return group.model_validate({**dict(defaults), **own}, context="command line")
    except ValidationError as error:
        problems = error.errors(include_url=False)
        deeper = {one["loc"][0] for one in problems if len(one["loc"]) > 1}  # a refused item is not also a missing one
        kept = [one for one in problems if one["type"] != "too_short" or one["loc"][0] not in deeper]
        raise QueryError("\n".join(_told(group, one) for one in kept)) from None


def _told(group: type[Settings], problem: Any) -> str:
    """Return one of pydantic's findings as a line for somebody who typed a command."""
    place = [str(part) for part in problem["loc"]]
    text = str(problem["msg"]).removeprefix("Value error, ")
    if not place:
        return text
    option = option_name(place[0], group.model_fields[place[0]])
    found = problem["input"]
    if problem["type"] == "value_error":
        return f"{option} {text}" if not isinstance(found, (int, float, str)) else f"{option} {_word(found)}: {text}"
    if problem["type"] == "literal_error":
        *first, last = [one.strip(" '") for one in problem["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{option} {found}: expected {' or '.join([', '.join(first), last] if first else [last])}"
    if problem["type"] in RANGES:
        words, key = RANGES[problem["type"]]
        return f"{option} {_word(found)}: expected {words} {problem['ctx'][key]:g}"
    return f"{option} {_word(found)}: {text[0].lower()}{text[1:]}".replace("input should be", "expected a value that is")


def _word(found: Any) -> str:
    """Return a value as somebody would type it."""
    return f"{found:g}" if isinstance(found, float) else str(found)


def asked(system: System, given: dict[str, Any]) -> tuple[Any, Any, Run]:
    """Return what was asked for. Raises QueryError for options that are wrong, do not go together, or cannot be written to."""
    from verifair.cli import output

    defaults = {name: value for name, value in system.defaults.items() if name in Run.model_fields}
    run: Run = build(Run, {name: given[name] for name in system.run}, defaults)
    inputs, settings = build(system.inputs, given), build(system.settings, given)
    try:
        settings.check_options(inputs, run)
    except ValueError as error:
        raise QueryError(str(error)) from None
    output.check(system, run, settings)
    return inputs, settings, run


def run_system(system: System, given: dict[str, Any]) -> None:
    """Check the options, read, solve, write the files, then show: whoever pipes the screen into `head` still gets the files."""
    from verifair.cli import output
    from verifair.systems.subject import read

    started = time.monotonic()
    inputs, settings, run = asked(system, given)
    own_read = system.optional("solve", "read")
    with output.ending():
        subject = own_read(inputs, settings) if own_read else read(inputs)
        result = system.part("solve", "solve")(settings, subject, output.work(run, subject, started))
    output.finish(system, run, result)
