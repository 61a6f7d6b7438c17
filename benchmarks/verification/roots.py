"""Bounds of whole boxes, before anything is cut: ours beside CROWN's and alpha-CROWN's of the product network.

The queries are those of `data/race` whose bounds of alpha-CROWN (release of December 2025) were noted; 0 proves. The column "lack"
is our bound's distance to 0 relative to alpha-CROWN's: below 1 ours is the tighter one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.shared import data_folder, measured
from encoders.vnnlib.cases import cases
from encoders.vnnlib.reader import read_vnnlib
from verifair.engine.search.branch_and_bound import decide
from verifair.interop.decide import networks_of
from verifair.interop.problems import case_problems

PEERS = {
    "AC-4-gapT-r0.3-0": (-394.0, -254.0), "BM-2-gapU-r0.3-0": (-203.0, -112.0), "100x50-gapU-r1.0-0": (-42.8, -32.5),
    "6x100-gapU-r0.05-6": (-1.70, -0.72), "6x100-gapU-r0.3-0": (-32.8, -7.12), "4x256-gapU-r0.3-0": (-8.64, -3.90),
}
"""Root bounds of CROWN and of alpha-CROWN, by query."""


def run(folder: Path, *, only: Sequence[str] = ()) -> pd.DataFrame:
    return measured("Roots: bounds of whole boxes", _lines(data_folder() / "race", only or tuple(PEERS)), folder)


def _lines(root: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    entry_of = {entry["name"]: entry for entry in json.loads((root / "index.json").read_text(encoding="utf-8"))}
    for name in names:
        query = read_vnnlib(root / entry_of[name]["q2"])
        files = {network.name: root / entry_of[name]["network"] for network in query.networks if network.equal_to is None}
        problem = next(case_problems(query, next(iter(cases(query))), networks_of(query, files)))
        started = time.process_time()
        bound = float(decide(problem.problem, max_nodes=1).root_lower.min())
        crown, alpha = PEERS[name]
        yield {
            "query": name, "verifair": bound, "CROWN": crown, "alpha-CROWN": alpha, "lack": bound / alpha,
            "cpu s": time.process_time() - started,
        }
