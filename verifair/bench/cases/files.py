"""A user's queries as cases: VNN-LIB files, folders laid out as a benchmark of VNN-COMP, and JSON lists of such files.

    FOLDER/instances.csv     network,query,timeout  a line, as `verifair export` writes it; timeouts are the bench's own
    LIST.json                [{"network": FILE.onnx, "query": FILE.vnnlib, "name": NAME}, ...]: `name` may be missing

Paths are relative to the file that names them. A file or folder that names no network uses that of --network.
"""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from encoders.vnnlib.reader import read_vnnlib
from verifair.bench.cases.family import Family
from verifair.bench.questions import FileQuestion, Question
from verifair.errors import QueryError
from verifair.interop.decide import networks_of

SUFFIXES = (".vnnlib", ".vnnlib.gz")


def file_families(paths: Sequence[Path], network: Path | None) -> list[Family]:
    """Return a family for each file, with the file's name. Raises QueryError for lists that cannot be read and for missing
    networks."""
    families: list[Family] = []
    for name, query, model in (entry for path in paths for entry in _queries_of(path, network)):
        unique, number = name, 1
        while any(family.name == unique for family in families):
            number += 1
            unique = f"{name}-{number}"
        families.append(
            Family(
                name=unique, kind="decision", about=f"the query {query.name}", size_is="query", sizes=(1,), count=1, drawn=False,
                build=partial(_question, query, model),
            )
        )
    return families


def _queries_of(path: Path, network: Path | None) -> Iterator[tuple[str, Path, Mapping[str, Path] | Path]]:
    """Yield (name, query, its network: one file, or declared name -> file)."""
    if path.is_dir() and (path / "instances.csv").is_file():
        path = path / "instances.csv"
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES))
        if not files:
            raise QueryError(f"--queries {path}: holds no instances.csv and no .vnnlib file")
        for file in files:
            yield from _queries_of(file, network)
    elif path.name.endswith(SUFFIXES):
        if network is None:
            raise QueryError(f"--queries {path}: say which network it is about, --network FILE.onnx")
        yield _name(path), path, network
    elif path.suffix in (".csv", ".json"):
        yield from _entries(path)
    else:
        raise QueryError(f"--queries {path}: expected a .vnnlib file, a .json or .csv list of them, or a folder")


def _entries(path: Path) -> Iterator[tuple[str, Path, Mapping[str, Path] | Path]]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            rows = [(entry["network"], entry["query"], entry.get("name")) for entry in json.loads(text)]
        else:
            rows = [(row[0], row[1], None) for row in csv.reader(text.splitlines()) if row]
        for model, query, name in rows:
            networks = {}
            if model.startswith("["):  # of VNN-LIB 2.0: [('f', FILE), ('g', FILE)]
                networks = {str(key): path.parent / file for key, file in ast.literal_eval(model)}
            yield name or _name(Path(query)), path.parent / query, networks or path.parent / model
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, SyntaxError, RecursionError) as error:
        raise QueryError(f"--queries {path}: is no list of networks and queries ({type(error).__name__}: {error})") from None


def _name(query: Path) -> str:
    return query.name.removesuffix(".gz").removesuffix(".vnnlib").replace("/", "-")


def _question(query: Path, model: Mapping[str, Path] | Path, size: int, number: int, seed: int) -> Question:
    """Read the query, so that errors are found before any competitor runs."""
    parsed = read_vnnlib(query)
    needed = [declared.name for declared in parsed.networks if declared.equal_to is None]
    files = dict.fromkeys(needed, model) if isinstance(model, Path) else {name: model[name] for name in needed if name in model}
    networks_of(parsed, files)
    return FileQuestion.of(query, files)
