"""verifair verify: VNN-LIB queries, answered as the standard and the competition have it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from encoders.network import Network
from encoders.vnnlib.reader import VnnlibQuery, read_vnnlib
from verifair.cli import options
from verifair.cli.helps import HELPS
from verifair.cli.output import save_answer
from verifair.errors import QueryError
from verifair.interop.certificate import VnnlibCertificate, rejections
from verifair.interop.decide import QueryAnswer, VnnlibStatus, check_types, decide, networks_of, rounded_nodes
from verifair.interop.witness import written
from verifair.systems.result import Answer, Count, Seconds

EXITS = {VnnlibStatus.UNSAT: 0, VnnlibStatus.SAT: 10, VnnlibStatus.UNKNOWN: 20, VnnlibStatus.TIMED_OUT: 20}
METHODS = ("auto", "bnb", "milp")


class VerifyAnswer(Answer):
    """`verifair verify`: a VNN-LIB query."""

    query: str
    answer: str
    """In VNN-COMP's words; sat: an assignment was found, unsat: there is none."""
    reason: str | None
    assignment: list[str] | None
    """Lines in VNN-LIB's form."""
    float32_agrees: bool | None
    cases: Count
    engines: list[str]
    trust: Literal["proved", "claimed"] | None
    """Of an unsat."""
    claimed: list[str]
    """Solvers on whose word an unsat rests."""
    rounded: list[str]
    """What was rounded when the network was folded."""
    seconds: Seconds


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("verify", help=HELPS["verify"])
def command(
    query: Annotated[Path, typer.Argument(help="The query, a .vnnlib file (or .vnnlib.gz).", show_default=False)],
    network: Annotated[
        list[str] | None, typer.Option("--network", help="NAME=FILE.onnx for each declared network; FILE.onnx where there is one.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for the query.")] = 60.0,
    as_real: Annotated[bool, typer.Option("--as-real", help="Take floating-point types for real numbers.")] = False,
    results: Annotated[
        Path | None, typer.Option("--results", help="Also write answer and assignment here, in VNN-COMP's words (`timeout`).")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="auto, bnb (proofs of the engine alone) or milp.")] = "auto",
    solver: Annotated[str | None, typer.Option("--solver", help="Backend of milp; see `verifair doctor`.")] = None,
    nodes: options.Nodes = None,
    seed: options.Seed = 0,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Write the proof of an unsat here (.json, .json.gz).")
    ] = None,
    check: Annotated[Path | None, typer.Option("--check", help="Re-prove this certificate instead of solving.")] = None,
    json: options.Json = None,
    exit_verdict: Annotated[bool, typer.Option("--exit-verdict", help="Exit with 0 unsat, 10 sat, 20 otherwise.")] = False,
) -> None:
    if method not in METHODS:
        raise QueryError(f"--method {method}: expected one of {', '.join(METHODS)}")
    options.check_outputs({"--json": json, "--results": results, "--certificate": certificate})
    if check is not None and certificate is not None:
        raise QueryError("--check re-proves a certificate, --certificate writes one: choose one")
    asked = read_vnnlib(query)
    check_types(asked, as_real=as_real)
    networks = networks_of(asked, _files(asked, network or []))
    if check is not None:
        _check(asked, networks, check, json)
        return
    budget = options.budget(timeout, nodes, seed)
    with options.progress_bar("cases") as shown:
        found = decide(asked, networks, budget=budget, method=method, solver=solver, progress=lambda done: shown(done, done + 1))
    text = written(asked, found.assignment) if found.assignment is not None else ""
    typer.echo(f"{found.answer.value}\n{text}", nl=False)
    if results is not None:
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(f"{found.answer.competition}\n{text}", encoding="utf-8")
    _explain(found, options.Output(source="", json=None, certificate=certificate).save_certificate(found.certificate))
    save_answer(json, _answer(query, found, text))
    if exit_verdict:
        raise typer.Exit(EXITS[found.answer])


def _files(query: VnnlibQuery, texts: list[str]) -> dict[str, Path]:
    """Declared name -> file. A lone FILE stands for the only network that has one."""
    own = [declared.name for declared in query.networks if declared.equal_to is None]
    if len(texts) == 1 and len(own) == 1:
        name, equals, file = texts[0].partition("=")
        if not equals or query.version == "1.0":
            return {own[0]: Path(file if equals else name)}
    return {
        name: Path(file)
        for name, file in options.assignments(
            texts, "--network", expected="expected NAME=FILE.onnx, the name as declared in the query", once="give each network once"
        ).items()
    }


def _check(query: VnnlibQuery, networks: Sequence[Network], file: Path, json: Path | None) -> None:
    """Exit code 0 whatever comes out, like `verifair check`: an answer was given."""
    started = time.monotonic()
    given = VnnlibCertificate.load(file)
    wrong = rejections(given, query, networks)
    typer.echo("unsat" if not wrong else "unknown")
    err = Console(stderr=True, highlight=False)
    for line in wrong or [f"{file}: accepted, every case was re-proved"]:
        err.print(line, soft_wrap=True, markup=False)
    found = QueryAnswer(
        answer=VnnlibStatus.UNKNOWN if wrong else VnnlibStatus.UNSAT,
        assignment=None,
        reason="; ".join(wrong) or None,
        cases=len(given.cases),
        certificate=given,
        engines=("checker",),
        claimed=(),
        rounded=rounded_nodes(networks),
        seconds=time.monotonic() - started,
    )
    save_answer(json, _answer(query.path, found, ""))


def _explain(found: QueryAnswer, saved: Path | None) -> None:
    """What the first line does not say, on standard error."""
    err = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        err.print(text, soft_wrap=True, markup=False)

    cases = "1 case" if found.cases == 1 else f"{found.cases} cases"
    say(f"{cases}, {', '.join(found.engines) or 'none to decide'}, {found.seconds:.2f} s")
    if found.answer is VnnlibStatus.UNSAT:
        say("about the real-valued function of the stored weights")
    if found.reason is not None:
        say(f"because: {found.reason}")
    if found.claimed:
        say(f"unsat rests on the word of {', '.join(found.claimed)}, within its tolerances; --method bnb takes no such word")
    if saved is not None:
        say(f"certificate: {saved} (--check {saved} re-proves it)")
    if found.rounded:
        say(f"rounded when folded, so that this is about the folded network: {', '.join(found.rounded)}")
    if found.assignment is not None and found.assignment.agrees is False:
        say("onnxruntime's float32 outputs do not meet the query at this assignment; exact arithmetic does")


def _answer(path: Path, found: QueryAnswer, text: str) -> VerifyAnswer:
    unsat = found.answer is VnnlibStatus.UNSAT
    return VerifyAnswer(
        query=str(path), answer=found.answer.value, reason=found.reason, assignment=text.splitlines() if text else None,
        float32_agrees=found.assignment.agrees if found.assignment is not None else None, cases=found.cases,
        engines=list(found.engines), trust=None if not unsat else "claimed" if found.claimed else "proved",
        claimed=list(found.claimed), rounded=list(found.rounded), seconds=found.seconds,
    )
