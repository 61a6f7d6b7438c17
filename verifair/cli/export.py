"""verifair export: a fairness question as VNN-LIB queries and ONNX networks, for other verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.interop import MAX_QUERIES
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.hyfair.pairs import FairnessSettings
from verifair.systems.settings import Inputs, Missing, Option, Run
from verifair.systems.system import System

if TYPE_CHECKING:
    from verifair.interop.export import Export


class ExportInputs(Inputs):
    """The inputs of `verifair export`: no table."""

    model: Annotated[Path | None, Option(argument=True)] = None
    """The network, an ONNX file."""
    data: Annotated[Path | None, Option(hidden=True)] = None
    missing: Annotated[Missing, Option(hidden=True)] = "error"


class ExportSettings(FairnessSettings):
    """The settings of `verifair export`: the question of `verifair certify`, and the form of the files."""

    vnnlib: Path
    """Folder to write to."""
    enumerated: Annotated[tuple[str, ...], Option(name="--enumerate")] = ()
    """Write one query for each value of this feature; repeat, or `all`."""
    relaxed: bool = False
    """Relax other whole numbers and categories to intervals."""
    limit: Annotated[int, Field(ge=1)] = MAX_QUERIES
    """Largest number of queries to write."""
    timeout: Annotated[int, Field(ge=1)] = 60
    """Seconds for each query, as instances.csv states them."""

    def check_options(self, inputs: Inputs, run: Run) -> None:
        """Raise ValueError if two questions are asked at once, and for a folder that cannot be written."""
        self.check_flip()
        if self.vnnlib.exists() and not self.vnnlib.is_dir():
            raise ValueError(f"--vnnlib {self.vnnlib}: is a file; name a folder")
        if self.vnnlib.is_dir() and any(self.vnnlib.iterdir()):
            raise ValueError(
                f"--vnnlib {self.vnnlib}: is not empty, and queries of another export would be mixed in; name a new folder"
            )


def run(system: System, arguments: dict[str, Any]) -> None:
    """Write the queries, then print a description of them."""
    from verifair.cli.output import save_answer
    from verifair.interop.export import ExportAnswer, RelaxedQueries, export
    from verifair.interrupts import keeping
    from verifair.systems.subject import read

    inputs, settings, files = parse_options(system, arguments)
    query = settings.question(system.verb, read(inputs, settings.protected))
    with keeping(f"{settings.vnnlib} holds some of the queries only: delete it"), progress_bar("queries") as progress:
        result = export(
            query, settings.vnnlib, enumerated=settings.enumerated, relaxed=settings.relaxed, timeout=settings.timeout,
            limit=settings.limit, progress=progress,
        )
    relaxed = RelaxedQueries(one=list(result.relaxed_1), two=list(result.relaxed_2))
    save_answer(files.json_file, ExportAnswer(folder=str(result.folder), files=list(result.files), relaxed=relaxed))
    _print_export(result, Screen())


SYSTEM = System(verb="export", help=HELPS["export"], settings=ExportSettings, inputs=ExportInputs, run=("json_file",))
app = app_of(SYSTEM, run)


def _print_export(result: Export, screen: Screen) -> None:
    screen.print(f"{len(result.files)} queries in {result.folder}, each as VNN-LIB 1.0 and 2.0", soft_wrap=True)
    screen.print("proved when all files of one version are unsat", soft_wrap=True)
    if not result.single:
        screen.print("the networks are float64: float32 does not hold the constants folded into their weights", soft_wrap=True)
    for version, reasons in (("1.0", result.relaxed_1), ("2.0", result.relaxed_2)):
        if not reasons:
            screen.print(f"{version}: exact; a sat is a counterexample")
            continue
        screen.print(f"{version}: relaxed, so that unsat proves but a sat has to be confirmed:")
        for line in reasons:
            screen.print(f"  {line}", soft_wrap=True)
