"""The run of an audit: every analysis with its share of the effort, stored when finished; then page, JSON and proofs together.

Each analysis gets an equal share of the remaining effort (or its own `effort`); effort that it does not use goes to later ones.
Effort is counted (`solvers.clock`), so that results do not depend on the machine's load. The clock is a ceiling; a section that it
cuts short says so. If an analysis cannot run, its section says why, and the others continue. The page has the file's order.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from encoders.errors import ModelError
from solvers import clock
from solvers.outcome import BackendError
from verifair.auditing.audit_file import AuditFile
from verifair.auditing.compare import compare
from verifair.auditing.decisions import decisions
from verifair.auditing.gate import gate
from verifair.auditing.page import page
from verifair.auditing.result import AuditResult
from verifair.auditing.settings import Analysis, known_analyses
from verifair.auditing.subject import AuditSubject
from verifair.auditing.what_if import what_if
from verifair.checker.certificates.envelope import semantics
from verifair.checker.words import counted
from verifair.engine.search.ready import ready
from verifair.errors import ClusterError, Disagreement, QueryError, VerifairError, require
from verifair.interrupts import OutOfTime
from verifair.systems.results.files import plain, save_json, save_text, versions
from verifair.systems.results.findings import Section, Source, Standing, Statement, Tone
from verifair.systems.results.words import listed
from verifair.systems.settings import Run
from verifair.systems.system import system
from verifair.systems.work import Work

LAST = ("kmax", "pba", "certify")
"""Worked on after the others, in this order: they have a better answer with more time, the others none until they are finished."""
MARK = ".verifair-audit"
"""Says that a folder is ours, to be replaced."""
RESUME = "resume"
"""Name of the subfolder with finished sections."""
Tell = Callable[[str, str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Places:
    """page, json: files.   final: the folder of proofs beside the page.   work: the same while the audit runs."""

    page: Path
    json: Path

    @property
    def final(self) -> Path:
        return self.page.with_name(f"{self.page.stem}.files")

    @property
    def work(self) -> Path:
        return self.page.with_name(f"{self.page.stem}.files.part")

    @property
    def lock(self) -> Path:
        """The lock file that is held while an audit writes here."""
        return self.page.with_name(f".{self.page.name}.lock")

    def check(self) -> None:
        """Check the places before the run. Raises QueryError if a folder that is not an audit's is in the way."""
        for folder in (self.final, self.work):
            if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and (folder / MARK).is_file())):
                raise QueryError(f"--out {self.page}: {folder} is in the way and no audit wrote it; move it, or name another page")


def run(
    file: AuditFile, subject: AuditSubject, places: Places, config: Run, *, effort: float, only: Sequence[str], tell: Tell,
    done: Callable[[Section], None], against: AuditResult | None = None,
) -> AuditResult:
    """Run the analyses of an audit file, and write page, JSON and proofs.

    config: time, seed, jobs, and whether to resume.   effort: seconds of work.   only: some of the analyses; empty: all.
    tell(key, what, done, total): progress of an analysis.   done: receives every finished section.   against: an audit to compare
    with. After Ctrl-C or a kill an older page is unchanged, and finished sections are kept for `resume`. Raises Disagreement,
    QueryError.
    """
    require("matplotlib", "plots", "the page of an audit")
    ready(subject.network)
    started, timestamp = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    analyses = {key: settings for key, settings in file.analyses.items() if not only or key in only}
    sources = _sources(analyses, subject)
    options = subject.check_options(places.page.resolve().parent)
    measured = decisions(subject)
    _prepare(places, config.resume)
    sections: dict[str, Section] = {}
    with clock.counted(started + config.timeout) as timer:
        for n, key in enumerate(sorted(analyses, key=_order_key)):
            analysis = analyses[key]
            remaining = max(effort - timer.spent, 1e-3)
            share = min(remaining, analysis.effort) if analysis.effort is not None else remaining / (len(analyses) - n)
            pin = _pin(key, analysis, subject, config.seed, options)
            section = _saved_section(places, key, pin, share) if config.resume else None
            if section is None:
                work = Work(
                    deadline=timer.spent + share, seed=config.seed, jobs=config.jobs, folder=places.work, shown=places.final.name,
                    options=options, resume=config.resume, tell=partial(tell, key), bar=_bar(key, tell), checks=0.2,
                    store=places.work / f"{key}.sqlite",
                )
                section = _run_one(key, analysis, subject, work, share)
                if timer.cut:
                    section = _with_cut_note(section, config.timeout)
                section = _save_section(places, section, pin, share, timer.cut)
            sections[key] = section
            done(section)
    result = AuditResult(
        title=file.title, decisions=measured, sections=[sections[key] for key in analyses], sources=list(sources),
        rows=0 if subject.data is None else subject.data.count, treated=subject.treated + subject.without,
        protected=list(subject.protected), favourable=subject.favourable, unfavourable=subject.unfavourable,
        network=_network(subject),
        started=timestamp, seconds=time.monotonic() - started, effort=effort, seed=config.seed, versions=versions(), gate=None,
        what_if=what_if(subject, [sections[key] for key in analyses]) if file.head.what_if else None,
    )  # fmt: skip
    if file.gate is not None:
        result = result.model_copy(update={"gate": gate(file.gate, result)})
    if against is not None:
        result = result.model_copy(update={"comparison": compare(result, against)})
    publish(places, result)
    return result


def _order_key(key: str) -> tuple[int, int]:
    """Return the sort key of an analysis in the order of the run."""
    return (LAST.index(key) + 1, 0) if key in LAST else (0, -known_analyses().index(key))


def _section(key: str, analysis: Analysis, subject: AuditSubject, work: Work) -> Section:
    """Run one analysis by its own system."""
    settings = analysis.settings
    if "protected" in type(settings).model_fields and not settings.protected:
        settings = settings.model_copy(update={"protected": subject.protected})
    section: Section = system(key).part("statements", "section")(settings, subject, work)
    return section


def _sources(analyses: Mapping[str, Analysis], subject: AuditSubject) -> tuple[Source, ...]:
    """Return all files, also those of the analyses, so that a wrong path is found before the run."""
    result: list[Source] = []
    for key, analysis in analyses.items():
        sources = system(key).optional("statements", "sources")
        result += sources(analysis.settings, subject) if sources else []
    return (*subject.sources, *result)


def _bar(key: str, tell: Tell) -> Callable[[str], AbstractContextManager[Any]]:
    """Return a function that makes the progress callback of a label."""
    return lambda label: nullcontext(partial(tell, key, label))


def _run_one(key: str, analysis: Analysis, subject: AuditSubject, work: Work, share: float) -> Section:
    """Run one analysis, and return its section also if it fails."""
    started = time.monotonic()
    try:
        section = _section(key, analysis, subject, work)
    except (Disagreement, ClusterError):  # the latter: finished sections are kept, and --resume continues here
        raise
    except OutOfTime as error:
        message = f"Not decided with an effort of {share:.0f} seconds: {error}. Allow more (effort, timeout), or ask for less."
        section = _failed_section(key, analysis, subject, message, Standing.UNKNOWN)
    except MemoryError:
        message = "Not decided: the memory was not enough. Ask about fewer rows (rows = ...), or use a larger machine."
        section = _failed_section(key, analysis, subject, message, Standing.UNKNOWN)
    except (VerifairError, ModelError, BackendError) as error:
        file = str(subject.network.source)  # the page is for readers who do not know our folders
        message = f"Did not run: {str(error).replace(file, Path(file).name).removesuffix('.')}."
        section = _failed_section(key, analysis, subject, message, Standing.SKIPPED)
    return section.model_copy(update={"seconds": time.monotonic() - started})


def _with_cut_note(section: Section, seconds: float) -> Section:
    """Return the section with a note that the clock cut it short."""
    text = (
        f"The time of the audit ({seconds:g} seconds by the clock) was up before this analysis had done its work: what it left "
        "open, it may answer on an idle machine, or with a longer timeout (--timeout, or timeout in the audit file)."
    )
    statement = Statement(text=text, standing=Standing.UNKNOWN, tone=Tone.WATCH, headline=True)
    return section.model_copy(update={"statements": (*section.statements, statement)})


def _failed_section(key: str, analysis: Analysis, subject: AuditSubject, message: str, standing: Standing) -> Section:
    """Return a section whose only statement says why the analysis did not run."""
    return Section(
        **system(key).heading, method="", semantics=semantics(subject.network),
        statements=(Statement(text=message, standing=standing, tone=Tone.WATCH, headline=True),),
        settings=analysis.settings.model_dump(exclude_none=True),
    )


# Stored sections


def _prepare(places: Places, resume: bool) -> None:
    """Make an empty work folder, or keep that of the run to resume."""
    places.check()
    places.page.parent.mkdir(parents=True, exist_ok=True)
    if not resume and places.work.exists():
        shutil.rmtree(places.work)
    if resume and not places.work.exists() and places.final.exists():
        shutil.copytree(places.final, places.work)
    (places.work / RESUME).mkdir(parents=True, exist_ok=True)
    (places.work / MARK).touch()


def _pin(key: str, analysis: Analysis, subject: AuditSubject, seed: int, options: str) -> str:
    """Return a hash of everything that a section's answer depends on, except time."""
    content = {
        "key": key, "settings": analysis.settings.model_dump(), "protected": subject.protected, "seed": seed,
        "network": subject.network.source_sha256, "schema": subject.schema.sha256, "dropped": subject.dropped,
        "sources": [(source.role, source.sha256) for source in _sources({key: analysis}, subject) if source.role != "audit file"],
        "options": options, "verifair": version("verifair"),
    }  # fmt: skip
    return _digest(plain(content))


def _save_section(places: Places, section: Section, pin: str, share: float, cut: bool) -> Section:
    """Write a finished section and read it back, so that resumed audits and others show the same."""
    data = plain(section.model_dump())
    content = {"pin": pin, "share": share, "cut": cut, "section": data, "sha256": _digest(data)}
    save_json(places.work / RESUME / f"{section.key}.json", content)
    return Section.model_validate(json.loads((places.work / RESUME / f"{section.key}.json").read_text(encoding="utf-8"))["section"])


def _digest(content: Any) -> str:
    """Return the SHA-256 of plain values."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _saved_section(places: Places, key: str, pin: str, share: float) -> Section | None:
    """Return a section finished earlier, if its question is the same, more time would not close anything, and its proofs exist."""
    try:
        content = json.loads((places.work / RESUME / f"{key}.json").read_text(encoding="utf-8"))
        if content["sha256"] != _digest(content["section"]):
            return None
        section = Section.model_validate(content["section"])
        if content["cut"] or content["pin"] != pin or any(s.standing is Standing.SKIPPED for s in section.statements):
            return None
        undecided = any(statement.standing in (Standing.UNKNOWN, Standing.CLAIMED) for statement in section.statements)
        if undecided and share > content["share"]:
            return None
        for proof in section.evidence:
            if sha256((places.work / Path(proof.file).name).read_bytes()).hexdigest() != proof.sha256:
                return None
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError):  # damaged, or written by another version
        return None
    return section


def publish(places: Places, result: AuditResult, keep: Sequence[str] = ()) -> None:
    """Replace older page, JSON and proofs by the new ones; a failure before that leaves the old ones unchanged.

    keep: files of the folder that no statement relies on.
    """
    html, content = page(result), result.content()
    proof_files = {Path(proof.file).name for section in result.sections for proof in section.evidence}
    for path in places.work.iterdir():  # delete stores whose proofs are in certificates, and files of other questions
        if path.is_file() and path.name not in (*proof_files, *keep, MARK):
            path.unlink()
    old_folder = places.final.with_name(f"{places.final.name}.old")
    if old_folder.is_dir() and not old_folder.is_symlink() and (old_folder / MARK).is_file():
        shutil.rmtree(old_folder)
    if places.final.exists():
        places.final.rename(old_folder)
    places.work.rename(places.final)
    save_text(places.page, html)
    save_json(places.json, content)
    if old_folder.is_dir():
        shutil.rmtree(old_folder)


def _network(subject: AuditSubject) -> str:
    network = subject.network.whole
    hidden = [str(width) for width in network.hidden]
    layers = f"hidden layers of {listed(hidden)} neurons" if hidden else "no hidden layer"
    layers = counted(network.asking, "tree", "trees") if network.of_trees else layers
    return f"{counted(network.inputs, 'input', 'inputs')}, {layers}, {counted(network.outputs, 'output', 'outputs')}"
