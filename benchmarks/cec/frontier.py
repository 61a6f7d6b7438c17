"""The trade-off between consistency and accuracy: CEC and its excess against AUC; constant models do not count.

Every method of `verifair reproduce cec --table 2`, and `excess` (CEC training with the excess, above floors) at several losses of
AUC, on the same folds; of the larger datasets a sample of `rows` to train on and as many to test on, drawn with the fold. "CEC
frontier" has means over the folds with standard deviations, the loss of AUC against the unconstrained network, and whether a point
counts: its loss is at most MAX_LOSS, and the variance of its probability at least VARIANCE of the unconstrained one's. "CEC bar"
compares, for each dataset, our best point that counts with the lowest CEC and the lowest excess (in absolute value) of the paper's
methods.

    python -m benchmarks.run cec_frontier --datasets german --folds 0 1 2 3 4
    python -m benchmarks.run cec_frontier --datasets adult hmda synthetic --folds 0 --rows 5000
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared import Skipped, data_folder, show
from verifair.figures import COLORS, figure
from verifair.papers.cec.catalog import HMDA
from verifair.papers.cec.data import FOLDS, SENSITIVE, CecData, measured
from verifair.papers.cec.figures import MARKERS
from verifair.systems.cec.people import People
from verifair.systems.cec.training import CEC_LOOP, EXCESS_TERMS, METHODS, OURS, ConsistencyTerms, train_decider

MAX_LOSS, VARIANCE = 0.03, 0.5
LOSSES = (0.01, 0.03, 0.1)
"""Of AUC, that the floors allow."""
PLAIN = "unconstrained"
RIVALS = tuple(method for method in METHODS if method not in (*OURS, "cec"))
MEASURES = ("AUC", "variance", "positive", "F1", "EO gap", "CEC", "CEC within", "PFR", "B")


def run(
    folder: Path, *, datasets: Sequence[str] = tuple(SENSITIVE), folds: Sequence[int] = tuple(range(FOLDS)), rows: int = 6_000,
    losses: Sequence[float] = LOSSES, methods: Sequence[str] = tuple(METHODS),
) -> list[pd.DataFrame]:
    """Run the comparison.   rows: most people to train on, and to test on; 0 for all."""
    store = folder / "cec-frontier"
    store.mkdir(parents=True, exist_ok=True)
    for fold in folds:
        for name in datasets:
            try:
                case = CecData.load(name, data_folder().joinpath(*HMDA) if name == "hmda" else None)
            except Skipped as reason:
                print(f"cec_frontier: {name} skipped, {reason}")
                continue
            for label, method, terms in _points(methods, losses):
                _point(case, fold, rows, label, method, terms, store)
    results = pd.DataFrame([json.loads(path.read_text()) for path in sorted(store.glob("*.json"))])
    table = summary(results)
    draw(table, folder / "cec-frontier.png")
    return [
        show("CEC frontier: means over folds", table, folder), show("CEC bar: ours beside the paper's methods", bar(table), folder),
    ]


def _points(methods: Sequence[str], losses: Sequence[float]) -> Iterator[tuple[str, str, ConsistencyTerms | None]]:
    for method in methods:
        if method != "excess":
            yield method, method, None
    for loss in losses if "excess" in methods else ():
        yield f"excess, AUC -{loss:g}", "excess", replace(EXCESS_TERMS, auc_loss=loss)


def _point(case: CecData, fold: int, rows: int, label: str, method: str, terms: ConsistencyTerms | None, store: Path) -> None:
    """Train, measure and write one point of one fold, unless it exists."""
    path = store / f"{case.name}-{label.replace(', AUC -', '-')}-{fold}.json"
    if path.exists():
        return
    train, test = (_sample(people, rows, fold) for people in list(case.folds())[fold])
    started = time.process_time()
    decider = train_decider(method, train, case.columns, loop=replace(CEC_LOOP, seed=fold), consistency=terms)
    seconds = time.process_time() - started
    values = measured(decider, case.columns, train, test)
    line: dict[str, Any] = {"dataset": case.name, "method": label, "fold": fold, "train": len(train), "test": len(test)}
    line |= {name: float(values[name]) for name in MEASURES} | {"excess": values["CEC"] - values["CEC within"], "CPU s": seconds}
    path.write_text(json.dumps(line, default=float) + "\n")
    print("  ".join(f"{name} {value:.4g}" if isinstance(value, float) else str(value) for name, value in line.items()), flush=True)


def _sample(people: People, rows: int, fold: int) -> People:
    if not rows or len(people) <= rows:
        return people
    return people.take(np.sort(np.random.default_rng(fold).choice(len(people), rows, replace=False)))


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each dataset and method: means over the folds that the unconstrained network also has."""
    order = {name: n for n, name in enumerate([*SENSITIVE, *METHODS])}
    lines = []
    for name, part in sorted(results.groupby("dataset"), key=lambda pair: order[pair[0]]):
        plain = part[part["method"] == PLAIN].set_index("fold")
        for method, own in sorted(part.groupby("method"), key=lambda pair: (order.get(pair[0], len(order)), pair[0])):
            own = own[own["fold"].isin(plain.index)]
            change = own["AUC"].to_numpy() - plain.loc[own["fold"], "AUC"].to_numpy()
            variance_ratio = own["variance"].mean() / plain.loc[own["fold"], "variance"].mean()
            lines.append({
                "dataset": name, "method": method, "folds": len(own), "train": int(own["train"].mean()), "AUC": own["AUC"].mean(),
                "AUC lost": -float(change.mean()), "CEC": own["CEC"].mean(), "± CEC": own["CEC"].std(ddof=0),
                "excess": own["excess"].mean(), "± excess": own["excess"].std(ddof=0), "variance": own["variance"].mean(),
                "positive": own["positive"].mean(), "F1": own["F1"].mean(), "EO gap": own["EO gap"].mean(),
                "counts": bool(-change.mean() <= MAX_LOSS and variance_ratio >= VARIANCE), "CPU s": own["CPU s"].mean(),
            })
    return pd.DataFrame(lines)


def bar(table: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each dataset: our point with the lowest CEC among those that count, beside the lowest of the paper's
    methods."""
    lines = []
    for name, part in table.groupby("dataset", sort=False):
        rivals, ours = part[part["method"].isin(RIVALS)], part[part["counts"] & part["method"].str.startswith(("excess", "cec"))]
        if not len(ours) or not len(rivals):
            continue
        best = ours.loc[ours["CEC"].idxmin()]
        excess = rivals["excess"].abs()
        lines.append({
            "dataset": name, "ours": best["method"], "AUC lost": best["AUC lost"], "CEC": best["CEC"],
            "lowest CEC of theirs": rivals["CEC"].min(), "excess": best["excess"], "lowest excess of theirs": excess.min(),
            "of": rivals.loc[excess.idxmin(), "method"],
            "met": best["CEC"] < rivals["CEC"].min() and abs(best["excess"]) < excess.min(),
        })
    return pd.DataFrame(lines)


def draw(table: pd.DataFrame, path: Path) -> None:
    """CEC (above) and excess (below) against AUC, a column a dataset; grey: more than MAX_LOSS below the unconstrained AUC."""
    names, methods = list(dict.fromkeys(table["dataset"])), list(dict.fromkeys(table["method"]))
    with figure(path, (5.2 * len(names), 8.2), 2, len(names)) as picture:
        for number, axis in enumerate(picture.axes):
            name, key = names[number % len(names)], ("CEC", "excess")[number // len(names)]
            part = table[table["dataset"] == name].set_index("method")
            for k, method in enumerate(methods):
                if method in part.index:
                    point, color = part.loc[method], COLORS[k % len(COLORS)]
                    axis.errorbar(
                        point["AUC"], point[key], yerr=point[f"± {key}"], fmt=MARKERS[k % len(MARKERS)], color=color, capsize=2,
                        mfc=color if point["counts"] else "white", label=method,
                    )
            left = axis.get_xlim()[0]
            axis.axvspan(left, part.loc[PLAIN, "AUC"] - MAX_LOSS, color="0.9", zorder=0)
            axis.set(xlim=(left, None), xlabel="AUC", ylabel=key, title=name)
        picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
