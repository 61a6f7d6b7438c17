"""verifair verify: VNN-LIB queries, answered as the standard and the competition require."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from encoders.text import visible_lines
from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.errors import QueryError
from verifair.notebook.progress import progress_bar
from verifair.systems.results.result import Answer, Count, Seconds
from verifair.systems.settings import Option, Run, Settings, assignments
from verifair.systems.system import System

if TYPE_CHECKING:
    from encoders.network import Network
    from encoders.vnnlib.reader import VnnlibQuery
    from verifair.interop.decide import QueryAnswer

EXITS = {"unsat": 0, "sat": 10}
"""Answer -> exit code with --exit-verdict; 20 for the others."""


class VerifySettings(Settings):
    """The settings of `verifair verify`: a query, its networks, and the method."""

    query: Annotated[Path, Option(argument=True)]
    """The query, a .vnnlib file (or .vnnlib.gz)."""
    network: tuple[str, ...] = ()
    """NAME=FILE.onnx for each network that the query declares; FILE.onnx alone if it declares one."""
    as_real: bool = False
    """Treat declared floating-point types as real numbers."""
    results: Path | None = None
    """Also write answer and assignment here, in VNN-COMP's words (`timeout`)."""
    method: Literal["auto", "bnb", "milp"] = "auto"
    """auto, bnb (branch and bound: only proofs that can be checked) or milp."""
    solver: str | None = None
    """Backend of milp; see `verifair doctor`."""
    check: Path | None = None
    """Check this certificate again instead of solving."""

    @property
    def files(self) -> dict[str, Path | None]:
        """Return option -> file, for options that name files to write."""
        return {"--results": self.results}

    def check_options(self, inputs: Any, run: Run) -> None:
        """Raise ValueError if two tasks are given at once."""
        if self.check is not None and run.certificate is not None:
            raise ValueError("--check re-proves a certificate, --certificate writes one: choose one")
        if self.method == "bnb" and self.solver is not None:
            raise ValueError(f"--solver {self.solver}: bnb asks no solver; drop it, or choose auto or milp")


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
    """Trust of an unsat."""
    claimed: list[str]
    """Solvers on whose word an unsat rests."""
    rounded: list[str]
    """Nodes that were rounded when the network was folded."""
    seconds: Seconds


def run(system: System, arguments: dict[str, Any]) -> None:
    """Read the query, decide it, and print the answer."""
    from encoders.vnnlib.reader import read_vnnlib
    from verifair.cli.output import save_answer, work
    from verifair.interop.decide import check_types, decide, networks_of
    from verifair.interop.witness import written
    from verifair.systems.results.files import save_text
    from verifair.systems.work import budget

    started = time.monotonic()
    _, settings, files = parse_options(system, arguments)
    query = read_vnnlib(settings.query)
    check_types(query, as_real=settings.as_real)
    networks = networks_of(query, _files(query, settings.network))
    if settings.check is not None:
        if not _check(query, networks, settings.check, files.json_file):
            raise typer.Exit(20 if files.exit_verdict else 1)
        return
    remaining = max(files.timeout - (time.monotonic() - started), 1e-3)
    with progress_bar("cases") as show:
        answer = decide(
            query, networks, budget=budget(remaining, files.nodes, files.seed), method=settings.method, solver=settings.solver,
            progress=lambda done: show(done, done + 1),
        )
    text = written(query, answer.assignment) if answer.assignment is not None else ""
    typer.echo(visible_lines(f"{answer.answer.value}\n{text}"), nl=False)
    if settings.results is not None:
        settings.results.parent.mkdir(parents=True, exist_ok=True)
        save_text(settings.results, f"{answer.answer.competition}\n{text}")
    _explain(answer, work(files, None, started).save_certificate(answer.certificate))
    save_answer(files.json_file, _answer(settings.query, answer, text))
    if files.exit_verdict:
        raise typer.Exit(EXITS.get(answer.answer.value, 20))


def _files(query: VnnlibQuery, texts: Sequence[str]) -> dict[str, Path]:
    """Return declared name -> file. A single FILE without a name is that of the only network that needs one."""
    needed = [declared.name for declared in query.networks if declared.equal_to is None]
    if len(texts) == 1 and len(needed) == 1:
        name, equals, file = texts[0].partition("=")
        if not equals or query.version == "1.0":
            return {needed[0]: Path(file if equals else name)}
    expected = "expected NAME=FILE.onnx, the name as declared in the query"
    try:
        files = assignments(texts, expected=expected, once="give each network once")
    except ValueError as error:
        raise QueryError(f"--network {error}") from None
    return {name: Path(file) for name, file in files.items()}


def _check(query: VnnlibQuery, networks: Sequence[Network], file: Path, json: Path | None) -> bool:
    """Print whether the certificate proves the query, and return True if it does."""
    from verifair.cli.output import save_answer, tell
    from verifair.interop.certificate import VnnlibCertificate, rejections
    from verifair.interop.decide import QueryAnswer, VnnlibStatus, rounded_nodes

    started = time.monotonic()
    certificate = VnnlibCertificate.load(file)
    problems = rejections(certificate, query, networks)
    typer.echo("unsat" if not problems else "unknown")
    for line in problems or [f"{file}: accepted, every case was re-proved"]:
        tell(line)
    answer = QueryAnswer(
        answer=VnnlibStatus.UNKNOWN if problems else VnnlibStatus.UNSAT, assignment=None, reason="; ".join(problems) or None,
        cases=len(certificate.cases), certificate=certificate, engines=("checker",), claimed=(), rounded=rounded_nodes(networks),
        seconds=time.monotonic() - started,
    )
    save_answer(json, _answer(query.path, answer, ""))
    return not problems


def _explain(answer: QueryAnswer, saved: Path | None) -> None:
    """Print details beyond the first line on standard error."""
    from verifair.cli.output import tell
    from verifair.systems.results.words import listed

    cases = "1 case" if answer.cases == 1 else f"{answer.cases} cases"
    methods = dict.fromkeys(engine.partition(" (")[0] for engine in answer.engines)  # the JSON says in which form each was asked
    tell(f"{cases}{f', by {listed([*methods])}' if methods else ', none to decide'}, {answer.seconds:.2f} s")
    if answer.answer.value == "unsat":
        tell("about the real-valued function of the stored weights")
    if answer.reason is not None:
        tell(f"because: {answer.reason}")
    if answer.claimed:
        tell(f"unsat rests on the word of {', '.join(answer.claimed)}, within its tolerances; --method bnb takes no such word")
    if saved is not None:
        tell(f"certificate: {saved} (--check {saved} re-proves it)")
    if answer.rounded:
        tell(f"rounded when folded, so that this is about the folded network: {', '.join(answer.rounded)}")
    if answer.assignment is not None and answer.assignment.agrees is False:
        tell("onnxruntime's float32 outputs do not meet the query at this assignment; exact arithmetic does")


def _answer(path: Path, answer: QueryAnswer, text: str) -> VerifyAnswer:
    unsat = answer.answer.value == "unsat"
    return VerifyAnswer(
        query=str(path), answer=answer.answer.value, reason=answer.reason, assignment=text.splitlines() if text else None,
        float32_agrees=answer.assignment.agrees if answer.assignment is not None else None, cases=answer.cases,
        engines=list(answer.engines), trust=None if not unsat else "claimed" if answer.claimed else "proved",
        claimed=list(answer.claimed), rounded=list(answer.rounded), seconds=answer.seconds,
    )


SYSTEM = System(
    verb="verify", help=HELPS["verify"], settings=VerifySettings, inputs=Settings,
    run=("timeout", "nodes", "seed", "certificate", "json_file", "exit_verdict"), defaults={"timeout": 60.0},
    helps={
        "timeout": "Seconds for the query.", "certificate": "Write the proof of an unsat here (.json, .json.gz).",
        "exit_verdict": "Exit with 0 unsat, 10 sat, 20 otherwise.",
    },
)
app = app_of(SYSTEM, run)
