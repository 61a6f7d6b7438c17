"""verifair audit: all analyses of one model, as one page that an auditor can read and re-check."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from pydantic import Field
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from verifair.auditing.settings import known_analyses
from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.errors import QueryError
from verifair.screen import Screen
from verifair.systems.settings import Missing, Option, Outside, Positive, Settings
from verifair.systems.system import System

if TYPE_CHECKING:
    from verifair.auditing.audit_file import AuditFile
    from verifair.auditing.drafted import DraftedFiles
    from verifair.auditing.result import AuditResult
    from verifair.auditing.run import Places
    from verifair.systems.results.findings import Section

STYLES = {
    "proved": "green", "refuted": "red", "claimed": "yellow", "measured": "cyan", "unknown": "yellow", "skipped": "yellow",
}
"""Standing of a statement -> its colour on the screen."""
CHANGED = ("worse", "better", "moved", "not clear", "incomparable")
"""Standings of changes in the order of the screen."""


class AuditSettings(Settings):
    """The audit file, or the inputs of its draft, and the files to write."""

    belongs: ClassVar = {
        **dict.fromkeys(("data", "target", "schema_file", "sensitive", "missing", "outside"), (("model", None),)),
        "positive": (("target", None),),
    }
    file: Annotated[Path | None, Option(name="AUDIT.toml", argument=True)] = None
    """What to audit, and how (TOML)."""
    model: Path | None = None
    """The model (ONNX), in place of an audit file: one is drafted beside the page."""
    data: Path | None = None
    """The table of people (CSV, CSV.GZ or Parquet), for --model."""
    target: str | None = None
    """Label column of --data. A schema is drafted from the table and written beside the page."""
    positive: str | None = None
    """Label value of the favourable class."""
    schema_file: Annotated[Path | None, Option(name="--schema")] = None
    """A schema (TOML) that you have checked, in place of --target."""
    sensitive: Annotated[tuple[str, ...], Option(type=list[str])] = ()
    """Feature whose value should not matter, such as sex (--protected of other commands); repeat."""
    missing: Missing = "error"
    outside: Outside = "error"
    demo: str | None = None
    """Audit a shipped network: german or adult."""
    out: Path | None = None
    """The page to write (.html); proofs go into a folder beside it."""
    junit: Path | None = None
    """Write the thresholds of the audit file's gate as JUnit XML."""
    sarif: Path | None = None
    """Write the thresholds that are not met as SARIF."""
    summary: Path | None = None
    """Write a summary for a pull request (Markdown)."""
    model_card: Path | None = None
    """Write a model card (Markdown with the front matter of Hugging Face)."""
    against: Path | None = None
    """Another audit to compare with: the JSON beside its page, or its audit file (.toml), which is then run first."""
    only: str | None = None
    """Run only these analyses, separated by commas: pba,kmax."""
    effort: Positive | None = None
    """Work of the whole audit, in seconds of one idle core: counted, not timed (default: the file's, at most --timeout)."""
    timeout: Positive | None = None
    """Seconds by the clock after which the rest is left out (default: the file's)."""
    seed: Annotated[int | None, Field(ge=0)] = None
    """Seed of every random draw (default: the file's)."""
    root: Path | None = None
    """Folder in which all paths of the audit file must lie (default: the audit file's own)."""
    write_example: Path | None = None
    """Write an example of an audit file, and exit."""


def run(system: System, arguments: dict[str, Any]) -> None:
    """Read the audit file, run its analyses, write the page, and show its summary."""
    from verifair.auditing.audit_file import load
    from verifair.auditing.run import run as run_audit
    from verifair.auditing.subject import read
    from verifair.cli.output import check_outputs
    from verifair.cli.warned import shown
    from verifair.engine.cluster import cluster
    from verifair.interrupts import keeping
    from verifair.locks import alone
    from verifair.systems.results.findings import Standing

    _, settings, files = parse_options(system, arguments)
    if settings.write_example is not None:
        _write_example(settings.write_example)
        return
    path = _path(settings)
    if settings.out is None:
        raise QueryError("audit needs --out PAGE.html, the page to write")
    places = _places(settings.out, files.json_file)
    reports, screen = {"--junit": settings.junit, "--sarif": settings.sarif}, Screen()
    option = next((option for option, report in reports.items() if report is not None), None)
    if path is None and option is not None:
        raise QueryError(
            f"{option} tells of a gate, and --model drafts none: leave {option} out, add [gate] to the audit file that is drafted, "
            "such as four_fifths = 0.8, and audit that file"
        )
    with ExitStack() as checks:  # drafts, which are removed if a check refuses them
        drafted, root = None, settings.root
        if path is None:
            drafted = checks.enter_context(_drafted(settings, places))
            path, root = drafted.audit, drafted.root
        file = load(path, root=root)
        if option is not None and file.gate is None:
            raise QueryError(f"{option}: {file.name} has no [gate] section; add one, such as four_fifths = 0.8, or drop {option}")
        timeout = file.head.timeout if settings.timeout is None else settings.timeout
        effort = min(file.head.effort, timeout) if settings.effort is None else settings.effort
        seed = file.head.seed if settings.seed is None else settings.seed
        analyses = _selected(settings.only, list(file.analyses))
        places.check()
        check_outputs({**reports, "--summary": settings.summary, "--model-card": settings.model_card})
        subject = read(file)
        against = None if settings.against is None else _against(settings.against, places, settings.root)
    if drafted is not None:
        _print_drafted(drafted, places, screen)
    on_interrupt = keeping("finished analyses are kept; run the same command with --resume to go on")
    config = files.model_copy(update={"timeout": timeout, "seed": seed})
    with on_interrupt, alone(places.lock, _in_use_message(places)), cluster(files.cluster), _bars() as tell, shown():
        if isinstance(against, tuple):
            other_file, other_places = against
            screen.print(f"against: {other_file.name}, with a page of its own: {other_places.page}", soft_wrap=True)
            against = run_audit(
                other_file, read(other_file), other_places, config, effort=effort, only=analyses, tell=tell,
                done=lambda section: None,
            )
        result = run_audit(
            file, subject, places, config, effort=effort, only=analyses, tell=tell,
            done=lambda section: _print_section(section, screen), against=against,
        )
    with keeping(f"the audit is finished, and {places.page} is written"):
        _print_summary(result, places, screen)
        _print_gate(file, result, settings, screen)
        _print_comparison(result, screen)
        _markdown(result, settings)
    if file.gate is not None:
        from verifair.auditing.gate import exit_code

        raise typer.Exit(exit_code(result.gate or [], file.gate.unknown))
    if files.exit_verdict:
        standings = {statement.standing for statement in result.statements}
        raise typer.Exit(10 if Standing.REFUTED in standings else 20 if standings & {Standing.UNKNOWN, Standing.SKIPPED} else 0)


SYSTEM = System(
    verb="audit", help=HELPS["audit"], settings=AuditSettings, inputs=Settings,
    run=("json_file", "jobs", "cluster", "resume", "exit_verdict"),
    helps={
        "json_file": "Write the whole answer to this JSON file (default: beside the page).",
        "resume": "Continue an interrupted audit; finished analyses are kept.",
        "exit_verdict": "Exit with 10 if something is refuted, 20 if something is unknown.",
    },
)
app = app_of(SYSTEM, run)


def _path(settings: AuditSettings) -> Path | None:
    """Return the named audit file; None if it has to be drafted."""
    from verifair import datasets

    file, demo, root = settings.file, settings.demo, settings.root
    if settings.model is not None:
        if file is not None or demo is not None or root is not None:
            raise QueryError("--model drafts an audit file of its own: drop it, or drop the audit file, --demo and --root")
        return None
    if demo is None:
        if file is None:
            raise QueryError(
                "audit needs an audit file; pass one, try --demo german, name your --model and --data, or begin with "
                "--write-example my.audit.toml"
            )
        return file
    if file is not None or root is not None:
        raise QueryError("--demo brings its own audit file: drop it, or drop the others")
    if demo not in ("german", "adult"):
        raise QueryError(f"--demo {demo}: expected german or adult; for other models write an audit file (--write-example)")
    return datasets.audit_path(demo)


def _drafted(settings: AuditSettings, places: Places) -> AbstractContextManager[DraftedFiles]:
    """Draft the audit file, and the schema if none was named."""
    from verifair.auditing.drafted import drafted_files

    assert settings.model is not None
    if settings.data is None:
        raise QueryError("--model needs --data TABLE, the people to audit it on")
    return drafted_files(
        places.page, settings.model, settings.data, schema=settings.schema_file, target=settings.target, positive=settings.positive,
        sensitive=settings.sensitive, rows=settings.model_dump(include={"missing", "outside"}, exclude_defaults=True),
    )


def _print_drafted(files: DraftedFiles, places: Places, screen: Screen) -> None:
    """Print the files that were drafted."""
    if files.drafted:
        screen.print(f"schema: {files.schema}, drafted from the table; check every # note in it", soft_wrap=True)
    root = "" if files.root == files.audit.resolve().parent else f" --root {shlex.quote(str(files.root))}"
    if files.guess is not None:
        screen.print(files.guess, soft_wrap=True)
    command = f"verifair audit {shlex.quote(str(files.audit))} --out {shlex.quote(str(places.page))}{root}"
    screen.print(f"audit file: {files.audit}; to run it again: {command}", soft_wrap=True)


def _places(out: Path, json: Path | None) -> Places:
    if out.suffix.lower() not in (".html", ".htm"):
        raise QueryError(f"--out {out}: the page is HTML; name it so, e.g. {out.with_suffix('.html').name}")
    from verifair.auditing.run import Places
    from verifair.cli.output import check_outputs

    places = Places(page=out, json=json or out.with_suffix(".json"))
    check_outputs({"--out": places.page, "--json": places.json})
    return places


def _against(path: Path, places: Places, root: Path | None) -> AuditResult | tuple[AuditFile, Places]:
    """Return the audit to compare with or, for an audit file, the file and the places of its page. Raises QueryError,
    SchemaError."""
    from verifair.auditing import audit_file
    from verifair.auditing.compare import load
    from verifair.auditing.run import Places

    if path.suffix.lower() != ".toml":
        return load(path)
    page = places.page.with_name(f"{places.page.stem}.against.html")
    other_places = Places(page=page, json=page.with_suffix(".json"))
    other_places.check()
    return audit_file.load(path, root=root), other_places


def _in_use_message(places: Places) -> str:
    return f"--out {places.page}: another audit is writing it; wait until that has ended, or name another page"


def _selected(text: str | None, analyses: list[str]) -> list[str]:
    if text is None:
        return []
    from verifair.schema.spelling import nearest

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known_analyses():
            raise QueryError(f"--only {name}: there is no such analysis; {nearest(name, known_analyses())}")
        if name not in analyses:
            listing = ", ".join(analyses)
            raise QueryError(f"--only {name}: the audit file does not ask for it; add [analyses.{name}] there (it has {listing})")
    if not names:
        raise QueryError("--only: names no analysis; give one or more, such as --only pba,kmax")
    return names


def _write_example(path: Path) -> None:
    from verifair.auditing.example import EXAMPLE
    from verifair.cli.output import check_outputs
    from verifair.systems.results.files import save_text

    check_outputs({"--write-example": path}, new=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, EXAMPLE)
    message = f"{path}: edit it, then run verifair audit {shlex.quote(str(path))} --out report.html"
    Screen().print(message, soft_wrap=True)


@contextmanager
def _bars() -> Iterator[Callable[[str, str, int, int], None]]:
    """Show a line for the running analysis on a terminal, nothing elsewhere; yields tell(key, what, done, total)."""
    err = Screen(stderr=True)
    if not err.is_terminal:
        yield lambda key, what, done, total: None
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), TextColumn("{task.fields[far]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("reading", total=None, far="")
        yield lambda key, what, done, total: bar.update(task, description=f"{key}: {what}", far=f"{done:,} of {total:,}")


def _print_section(section: Section, console: Screen) -> None:
    """Print the headline statements of a finished analysis; its first three statements if it has no headlines."""
    console.print(f"[bold]{section.title}[/] ({section.seconds:.1f} s)", soft_wrap=True, markup=True)
    shown = [statement for statement in section.statements if statement.headline] or list(section.statements[:3])
    for statement in shown:
        console.print(f"  {statement.standing.value:<9}", style=STYLES[statement.standing.value], end="")
        console.print(statement.text, soft_wrap=True)


def _print_gate(file: AuditFile, result: AuditResult, settings: AuditSettings, console: Screen) -> None:
    """Print the checks of the gate, and write them for pipelines."""
    from verifair.auditing.gate import save_junit, save_sarif

    if file.gate is None:
        return
    console.print("Gate", style="bold")
    for check in result.gate or []:
        console.print(f"  {check.outcome:<8}", style={"passed": "green", "failed": "red"}.get(check.outcome, "yellow"), end="")
        console.print(check.text, soft_wrap=True)
    if settings.junit is not None:
        save_junit(result, settings.junit, file.gate.unknown)
    if settings.sarif is not None:
        save_sarif(result, settings.sarif, file.gate.unknown, _model_path(file))


def _model_path(file: AuditFile) -> str:
    """Return the model's path relative to the current folder (in a pipeline the repository's); its name if it is outside."""
    if file.model.file is None:
        return f"{file.model.demo}.onnx"
    path = file.inside("model", "file", file.model.file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else path.name


def _print_comparison(result: AuditResult, console: Screen) -> None:
    """Print the changes since the other audit, worse ones first."""
    if result.comparison is None:
        return
    console.print(result.comparison.headline, soft_wrap=True)
    for standing in CHANGED:
        for change in result.comparison.changes:
            if change.standing == standing:
                console.print(f"  {standing:<13}", style={"worse": "red", "better": "green"}.get(standing, "yellow"), end="")
                console.print(change.text, soft_wrap=True)


def _markdown(result: AuditResult, settings: AuditSettings) -> None:
    from verifair.auditing.markdown import save_model_card, save_summary

    if settings.summary is not None:
        save_summary(result, settings.summary)
    if settings.model_card is not None:
        save_model_card(result, settings.model_card)


def _print_summary(result: AuditResult, places: Places, console: Screen) -> None:
    from verifair.checker.words import counted

    proofs = [proof for section in result.sections for proof in section.evidence]
    accepted, in_part = (sum(proof.checked == status for proof in proofs) for status in ("accepted", "accepted in part"))
    console.print(f"page: {places.page}    answer: {places.json}    {result.seconds:.1f} s", soft_wrap=True)
    if proofs:
        console.print(
            f"proofs: {counted(len(proofs), 'file', 'files')} in {places.final}, {accepted} accepted by the separate checker"
            f"{f', {in_part} in part, because something in them is undecided' if in_part else ''}; to check them all again:",
            soft_wrap=True,
        )  # fmt: skip
        console.print(f"  cd {shlex.quote(str(places.page.resolve().parent))} && {result.command}", soft_wrap=True)
