"""A campaign:  python -m tests.fuzz onnx --seconds 600 [--seed 0] [--only 1234]   (no target: all of them, one after the other)."""

import argparse
import tempfile
from pathlib import Path

from tests.fuzz.target import TARGETS, outcome, target
from tests.fuzz.watch import Corpus, campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damaged files for every reader of verifair.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all of them when left out")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="read this one input here, without limits, and print what comes of it")
    parser.add_argument("--folder", type=Path, help="keep valid files and the input under way here")
    given = parser.parse_args()
    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    failures = 0
    for name in given.targets or TARGETS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = given.folder / name if given.folder else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            if given.only is not None:
                corpus = Corpus.of(target(name), folder, given.seed)
                file, data = corpus.mutant(given.only)
                (folder / file).write_bytes(data)
                found = outcome(target(name), folder / file)
                print(f"{name} input {given.only}: {file}, {len(data):,} bytes: {found.kind}: {found.said}\n{found.trace}")
                failures += found.kind == "failed"
                continue
            report = campaign(name, folder, seconds=given.seconds, seed=given.seed, first=given.first)
            print(report.text(), flush=True)
            failures += len(report.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
