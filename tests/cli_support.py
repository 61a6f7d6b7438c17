"""The command line as tests run it, and what they look at."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

from jsonschema import Draft202012Validator

from verifair import json_schemas

LARGE = 200_000
"""Bytes: a certificate of a thousand proofs takes a while to validate, and says no more than one of ten."""
CERTIFICATES = {
    f"verifair-{name}/1": name
    for name in ("certificate", "kmax-certificate", "consistency-certificate", "vnnlib-certificate")
}
RUN = [sys.executable, "-c", "from verifair.cli import main; main()"]


def verifair(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False, cwd=cwd)
    check_json([str(one) for one in arguments], cwd or Path.cwd())
    return done


def check_json(arguments: list[str], folder: Path) -> None:
    """Whatever a command was asked to write by --json or --certificate, and wrote, is as its schema says."""
    files = {option: folder / path for option, path in pairwise(arguments) if option in ("--json", "--certificate")}
    for option, file in files.items():
        if file.is_file() and file.stat().st_size < LARGE:
            content = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
            validator(schema_of(arguments) if option == "--json" else CERTIFICATES[content["format"]]).validate(content)


def schema_of(arguments: list[str]) -> str:
    """The name of the schema of a command's answer."""
    modes = [f"certify-{mode}" for mode in ("targeted", "partition", "maximise") if f"--{mode}" in arguments]
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
