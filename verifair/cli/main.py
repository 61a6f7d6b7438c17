"""The verbs and the exit codes: 0 an answer, 2 usage or bad input, 3 unsupported model, 4 backend, 5 internal, 6 disagreement."""

from __future__ import annotations

import os
import sys
import traceback

import typer
from rich.console import Console

from encoders.errors import ModelError
from solvers.errors import BackendError
from verifair.cli import (
    audit,
    bench,
    cec,
    certify,
    check,
    cst,
    doctor,
    explain,
    export,
    fgce,
    guard,
    kmax,
    pba,
    schema,
    train,
    verify,
)
from verifair.errors import VerifairError

app = typer.Typer(
    name="verifair",
    help="Proofs, exact counterexamples and bounds for the fairness of trained networks (ONNX).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
pba.register(app)
certify.register(app)
check.register(app)
explain.register(app)
guard.register(app)
kmax.register(app)
fgce.register(app)
cec.register(app)
cst.register(app)
train.register(app)
export.register(app)
verify.register(app)
bench.register(app)
audit.register(app)
doctor.register(app)
app.add_typer(schema.app, name="schema")



def main() -> None:
    """Entry point of the `verifair` command."""
    error_console = Console(stderr=True, highlight=False)
    try:
        app()
    except (VerifairError, ModelError, BackendError) as error:
        error_console.print(f"[red]error:[/] {_escaped(str(error))}", soft_wrap=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; write nothing more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a file or folder that cannot be written or read, whichever verb met it
        place = f"{error.filename}: " if error.filename else ""
        error_console.print(f"[red]error:[/] {_escaped(place + (error.strerror or str(error)))}", soft_wrap=True)
        sys.exit(2)
    except Exception:
        error_console.print("[red]internal error[/] - this is a bug in verifair, please report it with the lines below:")
        traceback.print_exc()
        sys.exit(5)


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
