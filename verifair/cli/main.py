"""The verbs and the exit codes: 0 an answer, 2 usage or bad input, 3 unsupported model, 4 backend, 5 internal, 6 disagreement.

Also: 1 if `check` does not accept, 10 and 20 with --exit-verdict, 130 after Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from encoders.text import visible_lines
from verifair import __version__
from verifair.cli.command import NOTHING_KEPT, app_of
from verifair.cli.helps import HELPS
from verifair.errors import INTERRUPTED
from verifair.memory import keep_freed
from verifair.screen import Screen
from verifair.systems.system import SYSTEMS, system

OTHER_VERBS = ("check", "train", "export", "verify", "bench", "audit", "reproduce", "doctor", "schema")
"""Verbs that are no systems, each a module of this package."""
ORDER = ("audit", "pba", "certify", "check", "explain", "guard", "kmax", "fgce", "cec", "cst")
"""Verbs that come first in the help, in this order."""


def verbs() -> tuple[str, ...]:
    """Return every verb: the systems' and our own."""
    return tuple(dict.fromkeys((*ORDER, *SYSTEMS, *OTHER_VERBS)))


SYNONYMS = {"--protected": "--sensitive", "--sensitive": "--protected"}
"""What some verbs call --protected, others --sensitive: an option that a verb has not -> what it may call it."""


class Verbs(TyperGroup):
    """Loads a verb's module only when the verb runs: importing all of them takes seconds.

    Types are Any: Typer brings its own copy of click, or uses the package, depending on its version.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(verbs())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb's entry for the list of verbs; `resolve_command` finds the command itself."""
        return TyperCommand(name=cmd_name, help=first_sentence(cmd_name)) if cmd_name in verbs() else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in verbs():
            return args[0], get_command(_app(args[0])), args[1:]
        self.commands.update({verb: self.get_command(ctx, verb) for verb in verbs()})  # for "did you mean"
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **settings: Any) -> Any:
        with _visible_errors():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _visible_errors():
            return super().invoke(ctx)


@contextmanager
def _visible_errors() -> Iterator[None]:
    """Make Typer's usage errors safe to print: Typer prints them itself, and they repeat words of the command line, such as file
    names. Also handle Ctrl-C while a verb is loaded, about which Typer prints nothing."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(NOTHING_KEPT, err=True)
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        synonym = SYNONYMS.get(getattr(error, "option_name", None) or "")
        if synonym is not None and any(synonym in p.opts for p in error.ctx.command.params):  # type: ignore[attr-defined]
            error.possibilities = [synonym]  # type: ignore[attr-defined]
        if isinstance(message := getattr(error, "message", None), str):
            error.message = visible_lines(message)  # type: ignore[attr-defined]
        raise


def _app(verb: str) -> typer.Typer:
    """Return a verb's command: made from its system's settings, or written in this package."""
    if verb in SYSTEMS:
        return app_of(system(verb))
    app: typer.Typer = import_module(f"verifair.cli.{verb}").app
    return app


def first_sentence(verb: str) -> str:
    """Return the first sentence of a verb's help, in one line, for the list of verbs."""
    return " ".join((system(verb).help if verb in SYSTEMS else HELPS[verb]).split()).split(". ")[0].removesuffix(".") + "."


app = typer.Typer(
    name="verifair",
    cls=Verbs,
    help="Proofs, exact counterexamples and bounds for the fairness of trained models: networks and tree ensembles.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"verifair {__version__}")
        raise typer.Exit


@app.callback()
def verifair(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Make the application a group, whose verbs are found as above; this is not a verb."""


def main() -> None:
    """Entry point of the `verifair` command."""
    keep_freed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # undecodable bytes of file names, and letters that a terminal lacks, are escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:
        # The reader of our output is gone; write nothing more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a file or folder that a verb cannot write or read
        path = f"{error.filename}: " if error.filename else ""
        remedy = "; make room there, or name another place" if error.errno == ENOSPC else ""
        _say("error:", path + (error.strerror or str(error)) + remedy)
        sys.exit(2)
    except Exception as error:
        code = getattr(error, "exit_code", None)  # errors that a user can cause have one
        if isinstance(code, int):
            _say("error:", str(error))
            sys.exit(code)
        report = "- this is a bug in verifair, please report it with the lines below:"
        _say("internal error", f"{report}\n{traceback.format_exc().rstrip()}")
        sys.exit(5)


def _say(kind: str, text: str) -> None:
    screen = Screen(stderr=True)
    screen.print(kind, style="red", end=" ")
    screen.print(text, soft_wrap=True)
