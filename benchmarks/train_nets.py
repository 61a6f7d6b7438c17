"""Train the networks of the PBA paper (Tables 1-3): 3 datasets x 3 sizes x 3 methods, one network for each file.

    python -m benchmarks.train_nets [--out DIR] [--datasets german,adult] [--hidden 100,50 500,100] [--methods agnostic]

Each network is written as DATASET-METHOD[-SENSITIVE]-SIZES.onnx with its schema (.toml) and its measurements (.json);
those whose .onnx exists are skipped. Fair methods train one network for each sensitive attribute of the paper,
agnostic one for all. COMPAS is not shipped: its table is taken from the folder that the environment variable
VERIFAIR_DATA names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from verifair import datasets
from verifair.datasets import Dataset
from verifair.errors import VerifairError
from verifair.training import METHODS, train

SENSITIVE = {"adult": ("sex", "race"), "german": ("age",), "compas": ("sex",)}
"""Sensitive attributes of the paper's Tables 1 (Adult), 2 (COMPAS) and 3 (German)."""
SIZES = ("100,50", "200,100", "500,100")


def main() -> int:
    options = _options()
    for name in options.datasets.split(","):
        if name == "compas" and "VERIFAIR_DATA" not in os.environ:
            print("compas: skipped, VERIFAIR_DATA is not set", file=sys.stderr)
            continue
        try:
            dataset = _dataset(name)
            for method in options.methods.split(","):
                for hidden in options.hidden:
                    for sensitive in (None,) if method == "agnostic" else SENSITIVE[name]:
                        train_one(dataset, method, sensitive, hidden, options.seed, Path(options.out))
        except VerifairError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    return 0


def train_one(dataset: Dataset, method: str, sensitive: str | None, hidden: str, seed: int, folder: Path) -> None:
    """Train and write one network, unless it exists."""
    parts = [dataset.name, method, *([sensitive] if sensitive else []), hidden.replace(",", "x")]
    path = folder / ("-".join(parts) + ".onnx")
    if path.exists():
        print(f"{path.stem:34} is there")
        return
    start = time.perf_counter()
    model = train(
        dataset, method=method, sensitive=sensitive, hidden=tuple(int(width) for width in hidden.split(",")), seed=seed
    )
    seconds = time.perf_counter() - start
    report = model.report
    model.save(path)
    path.with_suffix(".json").write_text(
        json.dumps({"settings": model.settings.plain(), "report": asdict(report), "seconds": seconds}, indent=2) + "\n",
        encoding="utf-8",
    )
    print(
        f"{path.stem:34} {seconds:5.1f} s  accuracy {report.train_accuracy:.4f}, test {report.test_accuracy:.4f}, "
        f"base {report.base_rate:.4f}  gap {_gaps(report.counterfactual_gap)}  margin gap {_gaps(report.margin_gap)}",
        flush=True,
    )


def _gaps(gaps: dict[str, float]) -> str:
    return ", ".join(f"{name} {gap:.4f}" for name, gap in gaps.items())


def _dataset(name: str) -> Dataset:
    path = Path(os.environ["VERIFAIR_DATA"]) / "tabular" / "compas_two_years.csv.gz" if name == "compas" else None
    return datasets.load(name, path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the networks of the PBA paper.")
    parser.add_argument("--out", default="runs/nets", help="folder of the networks (default: runs/nets)")
    parser.add_argument("--datasets", default="german,adult,compas", help="which, by comma (default: all three)")
    parser.add_argument("--hidden", nargs="+", default=SIZES, help="e.g. 100,50 500,100 (default: the paper's three)")
    parser.add_argument("--methods", default=",".join(METHODS), help="which, by comma (default: all three)")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random draw (default: 0)")
    options = parser.parse_args()
    for text, known in ((options.datasets, SENSITIVE), (options.methods, METHODS)):
        unknown = sorted(set(text.split(",")) - set(known))
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    for size in options.hidden:
        if not all(width.isdigit() and int(width) for width in size.split(",")):
            parser.error(f"--hidden {size}: expected widths by comma, e.g. 500,100")
    return options


if __name__ == "__main__":
    sys.exit(main())
