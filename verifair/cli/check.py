"""verifair check: re-prove certificates without the engine, its bounds, or a solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BeforeValidator, Field

from encoders.text import visible
from verifair.checker.certificates.extent import Extent, Sha256
from verifair.checker.report import CheckReport, Spread
from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.errors import CertificateError, NoProofs, VerifairError
from verifair.interrupts import keeping
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.results.result import Answer, Count, Seconds, Shape
from verifair.systems.settings import Option, Run, Settings
from verifair.systems.system import System


class CheckSettings(Settings):
    """The settings of `verifair check`: files of proofs, and their model and schema."""

    certificates: Annotated[tuple[Path, ...], Option(argument=True, name="CERTIFICATE"), Field(min_length=1)]
    """Certificates (.json, .json.gz) and stores (certify --partition, --share), or a folder that holds them."""
    model: Path | None = None
    """The model that they are about (ONNX)."""
    schema_file: Annotated[Path | None, Option(name="--schema")] = None
    """The schema they are about (TOML)."""
    partial: bool = False
    """Also accept files in which something is undecided, for what is decided."""
    demo: str | None = None
    """Use a shipped network and schema: german or adult."""

    def check_options(self, inputs: Any, run: Run) -> None:
        """Raise ValueError if the model is named twice, or not at all."""
        named = (self.model, self.schema_file)
        if self.demo is not None and named != (None, None):
            raise ValueError("--demo brings its own model and schema: drop it, or drop the others")
        if self.demo is None and None in named:
            raise ValueError("check needs --model and --schema (or --demo german)")


class CheckedFile(Shape):
    """The result of checking one file of proofs."""

    accepted: bool
    """Every statement was proved again, of the whole question unless `partial` was given. False is no refutation: a solver's word
    cannot be proved again."""
    format: str
    statement: str
    """The file's statement, in words."""
    extent: Extent
    """The part of its question that the file answers, counted from its content."""
    unit: str
    """The things that the extent counts."""
    partial: bool
    """--partial was given: the statement about what is decided was enough."""
    missing: str | None
    """The part of its question that the file leaves out, in words; null if it answers all of it."""
    claimed: Count
    """Statements that rest on a solver's word."""
    proofs: Count
    float32: Count | None
    """Number of proofs certified for float32: they hold for every float32 evaluation; null: no proof of this kind can be."""
    leaves: Count
    """Proved again."""
    rejections: Annotated[list[str], BeforeValidator(lambda found: list(map(str, found)))]
    seconds: Seconds


class Checked(Answer):
    """The model and the schema that the files are about."""

    model_sha256: Sha256
    """SHA-256 of the model's file."""
    schema_sha256: Sha256
    """SHA-256 of the schema's content, which does not depend on the file's format; not that of the file."""


class CheckAnswer(CheckedFile, Checked):
    """`verifair check` of one file."""


class CheckFilesAnswer(Checked):
    """`verifair check` of several files, or of a folder."""

    accepted: bool
    """Every file was read and accepted."""
    files: dict[str, CheckedFile]
    """The result for each file that could be read."""
    unread: dict[str, str]
    """The reasons that the others could not be read; without stores of verdicts in a folder, which hold no proofs."""


ANSWER = Annotated[CheckAnswer | CheckFilesAnswer, Field(description="`verifair check`: whether files of proofs are accepted.")]
"""The content of --json."""


def run(system: System, arguments: dict[str, Any]) -> None:
    """Prove the files' statements again; exit with 1 if not all are accepted."""
    from encoders.onnx.reader import read_model
    from verifair.checker.check import check, kind_of
    from verifair.cli.output import save_answer
    from verifair.schema.space import InputSpace

    schema: InputSpace
    _, settings, files = parse_options(system, arguments)
    paths, screen = list(dict.fromkeys(path for argument in settings.certificates for path in _files(argument))), Screen()
    if settings.demo is not None:
        from verifair import datasets

        network, schema = read_model(datasets.network_path(settings.demo)), datasets.load(settings.demo).schema
        schema_name = f"{settings.demo}.toml"
    else:
        network, schema = read_model(settings.model), InputSpace.load(settings.schema_file)
        schema_name = settings.schema_file.name
    hashes = {"model_sha256": network.source_sha256, "schema_sha256": schema.sha256}
    model = f"Model {Path(str(network.source)).name}: SHA-256 {network.source_sha256}"
    digests = f"{visible(model)}\n{visible(f'Schema {schema_name}: SHA-256 of its content {schema.sha256}')}"
    single = len(paths) == 1 and not settings.certificates[0].is_dir()

    def recheck(path: Path, message: str) -> CheckReport:
        with keeping(message), progress_bar(kind_of(path).counts) as progress:
            report = check(path, model=network, schema=schema, partial=settings.partial, progress=progress, spread=spread)
        _show(report, digests if single else None, screen)
        return report

    with _spread(files) as spread:
        answer: CheckAnswer | CheckFilesAnswer
        if single:
            report = CheckedFile.model_validate(recheck(paths[0], "nothing is accepted"))
            answer = CheckAnswer.model_validate(hashes | dict(report))
        else:
            screen.print(f"{digests}\n", soft_wrap=True)
            answer = CheckFilesAnswer.model_validate(hashes | _check_all(paths, settings.certificates, recheck, screen))
    save_answer(files.json_file, answer)
    if not answer.accepted:
        raise typer.Exit(1)


def _files(path: Path) -> list[Path]:
    """Return the files that a path stands for. Raises CertificateError for a folder without files of proofs."""
    if not path.is_dir():
        return [path]
    candidates = [file for file in path.iterdir() if file.name.endswith((".json", ".json.gz", ".sqlite"))]
    files = sorted(f for f in candidates if f.is_file() or (f.is_symlink() and not f.exists()))  # a broken link is reported
    if not files:
        expected = "expected files that end in .json, .json.gz or .sqlite"
        raise CertificateError(f"{path}: is a folder without files of proofs; {expected}: name another folder, or a file")
    return files


def _check_all(
    paths: Sequence[Path], arguments: Sequence[Path], recheck: Callable[[Path, str], CheckReport], screen: Screen
) -> dict[str, Any]:
    """Prove the files again, one after the other, and return the answer; an error in one file does not stop the others.

    named: files that the user named, not found in a folder: each must hold proofs.
    """
    from verifair.checker.words import counted

    reports: dict[str, CheckReport] = {}
    unread: dict[str, str] = {}
    verdicts = Counter[str]()
    for k, path in enumerate(paths):
        screen.print(visible(str(path)), style="bold", soft_wrap=True)
        try:
            report = reports[str(path)] = recheck(path, f"{k:,} of {len(paths):,} files were checked")
            verdicts[report.verdict] += 1
        except (VerifairError, OSError) as error:
            message = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            ignored = isinstance(error, NoProofs) and path not in arguments
            unread |= {} if ignored else {str(path): message}
            verdict = "WITHOUT PROOFS" if ignored else "NOT READ"
            verdicts[verdict] += 1
            screen.print(visible(f"{verdict}: {message}"), soft_wrap=True)
        screen.print()
    summary = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.items())
    screen.print(f"{counted(len(paths), 'file', 'files')}: {summary}")
    accepted = bool(reports) and not unread and all(report.accepted for report in reports.values())
    return {"accepted": accepted, "files": reports, "unread": unread}


def _show(report: CheckReport, digests: str | None, screen: Screen) -> None:
    """Print a file's statements and subject, rejected proofs, and the outcome."""
    from verifair.checker.words import counted, float32_words

    screen.print(visible(report.statement), soft_wrap=True)
    if digests is not None:
        screen.print(digests, soft_wrap=True)
    for rejection in report.rejections[:10]:
        screen.print(f"not accepted: {rejection}")
    if len(report.rejections) > 10:
        screen.print(f"... and {len(report.rejections) - 10} more")
    proofs, leaves = counted(report.proofs, "proof", "proofs"), counted(report.leaves, "leaf", "leaves")
    refuted = f", {counted(report.refuted, 'counterexample', 'counterexamples')}" if report.refuted else ""
    summary = f"{proofs}{refuted}, {leaves} re-proved in {report.seconds:.1f} s"
    if report.rejections or report.missing is None:
        screen.print(f"{report.verdict}: {summary}")
    else:
        screen.print(f"{summary}\n{report.verdict}: {report.left_out}", soft_wrap=True)
    if report.accepted and report.float32 is not None and report.proofs:
        screen.print(f"{float32_words(report.float32, report.proofs)}.", soft_wrap=True)


@contextmanager
def _spread(files: Run) -> Iterator[Spread]:
    """Yield the function that distributes the checks. With one process nothing of the engine is loaded."""
    if files.jobs == 1 and files.cluster is None:
        yield starmap
        return
    from verifair.engine.cluster import cluster
    from verifair.engine.parallel import spread

    with cluster(files.cluster):
        yield spread(files.jobs)


SYSTEM = System(verb="check", help=HELPS["check"], settings=CheckSettings, inputs=Settings, run=("jobs", "cluster", "json_file"))
app = app_of(SYSTEM, run)
