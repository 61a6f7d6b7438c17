"""The subject of an audit: the network, schema and table of its file, read and checked against each other."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

import pandas as pd

from encoders.model import Model
from verifair import datasets
from verifair.auditing.audit_file import AuditFile
from verifair.datasets.stream import Stream
from verifair.errors import DataError, QueryError, SchemaError
from verifair.models.read import read as read_model
from verifair.schema.draft import DRAFTED
from verifair.schema.schema import Schema
from verifair.schema.writing import written
from verifair.systems import subject as systems
from verifair.systems.results.findings import Source

DRAFT = "schema (a draft)"
"""The role of a schema that was drafted from the table and that nobody has gone through since."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditSubject(systems.Subject):
    """sources: every file read so far.   treated: the treatment of missing values, in words, in brackets; empty for none."""

    file: AuditFile
    schema_path: Path | None
    sources: tuple[Source, ...]
    treated: str

    def rows(self) -> Stream:
        """Return the table. Raises DataError if there is none."""
        if self.data is None:
            raise DataError("no table of people was named; add a [data] section with the file of the rows")
        return self.data

    def inside(self, section: str, key: str, value: str) -> Path:
        """Return the path of a file that an analysis names. Raises SchemaError as `AuditFile.inside` does."""
        return self.file.inside(section, key, value)

    def check_options(self, folder: Path) -> str:
        """Return the options that name network and schema to `verifair check`, for a working folder."""
        if self.file.model.demo is not None:
            return f"--demo {self.file.model.demo}"
        assert self.schema_path is not None
        return systems.model_options(_from(folder, self.model), _from(folder, self.schema_path))


@dataclass(frozen=True, kw_only=True, eq=False)
class PeopleTable:
    """A table of people.   words: its origin.   name: in the page's list of sources.   sha256: of its content."""

    data: Stream
    words: str
    name: str
    sha256: str


def read(file: AuditFile) -> AuditSubject:
    """Read the subject. Raises SchemaError, DataError, ModelError for files that cannot be read, or do not fit each other."""
    model, schema_path, schema = _model(file)
    table = None if file.data is None else _table(file)
    text = schema.dumps() if schema_path is None else schema_path.read_text(encoding="utf-8")
    network = read_model(model)
    return subject_of(file, network, schema, model=model, schema_path=schema_path, schema_text=text, table=table)


def subject_of(
    file: AuditFile, network: Model, schema: Schema, *, model: Path, schema_path: Path | None, schema_text: str,
    table: PeopleTable | None,
) -> AuditSubject:  # fmt: skip
    """Return the subject after checking its parts against each other.   model, schema_path: the files for `verifair check`.

    Raises SchemaError, DataError.
    """
    network, schema = schema.settled(network)
    protected = _protected(file, schema, [] if table is None else table.data.columns)
    sources = [Source(role="audit file", file=Path(file.name).name, sha256=file.sha256)]
    model_name = file.model.file or f"shipped example {file.model.demo}"
    sources.append(Source(role="model", file=model_name, sha256=network.source_sha256))
    schema_name = file.schema.file if file.schema is not None else f"shipped example {file.model.demo}"
    digest = schema.sha256 if schema_path is None else sha256(schema_text.encode()).hexdigest()
    drafted = schema_text.startswith(DRAFTED)
    sources.append(Source(role=DRAFT if drafted else "schema", file=schema_name, sha256=digest))
    data, words, treated, dropped = None, "no table", "", 0
    if table is not None:
        section = file.data
        grouping = [name for analysis in file.analyses.values() for name in getattr(analysis.settings, "protected", None) or ()]
        rows, treated = table.data.settled(
            "error" if section is None else section.missing, schema.columns_filled, facts=schema.facts([*protected, *grouping])
        )
        words = table.words + treated
        data, dropped = _fitting(schema, rows, "error" if section is None else section.outside, words)
        sources.append(Source(role="data", file=table.name, sha256=table.sha256))
    _check_features(file, schema, data)
    return AuditSubject(
        file=file, network=network, schema=schema, data=data, words=words, treated=treated, dropped=dropped, protected=protected,
        model=model, schema_path=schema_path, sources=tuple(sources),
    )  # fmt: skip


def _model(file: AuditFile) -> tuple[Path, Path | None, Schema]:
    if file.model.demo is not None:
        return datasets.network_path(file.model.demo), None, datasets.load(file.model.demo).schema
    assert file.model.file is not None
    assert file.schema is not None
    path = file.inside("schema", "file", file.schema.file)
    return file.inside("model", "file", file.model.file), path, Schema.load(path)


def _protected(file: AuditFile, schema: Schema, columns: Collection[str]) -> tuple[str, ...]:
    """Return the sensitive features.   columns: of the table."""
    if file.sensitive is None:
        if not schema.protected_names:
            raise SchemaError(
                f"{file.name}: [sensitive]: is missing, and the schema declares no feature protected; add features = [...] with "
                "the sensitive ones"
            )
        return schema.protected_names
    for name in file.sensitive.features:
        try:
            schema.index(name)
        except SchemaError as error:
            hint = (
                "; the table has such a column, which the model does not read: compare groups by it with protected = "
                f"{written([name])} of fgce and cec" if name in columns else ""
            )
            raise SchemaError(f"{file.name}: [sensitive]: features: {error}{hint}") from None
    return tuple(dict.fromkeys(file.sensitive.features))


def _check_features(file: AuditFile, schema: Schema, data: Stream | None) -> None:
    """Check every feature that an analysis names. Raises SchemaError, one line for each problem.

    Groups of `fgce` and `cec` may also be defined by columns that the network does not see.
    """
    columns = [] if data is None else data.columns
    lines = []
    for title, analysis in file.analyses.items():
        settings = analysis.settings
        for key in ("protected", "box", "values", "split", "changes"):
            for name in getattr(settings, key, None) or ():
                if hasattr(settings, "split") and key != "changes" and name in columns:
                    continue
                try:
                    schema.index(name)
                except SchemaError as error:
                    lines.append(f"{file.name}: [analyses.{title}]: {key}: {error}")
    if lines:
        raise SchemaError("\n".join(lines))


def _table(file: AuditFile) -> PeopleTable:
    assert file.data is not None
    if file.data.demo is not None:
        dataset = datasets.load(file.data.demo)
        frame = dataset.test if file.data.rows == "test" else dataset.frame
        rows = "test rows" if file.data.rows == "test" else "all rows"
        content = pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes()
        name = f"shipped example {file.data.demo}, {rows}"
        return PeopleTable(data=Stream.of(frame), words=name, name=name, sha256=sha256(content).hexdigest())
    assert file.data.file is not None
    path = file.inside("data", "file", file.data.file)
    with path.open("rb") as stream:
        content = file_digest(stream, "sha256").hexdigest()
    return PeopleTable(data=Stream.of(path), words=file.data.file, name=file.data.file, sha256=content)


def _fitting(schema: Schema, data: Stream, outside: str, words: str) -> tuple[Stream, int]:
    """Return the rows within the schema, and the number of rows dropped. Raises DataError for rows outside it unless they are
    dropped."""
    if outside == "error":
        for _ in data.each(schema.raw):
            pass
        return data, 0
    rows = data.where(schema.fitting)
    if not rows.count:
        raise DataError(f"{words}: no row lies within the schema; correct the table, or widen the schema")
    return rows, data.count - rows.count


def _from(folder: Path, path: Path) -> Path:
    try:
        return Path(os.path.relpath(path, folder))
    except ValueError as error:  # on another drive
        raise QueryError(f"--out: {folder} and {path} lie on different drives; write the page to the drive of the model") from error
