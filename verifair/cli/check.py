"""verifair check: re-prove a certificate without the engine, its bounds, or a solver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any

import typer

from verifair.checker.certificates.extent import Extent
from verifair.checker.report import Spread
from verifair.cli.command import app_of, asked
from verifair.cli.helps import HELPS
from verifair.errors import QueryError
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen, visible
from verifair.systems.results.result import Answer, Count, Seconds
from verifair.systems.settings import Option, Run, Settings
from verifair.systems.system import System


class CheckSettings(Settings):
    """A file of proofs, and what it is about."""

    certificate: Annotated[Path, Option(argument=True)]
    """Certificate (.json or .json.gz) or store of certify --partition."""
    model: Path | None = None
    """The network it is about (ONNX)."""
    schema_file: Annotated[Path | None, Option(name="--schema")] = None
    """The schema it is about (TOML)."""
    partial: bool = False
    """Accept the statement about what is decided, even if something is undecided."""
    demo: str | None = None
    """Use a shipped network and schema: german or adult."""

    def check_options(self, inputs: Any, run: Run) -> None:
        """Raise ValueError for a model that is named twice."""
        if self.demo is not None and (self.model, self.schema_file) != (None, None):
            raise ValueError("--demo brings its own model and schema: drop it, or drop the others")


class CheckAnswer(Answer):
    """`verifair check`: whether a file of proofs is accepted."""

    accepted: bool
    """Every statement was proved again, of the whole question unless `partial` was given. False is no refutation: a solver's word
    cannot be proved again."""
    format: str
    statement: str
    """What the file states, in words."""
    extent: Extent
    """How much of its question the file answers, counted from its content."""
    unit: str
    """What the extent counts."""
    partial: bool
    """--partial was given: the statement about what is decided was enough."""
    missing: str | None
    """What of its question the file leaves out, in words; null where it answers all of it."""
    claimed: Count
    """Statements that rest on a solver's word."""
    proofs: Count
    float32: Count | None
    """Of the proofs, those certified for float32: they hold of every float32 evaluation; null: none of this kind can be."""
    leaves: Count
    """Proved again."""
    rejections: list[str]
    seconds: Seconds


def run(system: System, given: dict[str, Any]) -> None:
    """Prove again what a file states; exit with 1 where that is not accepted."""
    from encoders.onnx.reader import read_model
    from verifair.checker.check import check, kind_of
    from verifair.checker.words import counted, float32_words
    from verifair.cli.output import save_answer
    from verifair.interrupts import keeping
    from verifair.schema.space import InputSpace

    schema: InputSpace
    _, settings, files = asked(system, given)
    kind, screen = kind_of(settings.certificate), Screen()
    if settings.demo is not None:
        from verifair import datasets

        network, schema = read_model(datasets.network_path(settings.demo)), datasets.load(settings.demo).schema
    elif settings.model is None or settings.schema_file is None:
        raise QueryError("check needs --model and --schema (or --demo german)")
    else:
        network, schema = read_model(settings.model), InputSpace.load(settings.schema_file)
    with _spread(files) as spread, keeping("nothing is accepted"), progress_bar(kind.counts) as progress:
        report = check(
            settings.certificate, network=network, schema=schema, partial=settings.partial, progress=progress, spread=spread
        )
    screen.print(visible(report.statement), soft_wrap=True)
    for rejection in report.rejections[:10]:
        screen.print(f"not accepted: {rejection}")
    if len(report.rejections) > 10:
        screen.print(f"... and {len(report.rejections) - 10} more")
    proofs, leaves = counted(report.proofs, "proof", "proofs"), counted(report.leaves, "leaf", "leaves")
    refuted = f", {counted(report.refuted, 'counterexample', 'counterexamples')}" if report.refuted else ""
    done = f"{proofs}{refuted}, {leaves} re-proved in {report.seconds:.1f} s"
    if report.rejections or report.missing is None:
        screen.print(f"{report.verdict}: {done}")
    else:
        screen.print(f"{done}\n{report.verdict}: {report.left_out}", soft_wrap=True)
    if report.accepted and report.float32 is not None and report.proofs:
        screen.print(f"{float32_words(report.float32, report.proofs)}.", soft_wrap=True)
    answer = CheckAnswer(
        accepted=report.accepted, format=report.format, statement=report.statement, extent=report.extent, unit=report.unit,
        partial=report.partial, missing=report.missing, claimed=report.claimed, proofs=report.proofs,
        float32=report.float32, leaves=report.leaves, rejections=[str(one) for one in report.rejections], seconds=report.seconds,
    )
    save_answer(files.json_file, answer)
    if not report.accepted:
        raise typer.Exit(1)


@contextmanager
def _spread(files: Run) -> Iterator[Spread]:
    """Give who works. This process alone loads nothing of the engine."""
    if files.jobs == 1 and files.cluster is None:
        yield starmap
        return
    from verifair.engine.cluster import cluster
    from verifair.engine.parallel import spread

    with cluster(files.cluster):
        yield spread(files.jobs)


SYSTEM = System(verb="check", help=HELPS["check"], settings=CheckSettings, inputs=Settings, run=("jobs", "cluster", "json_file"))
app = app_of(SYSTEM, run)
