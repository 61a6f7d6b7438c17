"""python -m benchmarks.run [NAME ...] [--out runs/bench]: run the comparisons, all of them by default."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from benchmarks.cases import (
    agreement,
    cec_ablation,
    cec_audit,
    cec_comparison,
    cec_epoch,
    cec_verified,
    cst_million,
    cst_speed,
    cst_tables,
    exact_queries,
    exhaustive,
    fgce_adult,
    fgce_baselines,
    fgce_graphs,
    fgce_tables,
    gaps,
    guardrail,
    interop_marabou,
    k_center,
    kill_resume,
    kmax,
    partitions,
    pba_leftovers,
    pba_speed,
    pba_split,
    search,
    stress,
    witnesses,
)

CASES = {
    "pba_split": pba_split.run,
    "pba_speed": pba_speed.run,
    "pba_leftovers": pba_leftovers.run,
    "agreement": agreement.run,
    "exact_queries": exact_queries.run,
    "exhaustive": exhaustive.run,
    "witnesses": witnesses.run,
    "partitions": partitions.run,
    "race_partitions": partial(partitions.run, race=True),
    "stress": stress.run,
    "gaps": gaps.run,
    "search": search.run,
    "guardrail": guardrail.run,
    "kmax": kmax.run,
    "interop_marabou": interop_marabou.run,
    "kill_resume": kill_resume.run,
    "cec_audit": cec_audit.run,
    "cec_epoch": cec_epoch.run,
    "cec_comparison": cec_comparison.run,
    "cec_ablation": cec_ablation.run,
    "cec_verified": cec_verified.run,
    "fgce_graphs": fgce_graphs.run,
    "fgce_adult": fgce_adult.run,
    "fgce_baselines": fgce_baselines.run,
    "k_center": k_center.run,
    "fgce_tables": fgce_tables.run,
    "cst_tables": cst_tables.run,
    "cst_speed": cst_speed.run,
    "cst_million": cst_million.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="which comparisons")
    parser.add_argument("--out", type=Path, default=Path("runs") / "bench", help="folder for the CSV files")
    options = parser.parse_args()
    for name in options.names or CASES:
        CASES[name](options.out)


if __name__ == "__main__":
    main()
