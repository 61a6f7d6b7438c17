"""The audit file, TOML: the model, the schema, the table, the sensitive features, and the analyses.

    title = "German credit, 2026"                          [analyses.pba]
    seed = 0                                               delta = [1, 2]
    effort = 150
                                                           [analyses.certify]
    [model]                                                partition = 10
    file = "german.onnx"
                                                           [analyses.kmax]
    [schema]                                               [analyses.fgce]
    file = "german.toml"                                   k = 20

    [data]                                                 [analyses.cec]
    file = "german.csv"                                    certify = 1

    [sensitive]                                            [analyses.cst]
    features = ["sex", "age"]                              causal = "german.causal.toml"

Paths are relative to the audit file, and stay in its folder unless the user names a wider one (--root).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from verifair.auditing.settings import (
    SECTIONS,
    Analysis,
    Data,
    GateSection,
    Head,
    ModelSection,
    SchemaOf,
    Sensitive,
    analysis_of,
    known_analyses,
)
from verifair.errors import QueryError, SchemaError
from verifair.schema import file as schema_file
from verifair.schema.spelling import nearest


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditFile:
    """The content of an audit file.   name: of the file, for errors.   folder: its paths are relative to it.   root: its paths may
    not leave it.   analyses: in the file's order.   sha256: of its text.
    """

    name: str
    folder: Path
    root: Path
    head: Head
    model: ModelSection
    schema: SchemaOf | None
    data: Data | None
    sensitive: Sensitive | None
    gate: GateSection | None
    analyses: Mapping[str, Analysis]
    sha256: str = field(repr=False)

    @property
    def title(self) -> str:
        return self.head.title_ or f"Audit of {Path(self.model.file).name if self.model.file else self.model.demo}"

    def inside(self, section: str, key: str, value: str) -> Path:
        """Return the path that a key names. Raises SchemaError if it leaves the root (links followed), or is no file."""
        place = f"{self.name}: [{section}]: {key} = {schema_file.shown(value)}"
        try:
            path = (self.folder / value).resolve()
            exists = path.is_file() if path.is_relative_to(self.root) else None
        except (OSError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SchemaError(f"{place}: is no path ({reason}); name a file beside the audit file") from None
        if exists is None:
            raise SchemaError(
                f"{place}: leads out of the folder {self.root}; put the file there, or run the audit with --root and a folder that "
                "holds both"
            )
        if not exists:
            raise SchemaError(f"{place}: there is no such file ({path}); correct the path, which is relative to the audit file")
        return path


def load(path: str | Path, *, root: Path | None = None) -> AuditFile:
    """Read an audit file from its path.   root: the folder that its paths may not leave; None: its own.

    Raises SchemaError naming file, section, key, the value found and the remedy, one line for each problem.
    """
    path = Path(path)
    text = schema_file.read(path, "an audit file")
    folder = path.resolve().parent
    if root is not None and not root.is_dir():
        raise QueryError(f"--root {root}: is no folder; name one that holds the files that the audit file names")
    return loads(text, name=str(path), folder=folder, root=folder if root is None else root.resolve())


def loads(text: str, *, name: str, folder: Path, root: Path | None = None) -> AuditFile:
    """Read an audit file from its text."""
    content = schema_file.loaded(text, name, "an audit file")
    try:
        return _build(content, name, folder, root or folder, hashlib.sha256(text.encode()).hexdigest())
    except SchemaError as error:
        raise SchemaError(schema_file.with_name(error, name)) from None


def _build(content: Mapping[str, Any], name: str, folder: Path, root: Path, sha256: str) -> AuditFile:
    titles, keys = (*SECTIONS, "analyses"), ("title", "seed", "effort", "timeout", "what_if")
    lines = [f"{k}: unknown key or section; {nearest(k, (*keys, *titles))}" for k in content if k not in (*keys, *titles)]
    sections: dict[str, Any] = {}
    for title, kind in SECTIONS.items():
        demo = getattr(sections.get("model"), "demo", None)
        if title == "schema" and title in content and demo is not None:  # whatever its content
            lines.append(f"[schema]: [model] demo = {demo!r} brings its own schema; drop the section, or name a model's file")
        elif title in content:
            sections[title] = _read(kind.read, content[title], f"[{title}]", lines)
    head = _read(Head.read, {key: content[key] for key in keys if key in content}, "", lines)
    if "model" not in content:
        lines.append('[model]: is missing; name the network with file = "...", or a shipped one with demo = "german"')
    analyses = _analyses(content.get("analyses"), lines)
    if not lines and sections["model"].demo is None and "schema" not in sections:
        lines.append('[schema]: is missing; describe what the network takes in a schema, and name it with file = "..."')
    if lines:
        raise SchemaError("\n".join(lines))
    model: ModelSection = sections["model"]
    data = sections.get("data") or (Data(demo=model.demo) if model.demo is not None else None)
    return AuditFile(
        name=name, folder=folder, root=root, head=head, model=model, schema=sections.get("schema"), data=data,
        sensitive=sections.get("sensitive"), gate=sections.get("gate"), analyses=analyses, sha256=sha256,
    )  # fmt: skip


def _analyses(content: Any, lines: list[str]) -> dict[str, Analysis]:
    listing = ", ".join(f"[analyses.{name}]" for name in known_analyses())
    if not isinstance(content, Mapping) or not content:
        lines.append(f"[analyses]: names no analysis; add one or more of {listing}")
        return {}
    result = {}
    for title, section in content.items():
        if title not in known_analyses():
            lines.append(f"[analyses.{title}]: unknown analysis; {nearest(title, known_analyses())}")
            continue
        analysis = _read(partial(analysis_of, title), section, f"[analyses.{title}]", lines)
        if analysis is not None:
            result[title] = analysis
    return result


def _read(reader: Callable[[Mapping[str, Any]], Any], data: Any, title: str, lines: list[str]) -> Any:
    """Return a section, or None after adding its errors to `lines`."""
    if not isinstance(data, Mapping):
        lines.append(
            f"{title}: found {schema_file.shown(data)}, expected a section of keys; write {title} on a line of its own, and the "
            "keys below"
        )
        return None
    try:
        return reader(data)
    except SchemaError as error:
        lines += [line.removeprefix(": ") for line in str(error).splitlines()]
        return None
