"""Commands of systems: the settings become options, and the answer goes to files, to JSON and to the screen.

Everything that all commands share is here: range errors, files before the screen, Ctrl-C, time-out, exit codes.
"""

from __future__ import annotations

import inspect
import re
import time
import types
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from verifair.errors import QueryError
from verifair.schema import file as schema_file
from verifair.systems.settings import Option, Run, Settings
from verifair.systems.system import System

NOTHING_KEPT = "interrupted: nothing is kept"
"""Default message of a command that Ctrl-C ended; `verifair.__main__` says it before this is loaded."""


def app_of(system: System, run: Callable[[System, dict[str, Any]], None] | None = None) -> typer.Typer:
    """Return the command of a system.   run: function of its options; by default `run_system`."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")

    def command(context: typer.Context, **options: Any) -> None:
        names = [name for name in options if getattr(context.get_parameter_source(name), "name", None) != "DEFAULT"]
        from verifair.cli.output import ending

        with ending():
            (run or run_system)(system, {name: options[name] for name in names})

    groups: tuple[type[Settings], ...] = (system.inputs, system.settings, Run)
    fields = [(name, f) for group in groups for name, f in group.model_fields.items() if group is not Run or name in system.run]
    parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [_parameter(name, field, system) for name, field in fields if not marker(field).hidden]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(system.verb, help=re.sub(r"(?<=\S)\n(?=\S)", " ", system.help))(command)  # Typer would keep line ends
    return app


def marker(field: FieldInfo) -> Option:
    """Return the `Option` of a field."""
    return next((mark for mark in field.metadata if isinstance(mark, Option)), Option())


def option_name(name: str, field: FieldInfo) -> str:
    """Return "--json" for a field, MODEL for a positional one, "--no-bound" for what is true by default."""
    mark = marker(field)
    no = "no-" if mark.without else ""
    return mark.name or (name.upper() if mark.argument else f"--{no}{name.replace('_', '-')}")


def _parameter(name: str, field: FieldInfo, system: System) -> inspect.Parameter:
    """Return a field as a parameter that Typer reads: its type, its range, its default and its help."""
    mark, default = marker(field), system.defaults.get(name, field.get_default(call_default_factory=True))
    kind, help_text = mark.type or _plain_type(field.annotation), system.helps.get(name, field.description)
    is_list = get_origin(kind) is list
    shown: Any = (list(default) if isinstance(default, (list, tuple)) and default else None) if is_list else default
    shown = inspect.Parameter.empty if field.is_required() else shown
    if mark.argument:
        info: Any = typer.Argument(help=help_text, show_default=False, metavar=mark.name)
    else:
        limits = [f"at least {m.ge:,.10g}" for m in field.metadata if isinstance(m, Ge) and isinstance(m.ge, (int, float))]
        limits += [f"at most {m.le:,.10g}" for m in field.metadata if isinstance(m, Le) and isinstance(m.le, (int, float))]
        help_text = f"{help_text} ({', '.join(limits)})" if limits and kind in (int, float) else help_text
        shown, negate = (shown, None) if mark.without is None else (False, lambda typed: not typed)
        info = typer.Option(option_name(name, field), help=mark.without or help_text, callback=negate)
    shown = None if mark.unsaid else shown
    optional = shown is None
    annotation: Any = Annotated[(kind | None if optional else kind, info)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=annotation)


def _plain_type(annotation: Any) -> Any:
    """Return a field's type in Typer's form: without None, texts for choices, lists for several values."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain_type(inner[0])
    if origin in (Union, types.UnionType):
        return _plain_type(next(part for part in inner if part is not type(None)))
    if origin is Literal:
        return str
    if origin in (tuple, list):
        return list[_plain_type(inner[0])]  # type: ignore[misc]
    return annotation


def build(group: type[Settings], arguments: dict[str, Any], defaults: Mapping[str, Any] | None = None) -> Any:
    """Return the settings of a group. Raises QueryError that names the option, the value found and the expected form."""
    values, others = ({name: v for name, v in part.items() if name in group.model_fields} for part in (arguments, defaults or {}))
    try:
        return group.of(values, others, context="command line")
    except ValidationError as error:
        problems = error.errors(include_url=False)
        item_fields = {e["loc"][0] for e in problems if len(e["loc"]) > 1}  # a refused item is not also a missing one
        kept = [problem for problem in problems if problem["type"] != "too_short" or problem["loc"][0] not in item_fields]
        raise QueryError("\n".join(_problem_line(group, problem) for problem in kept)) from None


def _problem_line(group: type[Settings], problem: Any) -> str:
    """Return one of pydantic's errors as a line for the user of a command."""
    location = [str(part) for part in problem["loc"]]
    text = str(problem["msg"]).removeprefix("Value error, ")
    if not location:
        return text
    field = group.model_fields[location[0]]
    item = f"{location[1]}=" if get_origin(field.annotation) is dict and len(location) > 1 else ""  # of feature=value
    option = f"{option_name(location[0], field)} {item}{_word(problem['input'])}"
    if problem["type"] == "value_error":
        return f"{option}: {text}" if item or isinstance(problem["input"], (int, float, str)) else f"{option.split()[0]} {text}"
    if problem["type"] == "literal_error":
        *first, last = [choice.strip(" '") for choice in problem["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{option}: expected {' or '.join([', '.join(first), last] if first else [last])}"
    if problem["type"] in schema_file.RANGES:
        return f"{option}: expected {schema_file.expected(problem, group)}"
    return f"{option}: {text[0].lower()}{text[1:]}".replace("input should be", "expected")


def _word(value: Any) -> str:
    """Return a value as it would be typed."""
    if isinstance(value, tuple):
        return ",".join(map(_word, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_options(system: System, arguments: dict[str, Any]) -> tuple[Any, Any, Run]:
    """Return the settings, inputs and run options. Raises QueryError for wrong or conflicting options, and files that cannot be
    written."""
    from verifair.cli import output

    run: Run = build(Run, {name: value for name, value in arguments.items() if name in system.run}, system.defaults)
    inputs, settings = build(system.inputs, arguments, system.defaults), build(system.settings, arguments)
    for name, owners in settings.strays(inputs, run):
        words = [f"{_option(system, to)}{'' if value in (None, True) else f' {value}'}" for to, value in owners]
        option, owner_text = _option(system, name), " or ".join(words)
        raise QueryError(f"{option} belongs to {owner_text}: add {owner_text if len(words) == 1 else 'one'}, or drop {option}")
    try:
        settings.check_options(inputs, run)
    except ValueError as error:
        raise QueryError(str(error)) from None
    output.check(system, run, settings)
    return inputs, settings, run


def _option(system: System, name: str) -> str:
    """Return the option, such as "--json", for the name of a field of any group."""
    group = next(g for g in (system.settings, system.inputs, Run) if name in g.model_fields)
    return option_name(name, group.model_fields[name])


def run_system(system: System, arguments: dict[str, Any]) -> None:
    """Check the options, read, solve, write the files, then print: the files are there even if the screen is piped into `head`."""
    from verifair.cli import output, warned
    from verifair.engine.cluster import cluster
    from verifair.engine.search.ready import ready
    from verifair.systems.subject import read

    started = time.monotonic()
    inputs, settings, run = parse_options(system, arguments)
    system_read = system.optional("solve", "read")
    subject = system_read(inputs, settings) if system_read else read(inputs, getattr(settings, "protected", ()))
    if getattr(inputs, "missing", "error") != "error":
        output.tell(f"table: {subject.words}")
    started += ready(getattr(subject, "network", None))
    with ExitStack() as resources, warned.shown():
        if run.out is not None:
            resources.enter_context(output.alone_in(run.out))
        with cluster(run.cluster):
            result = system.part("solve", "solve")(settings, subject, output.work(run, subject, started, resources))
        output.finish(system, run, result)
