"""Drafts of audit files, from a model, a table and the names of its sensitive features."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from encoders.model import Model
from verifair.auditing.settings import known_analyses
from verifair.datasets import read_table
from verifair.datasets.groups import MAX_GROUPS
from verifair.errors import QueryError
from verifair.files import filled
from verifair.models.read import read
from verifair.schema.draft import draft
from verifair.schema.drafts.infer import guessed_favourable
from verifair.schema.schema import Schema
from verifair.schema.spelling import nearest
from verifair.schema.writing import written
from verifair.systems.results.files import save_text

ANALYSES: Mapping[str, Mapping[str, Any]] = {
    "pba": {"delta": [1], "rows": 1000}, "certify": {"maximise": True}, "kmax": {"buckets": 20},
    "fgce": {"k": 20, "rows": 1000}, "cec": {"certify": 1, "rows": 1000},
}
"""The default analyses. Situation testing needs a causal model, which cannot be drafted."""


def chosen(
    analyses: Mapping[str, Mapping[str, Any]] | Sequence[str] | None, model: Model, cuts: Mapping[str, Sequence[float]]
) -> Mapping[str, Mapping[str, Any]]:
    """Return analysis -> settings; `analyses` may also be names alone. Raises QueryError for unknown names.

    cuts: of sensitive numbers, as `medians` returns them; they define the groups of `fgce` and `cec`. Certified reasons are for
    piecewise-linear networks only.
    """
    defaults = {name: dict(settings) for name, settings in ANALYSES.items()}
    if model.of_trees or not model.piecewise_linear:
        del defaults["cec"]["certify"]
    if cuts:
        for name in ("fgce", "cec"):
            defaults[name]["split"] = cuts
    if analyses is None:
        return defaults
    names = [analyses] if isinstance(analyses, str) else list(analyses)
    unknown = [name for name in names if name not in known_analyses()]
    if unknown:
        raise QueryError(f"analyses: {unknown[0]!r}: unknown analysis; {nearest(str(unknown[0]), known_analyses())}")
    return analyses if isinstance(analyses, Mapping) else {name: defaults.get(name, {}) for name in names}


def medians(schema: Schema, table: pd.DataFrame | Path, sensitive: Sequence[str]) -> dict[str, list[float]]:
    """Return sensitive number -> the cut into two groups, for numbers with many values.

    table: only these columns of a file are read. Rows without a value are not counted; later steps report them.
    """
    names = sensitive or schema.protected_names
    numbers = [feature.name for feature in schema.features if feature.numeric and feature.name in names]
    if not numbers:
        return {}
    frame = read_table(table, columns=numbers) if isinstance(table, Path) else table
    columns = {name: pd.to_numeric(frame[name], errors="coerce").dropna() for name in numbers if name in frame.columns}
    return {name: [float(f"{column.median():g}")] for name, column in columns.items() if column.nunique() > MAX_GROUPS}


def audit_text(head: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an audit file as text.   head: keys above the sections.   sections: title -> keys; a key with None is left out."""
    lines = [f"{key} = {written(value)}" for key, value in head.items() if value is not None]
    for title, keys in sections.items():
        lines += ["", f"[{title}]", *(f"{key} = {written(value)}" for key, value in keys.items() if value is not None)]
    return "\n".join(lines) + "\n"


def sections_of(
    model: str, schema: str, data: Mapping[str, Any] | None, sensitive: Sequence[str], analyses: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the sections of an audit file that names these files.   data: the section of the table; None without a table."""
    sections: dict[str, Mapping[str, Any]] = {"model": {"file": model}, "schema": {"file": schema}}
    sections |= {} if data is None else {"data": data}
    sections |= {"sensitive": {"features": list(sensitive)}} if sensitive else {}
    return sections | {f"analyses.{name}": settings for name, settings in analyses.items()}


def _named(path: Path, folder: Path) -> str:
    """Return a file as an audit file in the folder names it. Raises QueryError for a name that TOML cannot hold."""
    name = os.path.relpath(path.resolve(), folder)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise QueryError(f"{path}: an audit file is UTF-8 and cannot name it, as its name is not: choose another name") from None
    return name


@dataclass(frozen=True, kw_only=True)
class DraftedFiles:
    """audit, schema: the files beside the page.   drafted: True if the schema is a draft.   guess: what to check about the
    favourable label if none was named.   root: a folder that holds all files."""

    audit: Path
    schema: Path
    drafted: bool
    guess: str | None
    root: Path


@contextmanager
def drafted_files(
    page: Path, model: Path, data: Path, *, schema: Path | None, target: str | None, positive: str | None, sensitive: Sequence[str],
    rows: Mapping[str, str],
) -> Iterator[DraftedFiles]:  # fmt: skip
    """Write an audit file beside its page, and a draft of the schema if none was named. If the block, which checks them, fails, the
    files are removed, so that the corrected command drafts them again.

    rows: keys of [data] beside the file. Raises QueryError if one of the files exists with another content: somebody has
    corrected it.
    """
    if schema is None and target is None:
        raise QueryError("--model needs --target LABEL, to draft a schema from the table, or --schema FILE, one that was checked")
    if not sensitive and schema is None:
        raise QueryError("--model needs --sensitive NAME, once for each sensitive feature, or a --schema that declares them")
    network = read(model)
    schema_file = page.with_name(f"{page.stem}.schema.toml") if schema is None else schema
    audit = page.with_name(f"{page.stem}.audit.toml")
    folder = page.resolve().parent
    model_name, schema_name, data_name = (_named(path, folder) for path in (model, schema_file, data))
    guess = None
    if schema is None:
        table = read_table(data)
        text = draft(table, target=str(target), positive=positive, protected=sensitive, model=network)
        drafted = Schema.loads(text)
        cuts = medians(drafted, table, sensitive)
        if positive is None:
            guess = guessed_favourable(table[str(target)], drafted.positive_label or drafted.outcomes[-1])
    else:
        cuts = medians(Schema.load(schema), data, sensitive)
    sections = sections_of(model_name, schema_name, {"file": data_name, **rows}, sensitive, chosen(None, network, cuts))
    texts = [(audit, audit_text({"title": f"Audit of {model.name}"}, sections), f"run it with verifair audit {audit} --out {page}")]
    if schema is None:
        texts.insert(0, (schema_file, text, f"pass it with --schema {schema_file} in place of --target"))
    for path, text, remedy in texts:
        if os.path.lexists(path) and not (path.is_file() and path.read_text(encoding="utf-8") == text):
            raise QueryError(f"{path}: is there already, and is not what would be drafted; {remedy}, or name another page")
    parents = [str(path.resolve().parent) for path in (model, schema_file, data, audit)]
    new_files = [path for path, _, _ in texts if not path.exists()]
    with filled(page.parent):
        try:
            for path, text, _ in texts:
                if path in new_files:
                    save_text(path, text)
            root = Path(os.path.commonpath(parents))
            yield DraftedFiles(audit=audit, schema=schema_file, drafted=schema is None, guess=guess, root=root)
        except BaseException:
            for path in new_files:
                path.unlink(missing_ok=True)
            raise
