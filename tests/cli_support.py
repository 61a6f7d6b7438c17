"""The command line as tests run it, and what they look at."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

RUN = [sys.executable, "-c", "from verifair.cli import main; main()"]


def verifair(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False, cwd=cwd)


def flat(text: str) -> str:
    return " ".join(text.split())


def is_drawn(path: Path) -> bool:
    """Whether a PNG has more than a few hundred pixels a side."""
    head = path.read_bytes()[:24]
    return head[:8] == b"\x89PNG\r\n\x1a\n" and min(struct.unpack(">II", head[16:24])) > 300
