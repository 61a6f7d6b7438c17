"""The command line as tests run it, and what they look at."""

import gzip
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pandas as pd
from jsonschema import Draft202012Validator

from verifair import datasets
from verifair.cli import main
from verifair.cli import schema as json_schemas

LARGE = 1_000_000
"""Bytes: a certificate of a thousand proofs takes a while to validate, and says no more than one of ten."""
CERTIFICATES = {
    f"verifair-{name}": name
    for name in ("certificate", "kmax-certificate", "consistency-certificate", "centers-certificate", "vnnlib-certificate", "share")
}
Run = Callable[..., tuple[int, str, str]]
"""What the fixture `inside` gives."""
RUN = [sys.executable, "-m", "verifair"]


def verifair(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command within this process: starting Python and importing takes seconds each time."""
    words, here = ["verifair", *map(str, arguments)], sys.argv
    with checked_json(arguments, cwd or Path.cwd()), chdir(cwd or Path.cwd()):
        screen, errors = StringIO(), StringIO()
        code: object = 0
        sys.argv = words
        try:
            with redirect_stdout(screen), redirect_stderr(errors):
                main()
        except SystemExit as ended:
            code = ended.code or 0
        except KeyboardInterrupt:
            raise AssertionError("Ctrl-C ended the command without a word") from None
        finally:
            sys.argv = here
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, screen.getvalue(), errors.getvalue())


def answered(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same of a command that has to end with exit code 0."""
    done = verifair(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@contextmanager
def checked_json(arguments: Sequence[object], folder: Path) -> Iterator[None]:
    """Whatever a command writes in this block, its answer as JSON and its certificate, is as its schema says."""
    words = [str(one) for one in arguments]
    files = {option: folder / path for option, path in pairwise(words) if option in ("--json", "--certificate")}
    if words[:1] == ["audit"] and "--out" in words[:-1]:
        files = {"--json": (folder / words[words.index("--out") + 1]).with_suffix(".json")} | files
    before = {file: _stamp(file) for file in files.values()}
    yield
    for option, file in files.items():
        if _stamp(file) not in (None, before[file]) and file.stat().st_size < LARGE:
            content = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
            kind = schema_of(words) if option == "--json" else CERTIFICATES[content["format"].partition("/")[0]]
            validator(kind).validate(content)


def _stamp(file: Path) -> tuple[int, int] | None:
    """Another one for each writing; None where there is no file."""
    return (file.stat().st_ino, file.stat().st_mtime_ns) if file.is_file() else None


def schema_of(arguments: list[str]) -> str:
    """The name of the schema of a command's answer."""
    modes = [f"certify-{mode}" for mode in ("targeted", "partition", "maximise", "share", "enumerate") if f"--{mode}" in arguments]
    return modes[0] if arguments[0] == "certify" and modes else "bench-list" if "--list" in arguments else arguments[0]


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json_schemas.schema(name))


def flat(text: str) -> str:
    return " ".join(text.split())


def is_drawn(path: Path) -> bool:
    """Whether a PNG has more than a few hundred pixels a side."""
    head = path.read_bytes()[:24]
    return head[:8] == b"\x89PNG\r\n\x1a\n" and min(struct.unpack(">II", head[16:24])) > 300


def german_files(folder: Path, rows: pd.DataFrame) -> Path:
    """The folder with model and schema of German Credit, and a table of these rows."""
    datasets.load("german").schema.save(folder / "german.toml")
    rows.to_csv(folder / "german.csv", index=False)
    (folder / "german.onnx").write_bytes(datasets.network_path("german").read_bytes())
    return folder
