"""What `verifair cst` holds of each row of a table of a file, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verifair import datasets

SCRIPT = """
import re, sys, threading
from pathlib import Path
from verifair import aside
aside.ASIDE = 1 << 16
most, done = 0, threading.Event()
def watch():
    global most
    while not done.wait(0.005):
        most = max(most, int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
watching = threading.Thread(target=watch)
watching.start()
from verifair.cli import main
try:
    main()
finally:
    done.set()
    watching.join()
    print("most", most, file=sys.stderr)
"""
MOST = 500
"""Bytes of a row, at the peak; they were 830 while the table was held."""
SIZES = (20_000, 140_000)
"""Rows, so far apart that what a busy machine hides of one peak (25 MB seen) is 200 bytes of a row, not 500."""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's files")
def test_most_of_a_table_lies_on_the_disk(tmp_path: Path) -> None:
    adult, rng, held = datasets.adult().frame, np.random.default_rng(0), {}
    schema, table = datasets.causal_path("adult").with_name("adult.toml"), tmp_path / "t.csv"
    for rows in SIZES:
        frame = adult.iloc[rng.integers(0, len(adult), rows)].copy()
        frame["age"] = np.clip(frame["age"] + rng.integers(-3, 4, rows), 17, 90)
        frame["hours-per-week"] = np.clip(frame["hours-per-week"] + rng.integers(-3, 4, rows), 1, 99)
        frame.to_csv(table, index=False)
        options = ["--schema", str(schema), "--data", str(table), "--causal", str(datasets.causal_path("adult")), "--k", "5"]
        given = ["cst", str(datasets.network_path("adult")), *options, "--do", "sex=Male", "--json", str(tmp_path / "t.json")]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True, check=False,
            env=os.environ | {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"},  # what is freed is gone
        )
        assert done.returncode == 0, done.stderr
        held[rows] = 1024 * int(done.stderr.split()[-1])
    assert (held[SIZES[1]] - held[SIZES[0]]) / (SIZES[1] - SIZES[0]) < MOST, held
