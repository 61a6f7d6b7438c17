"""`vf.audit`: run all analyses of a model on a table, and write them on one page."""

from __future__ import annotations

import shlex
import shutil
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from warnings import catch_warnings, filterwarnings

import pandas as pd

from encoders.onnx.file import save_onnx
from encoders.text import visible_lines
from verifair.auditing.audit_file import loads
from verifair.auditing.compare import compare, load
from verifair.auditing.decisions import plot
from verifair.auditing.drafted import audit_text, chosen, medians, sections_of
from verifair.auditing.page import page
from verifair.auditing.result import AuditResult, Comparison
from verifair.auditing.run import RESUME, Places, Tell, publish, run
from verifair.auditing.settings import EFFORT
from verifair.auditing.subject import PeopleTable, subject_of
from verifair.datasets import read_table
from verifair.datasets.stream import Stream
from verifair.errors import DataError, QueryError
from verifair.models.compare import some_rows
from verifair.models.objects import check_decides
from verifair.models.read import read
from verifair.notebook.shown import Pictured
from verifair.schema.agreement import check_decisions
from verifair.schema.draft import noted
from verifair.schema.drafts.infer import DraftWarning, check_asked, column_names
from verifair.schema.schema import Schema
from verifair.systems.arguments import check_table
from verifair.systems.results.files import save_text
from verifair.systems.results.findings import Statement
from verifair.systems.settings import Missing, Outside, Run
from verifair.systems.work import budget

MODEL, SCHEMA = "model.onnx", "schema.toml"
"""Files beside the proofs."""
IN_MEMORY = "table in memory"
"""Name of a table that does not come from a file."""
FOLDER = "audit.files/"
"""That of an audit that nobody has saved yet."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Audit(Pictured):
    """The results of an audit; a notebook shows its statements, and `plot()` the decisions by group.

    result: all results, as in the JSON beside a page.   schema: the schema of the audit.
    folder: temporary folder of the proofs, the model and the schema; it is deleted with this object, so `save` what you need.
    """

    result: AuditResult
    schema: Schema
    folder: Path = field(repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.folder.parent, ignore_errors=True)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Return all statements, each with its standing (proved, refuted, measured, unknown ...)."""
        return self.result.statements

    def __str__(self) -> str:
        """Return the most important statements, one per line."""
        statements = [statement for statement in self.statements if statement.headline] or list(self.statements)
        return visible_lines("\n".join(f"{statement.standing.value:<9} {statement.text}" for statement in statements))

    def to_frame(self) -> pd.DataFrame:
        """Return a table of the statements: analysis, standing, tone, text, and whether it is on the page's first screen."""
        decisions = () if self.result.decisions is None else self.result.decisions.statements
        statements = [("decisions", statement) for statement in decisions]
        statements += [(section.key, statement) for section in self.result.sections for statement in section.statements]
        rows = [(key, s.standing.value, s.tone.value, s.text, s.headline) for key, s in statements]
        return pd.DataFrame(rows, columns=["analysis", "standing", "tone", "statement", "headline"])

    def _draw(self, path: Path) -> None:
        """Draw the model's decisions by group."""
        decisions = self.result.decisions
        if decisions is None:
            raise QueryError("the table has no rows, so that there are no decisions to draw")
        plot(decisions.groups, self.result.favourable, path)

    def to_html(self) -> str:
        """Return the page as HTML; it refers to files that `save` writes beside it."""
        return page(self.result)

    def against(self, other: Audit | str | Path) -> Comparison:
        """Compare with another audit, or the JSON beside its page: what is worse, better, ... Raises QueryError for other files."""
        return compare(self.result, other.result if isinstance(other, Audit) else load(Path(other)))

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), and beside it its JSON and a folder with the proofs, the model and the schema.

        Raises QueryError for a name that does not end in .html, or if other files are in the way.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise QueryError(f"{path}: the page is HTML; name it so, e.g. {path.with_suffix('.html').name}")
        places = Places(page=path, json=path.with_suffix(".json"))
        places.check()
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(places.work, ignore_errors=True)
        shutil.copytree(self.folder, places.work, ignore=shutil.ignore_patterns(RESUME))
        publish(places, _in_folder(self.result, places.final.name), keep=(MODEL, SCHEMA))
        return path


def audit(
    model: Any, frame: pd.DataFrame | str | Path, *, target: str | None = None, sensitive: Sequence[str] = (), positive: Any = None,
    schema: Schema | None = None, analyses: Mapping[str, Mapping[str, Any]] | Sequence[str] | None = None, title: str | None = None,
    effort: float | None = None, timeout: float = 3600.0, seed: int = 0, jobs: int = 1, what_if: bool = True,
    missing: Missing = "error", outside: Outside = "error", progress: Tell | None = None,
) -> Audit:  # fmt: skip
    """Run all analyses of a model on a table of people, as `verifair audit` does.

    model: whatever `verifair.read` takes.   frame: a table with the model's columns, or the path of one (CSV, CSV.GZ, Parquet).
    target: column of the label.   positive: the favourable label, or a rule such as "value >= 600" (see `Schema.infer`).
    schema: one that you have checked, in place of target and positive; without it a schema is drafted from the table
    (`Schema.infer`), and proofs cover the rows that this draft allows.
    sensitive: features whose effect is examined (elsewhere: protected).   title: of the page.   seed: of every random draw.
    analyses: names, or name -> settings as in an audit file's section (default: all that need no causal model).
    effort: work for all analyses, in seconds of one idle core; it is counted, not timed, so results do not depend on how busy the
    machine is (default: 150, at most timeout).   timeout: seconds by the clock after which the rest is left out.
    jobs: number of processes.   what_if: include the model in the page (up to 2 MB), so that readers can try other values.
    missing: "drop" rows with missing values, or fill in the "most-frequent".   outside: "drop" those outside the schema.
    progress: called with (analysis, what, done, total).
    Returns: the Audit; `save` writes the page with its proofs. Raises QueryError, DataError, SchemaError, ModelError.
    """
    if isinstance(frame, (str, Path)):
        frame = read_table(frame)
    check_table(frame, "frame")
    if schema is None and target is None:
        raise QueryError("audit: pass target=, the label's column, to draft a schema from the table, or schema=, a checked one")
    if schema is None:
        check_asked(frame, target=target, positive=positive)
    names = column_names(sensitive, "sensitive")
    if schema is None and not names:
        raise QueryError("audit: sensitive names no feature; pass those whose effect is asked about, such as sensitive=['sex']")
    effort = min(EFFORT, timeout) if effort is None else effort
    for seconds in (timeout, effort):
        budget(seconds, None, seed)
    if schema is None:
        check_decides(model, positive)
    network = read(model, some_rows(frame).drop(columns=[] if target is None else target, errors="ignore"))
    if schema is None:
        with catch_warnings():
            if missing != "error":
                filterwarnings("ignore", message=r"column .* has no value in", category=DraftWarning)
            used_schema = Schema.drafted(
                frame, target=str(target), positive=positive, protected=names, model=model, network=network,
            )
    else:
        used_schema = schema
        check_decisions(model, network, used_schema, frame)
    settings = chosen(analyses, network, medians(used_schema, frame, names))
    text = noted(used_schema, frame) if schema is None else schema.dumps()
    title = title or f"Audit of {Path(network.source).name if network.source else 'a network'}"
    title = title.encode(errors="backslashreplace").decode()  # names of files may be no UTF-8
    head = {"title": title, "seed": seed, "effort": float(effort), "timeout": float(timeout), "what_if": None if what_if else False}
    data = None if missing == outside == "error" else {"file": IN_MEMORY, "missing": missing, "outside": outside}
    file = loads(audit_text(head, sections_of(MODEL, SCHEMA, data, names, settings)), name="audit", folder=Path.cwd())
    try:
        content = pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes()
    except TypeError as error:
        raise DataError(f"frame: a column holds what is no number and no text ({error}); drop it") from None
    table = PeopleTable(data=Stream.of(frame), words="the table", name=IN_MEMORY, sha256=sha256(content).hexdigest())
    temporary = Path(mkdtemp(prefix="verifair-audit-"))
    places = Places(page=temporary / "audit.html", json=temporary / "audit.json")
    try:
        subject = subject_of(
            file, network, used_schema, model=places.final / MODEL, schema_path=places.final / SCHEMA, schema_text=text, table=table
        )
        result = run(
            file, subject, places, Run(timeout=timeout, seed=seed, jobs=jobs), effort=effort, only=(),
            tell=progress or (lambda key, what, done, total: None), done=lambda section: None,
        )  # fmt: skip
        save_onnx(network, places.final / MODEL)
        save_text(places.final / SCHEMA, text)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Audit(result=result, schema=used_schema, folder=places.final)


def _in_folder(result: AuditResult, folder: str) -> AuditResult:
    """Return the result with its proofs, model and schema in a folder of this name."""
    sections = []
    for section in result.sections:
        proofs = [
            proof.model_copy(update={"file": f"{folder}/{Path(proof.file).name}", "command": _moved_command(proof.command, folder)})
            for proof in section.evidence
        ]
        sections.append(section.model_copy(update={"evidence": type(section.evidence)(proofs)}))
    return result.model_copy(update={"sections": sections})


def _moved_command(text: str, folder: str) -> str:
    """Return a command with another folder of proofs."""
    words = [f"{folder}/{word.removeprefix(FOLDER)}" if word.startswith(FOLDER) else word for word in shlex.split(text)]
    return shlex.join(words)
