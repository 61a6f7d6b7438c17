"""python -m benchmarks.run [NAME ...] [--out runs/bench]: run the comparisons, all of them by default.

    python -m benchmarks.run --list                                           their names
    python -m benchmarks.run partitions --nets AC-1 GC-3 --seconds 10         one of them, with its own options
    python -m benchmarks.run partitions --help                                the options
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from benchmarks.shared import Skipped
from verifair.memory import keep_freed

CASES = {
    "pba_split": "pba.split", "pba_speed": "pba.speed", "pba_leftovers": "pba.leftovers", "agreement": "pba.agreement",
    "streams": "pba.streams",
    "exact_queries": "fairness.exact_queries", "exhaustive": "fairness.exhaustive", "witnesses": "fairness.witnesses",
    "partitions": "fairness.partitions", "race_partitions": "fairness.partitions", "deep_partitions": "fairness.partitions",
    "stress": "fairness.stress", "shares": "fairness.shares", "gaps": "fairness.gaps", "trees": "fairness.trees",
    "tree_rows": "fairness.tree_rows",
    "peers": "verification.peers", "depth": "verification.depth", "roots": "verification.roots", "floor": "verification.floor",
    "curves": "verification.curves", "deadlines": "verification.deadlines",
    "search": "hyfair.search", "guardrail": "hyfair.guardrail", "kmax": "hyfair.kmax",
    "interop_marabou": "interop.marabou", "kills": "machines.kills", "cluster": "machines.efficiency", "losses": "machines.losses",
    "cec_audit": "cec.audit",
    "cec_epoch": "cec.epoch", "cec_encodings": "cec.encodings", "cec_verified": "cec.verified",
    "cec_frontier": "cec.frontier",
    "fgce_graphs": "fgce.graphs", "fgce_adult": "fgce.adult", "k_center": "fgce.k_center",
    "fgce_tables": "fgce.tables",
    "cst_tables": "cst.tables", "cst_speed": "cst.speed", "cst_million": "cst.million",
}
"""Name -> the module whose `run(folder, ...)` makes the comparison, and ..."""
FIXED = {"race_partitions": {"race": True}, "deep_partitions": {"deep": True}}
"""... what its options are where two share one."""


def case(name: str) -> Callable[..., object]:
    """Return the comparison's `run`, imported on demand."""
    comparison: Callable[..., object] = import_module(f"benchmarks.{CASES[name]}").run
    fixed = FIXED.get(name)
    return comparison if fixed is None else partial(comparison, **fixed)


def options_of(name: str, words: list[str]) -> dict[str, Any]:
    """Return the keyword arguments of a comparison from the command's words; types and defaults are those of its `run`.

    A list of words that is not empty by default takes only words of its default.
    """
    run = case(name)
    module = import_module(f"benchmarks.{CASES[name]}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.run {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hints = get_type_hints(run.func if isinstance(run, partial) else run)
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            kind, default = hints[parameter.name], parameter.default
            is_list = get_origin(kind) is not None and bool(get_args(kind)) and type(None) not in get_args(kind)
            item_type = next(t for t in (get_args(kind) or (kind,)) if t is not type(None))
            option: dict[str, Any] = {"default": default, "help": f"default: {default}"}
            if item_type is bool:
                option["action"] = argparse.BooleanOptionalAction
            else:
                option["type"] = item_type
            if is_list:
                option["nargs"] = "*"
                if item_type is str and default:
                    option["choices"] = list(default)
            parser.add_argument(f"--{parameter.name.replace('_', '-')}", **option)
    return vars(parser.parse_args(words))


def main() -> int:
    keep_freed()  # as the command does
    names = list(takewhile(CASES.__contains__, sys.argv[1:]))
    only_name = names[0] if len(names) == 1 else None
    parser = argparse.ArgumentParser(
        usage="python -m benchmarks.run [NAME ...] [--out FOLDER] [--list]", description=__doc__, add_help=only_name is None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("runs") / "bench", help="folder for the CSV files")
    parser.add_argument("--list", action="store_true", help="list the names, and run nothing")
    options, extra = parser.parse_known_args(sys.argv[1 + len(names) :])
    if options.list:
        print(*CASES, sep="\n")
        return 0
    if extra and only_name is None:
        parser.error(f"{extra[0]}: no comparison is called so (--list names them), and options of its own go behind one name alone")
    for name in names or CASES:
        try:
            case(name)(options.out, **options_of(name, extra))
        except Skipped as reason:
            print(f"{name}: skipped, {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
