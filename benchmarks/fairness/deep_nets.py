"""Deep and narrow networks on Fairify's Adult and Bank tables, trained here: three seeds of each shape.

    python -m benchmarks.fairness.deep_nets [--out DIR]        train those that do not exist yet (half a minute on one core)

Fairness-agnostic, by `verifair.training`, 10 epochs of batch 256; every number is scaled to 0 .. 1 by its declared range. The same
torch on the same machine gives the same files. `partitions --deep` decides their partitions. Adult 64-32-16-8-4 with seed 0 refuses
everybody, which is especially hard to prove.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.fairness.networks import ListedNetwork
from benchmarks.shared import Skipped, data_folder
from encoders.onnx.reader import read_onnx
from verifair.datasets import Dataset, read_table
from verifair.papers.hyfair.data import fairify_schema, family_file
from verifair.schema.schema import Schema
from verifair.training import train

SHAPES = {
    "adult": ((64, 32, 16, 8, 4), (10, 10, 10, 10), (5,) * 9),
    "bank": ((150, 100, 50), (64, 32, 16, 8, 4)),
}
"""Of the hidden layers."""
SEEDS = (0, 1, 2)
EPOCHS, BATCH = 10, 256


def names(family: str) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return the networks of a family: name -> hidden layers and seed, such as adult-64-32-16-8-4-0."""
    return {f"{family}-{'-'.join(map(str, hidden))}-{seed}": (hidden, seed) for hidden in SHAPES[family] for seed in SEEDS}


def deep_subjects(data: Path, folder: Path, *, nets: Sequence[str] = ()) -> Iterator[ListedNetwork]:
    """Yield the networks, or those whose name begins with one of `nets`, in `folder`: each is trained when needed, unless it
    exists."""
    family_of = {name: family for family in SHAPES for name in names(family)}
    for prefix in nets:
        if not any(name.startswith(prefix) for name in family_of):
            raise SystemExit(f"--nets {prefix}: no network begins so; they are {', '.join(family_of)}")
    for name, family in family_of.items():
        if not nets or name.startswith(tuple(nets)):
            path = trained(data, folder, name, family)
            yield ListedNetwork(
                name=name, family=family, network=read_onnx(path), schema=Schema.load(path.with_suffix(".toml")), listed={},
                file=family_file(data, family),
            )


def trained(data: Path, folder: Path, name: str, family: str) -> Path:
    """Return the path of a network, trained unless it is there."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        frame = read_table(data / "encoded" / f"{family}.csv.gz")
        hidden, seed = names(family)[name]
        dataset = Dataset(name=family, frame=frame, schema=fairify_schema(data, family, scaled=True))
        model = train(dataset, method="agnostic", hidden=hidden, seed=seed, epochs=EPOCHS, batch=BATCH)
        model.save(path)
        accuracy, base = model.report.test_accuracy, model.report.base_rate
        print(f"{name}: trained, accuracy on held-out rows {accuracy:.4f}; the more frequent class has {base:.4f}", flush=True)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Train deep and narrow networks on Fairify's tables.")
    parser.add_argument("--out", type=Path, default=Path("runs") / "deep", help="folder of the networks (default: runs/deep)")
    options = parser.parse_args()
    try:
        for subject in deep_subjects(data_folder(), options.out):
            print(f"{subject.name} is there")
    except Skipped as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
