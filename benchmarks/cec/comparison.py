"""Nine methods on four datasets in 5-fold cross-validation: utility, outcome fairness, and explanation consistency (CEC).

All with the CEC paper's architecture and loop ([128, 64], dropout 0.2, Adam 3e-4, batch 64, 30 epochs). Every fold of every method
is written as soon as it is measured, and a run that was stopped goes on where it was: delete cec-folds to measure anew. Tables and
figures show all that is there, also from earlier runs: "CEC comparison" has means and standard deviations over the folds, "CEC
regimes" the regimes beside what the paper's text says, "CEC control" pairs of one group beside those across (`cec_data.measured`),
"CEC pareto" counts the folds on which no other method is strictly better in F1, EO gap and CEC at once, and "CEC constants" says
what deciding positively about everybody gives: a model that hardly varies has no gap and flips nobody, so look at variance and AUC.

What the paper leaves open, as it is done here: minmax inputs and one-hot categories (`verifair.datasets`); the sensitive feature is
an input (not of DIR, which is blind to it, and not on synthetic data); exact path integrals of the network without dropout; regimes
at a score of 0.5; the lowest row among equally near counterparts. AUC is that of the probability of a positive decision, also of
the randomised methods. Matches and baselines come from the training rows, the audited people are the test fold.

    python -m benchmarks.run cec_comparison --datasets german synthetic --methods cec dir --folds 0 1 --kept runs/cec-nets
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed

from benchmarks.cec.figures import plane, regime_bars
from benchmarks.shared import Skipped, data_folder, show
from verifair.papers.cec.data import FOLDS, SENSITIVE, Case, always_positive, keep, measured
from verifair.papers.cec.printed import LANDMARKS, NOTES, PARETO
from verifair.systems.cec.training import CEC_LOOP, METHODS, OURS, train_decider

HMDA = Path("tabular") / "hmda_texas2022.csv.gz"
SHOWN = ("F1", "AUC", "variance", "positive", "EO gap", "SP gap", "CEC", "CEC within", "PFR")


def run(
    folder: Path, *, datasets: Sequence[str] = tuple(SENSITIVE), methods: Sequence[str] = tuple(METHODS),
    folds: Sequence[int] = tuple(range(FOLDS)), kept: Path | None = None, jobs: int = 1,
) -> pd.DataFrame:
    """kept: folder for the networks, DATASET-METHOD-FOLD.onnx and .toml.   jobs: folds at once."""
    store = folder / "cec-folds"
    constants = []
    for name in datasets:
        try:
            case = Case.load(name, data_folder() / HMDA if name == "hmda" else None)
        except Skipped as reason:
            print(f"cec_comparison: {name} skipped, {reason}")
            continue
        tasks = [(method, fold) for fold in folds for method in methods]
        Parallel(n_jobs=jobs)(delayed(_one)(case, method, fold, store, kept) for method, fold in tasks)
        constants.append(_constant(case))
    results = pd.DataFrame([json.loads(path.read_text()) for path in sorted(store.glob("*.json"))])
    results.to_csv(folder / "cec-folds.csv", index=False)
    show("CEC constants: everybody positive", pd.DataFrame(constants), folder)
    table = show("CEC comparison: mean and standard deviation over folds", summary(results), folder)
    show("CEC regimes: shares at 0.5, beside the paper's text", regime_shares(results), folder)
    show("CEC control: pairs across groups beside pairs within one", _means(results, CONTROL_COLUMNS), folder)
    show("CEC pareto: folds without a method that is better in F1, EO gap and CEC", pareto(results), folder)
    plane(_ordered(results), folder / "cec-plane.png")
    regime_bars(_ordered(results), folder / "cec-regimes.png")
    print("\n".join(f"- {note}" for note in NOTES))
    return table


def _one(case: Case, method: str, fold: int, store: Path, kept: Path | None) -> None:
    """Train, measure and write one fold of one method, unless it is there."""
    path = store / f"{case.name}-{method}-{fold}.json"
    network = None if kept is None else kept / f"{case.name}-{method}-{fold}"
    if path.exists() and (network is None or network.with_suffix(".onnx").exists()):
        return
    train, test = list(case.folds())[fold]
    start = time.perf_counter()
    decider = train_decider(method, train, case.columns, loop=replace(CEC_LOOP, seed=fold))
    seconds = time.perf_counter() - start
    line: dict[str, Any] = {"dataset": case.name, "method": method, "fold": fold, "train": len(train), "test": len(test)}
    line |= {**measured(decider, case.columns, train, test), "seconds": seconds}
    if network is not None:
        keep(decider, case, network, fold)
    store.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(line, default=float) + "\n")
    part.replace(path)
    figures = "  ".join(f"{name} {line[name]:.3f}" for name in (*SHOWN, *"ABCD"))
    print(f"{case.name:10} {method:14} fold {fold} {seconds:6.1f} s  {figures}", flush=True)


def _constant(case: Case) -> dict[str, Any]:
    return {
        "dataset": case.name, "people": len(case.people), "inputs": case.people.x.shape[1],
        "share positive": case.people.labels.mean(), "F1 of a constant": always_positive(case.people), "AUC": 0.5, "EO gap": 0.0,
        "PFR": 0.0, "left out": sum(case.data.dropped.values()),
    }


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over the folds, for each dataset and method."""
    lines = []
    for (dataset, method), group in _ordered(results).groupby(["dataset", "method"], sort=False):
        cells = {name: f"{group[name].mean():.3f} ±{group[name].std(ddof=0):.3f}" for name in SHOWN}
        lines.append({"dataset": dataset, "method": method, "folds": len(group), **cells, "seconds": group["seconds"].mean()})
    return pd.DataFrame(lines)


REGIME_COLUMNS = ("CEC", "PFR", "A", "B", "C", "D", "B at 0.3")
CONTROL_COLUMNS = ("CEC", "CEC within", "PFR", "PFR within", "B", "B within", "on merit", "silent", "distance", "ties")


def _means(results: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    return _ordered(results).groupby(["dataset", "method"], sort=False)[list(columns)].mean().reset_index()


def regime_shares(results: pd.DataFrame) -> pd.DataFrame:
    """Mean shares of the regimes, and what the paper's text says of the method on this dataset."""
    table = _means(results, REGIME_COLUMNS)
    return table.assign(paper=[LANDMARKS.get(key, "") for key in zip(table["dataset"], table["method"], strict=True)])


def _ordered(results: pd.DataFrame) -> pd.DataFrame:
    order = {name: k for k, name in enumerate([*SENSITIVE, *METHODS])}
    return results.sort_values(["dataset", "method", "fold"], key=lambda column: column.map(order).fillna(column))


def pareto(results: pd.DataFrame) -> pd.DataFrame:
    """For each of the paper's methods the folds on which none of them dominates it, by dataset and in all, beside the paper's.

    with ours: the same when merit-only and excess, which are ours, are rivals too.
    """
    results = _ordered(results)
    rivals = {"": results[~results["method"].isin(OURS)], "with": results}
    free = {name: among.assign(free=_free(among)) for name, among in rivals.items()}
    pivot = free[""].pivot_table(index="method", columns="dataset", values="free", aggfunc="sum", sort=False)
    counts = pivot.fillna(0).astype(int)  # a run that goes on has methods without a fold yet
    for name, heading in (("", "all"), ("with", "with ours")):
        grouped = free[name].groupby("method")["free"]
        counts[heading] = grouped.sum().astype(str) + "/" + grouped.size().astype(str)
    counts["paper"] = [PARETO.get(method, "not in the text") for method in counts.index]
    return counts.reset_index()


def _free(results: pd.DataFrame) -> pd.Series:
    """Whether no other line of the same dataset and fold has strictly better F1, EO gap and CEC."""
    free = pd.Series(True, index=results.index)
    for _, fold in results.groupby(["dataset", "fold"]):
        for row, one in fold.iterrows():
            better = (fold["F1"] > one["F1"]) & (fold["EO gap"] < one["EO gap"]) & (fold["CEC"] < one["CEC"])
            free[row] = not better.any()
    return free
