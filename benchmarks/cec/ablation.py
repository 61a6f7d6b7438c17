"""What each part of CEC's loss does on German Credit: the loss ablation and the sweep of its two weights, 5-fold.

"CEC ablation" has the four losses of the paper's table 4, with what its text says beside; "CEC sweep" every pair of lambda_EO and
lambda_CEC in {0.1, 0.5, 1, 2, 5, 10}, drawn as the heatmaps of its figure 6. Variance of the score and share decided positively are
beside CEC: F1 of deciding positively about everybody is 0.8235 on German, just what the paper reports as "above 0.82".
"CEC encodings" trains without and with CEC on other inputs than ours (minmax, one-hot). With categories as codes, minmax, the score
is the paper's before and after, and the trained model decides positively about everybody: hence F1 0.8235 and an EO gap of 0.
Every training is written as soon as it is measured, and a run that was stopped goes on where it was.

    python -m benchmarks.run cec_ablation --folds 0 --lambdas 0.1 1 10
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed

from benchmarks.cec.figures import heatmaps, regime_bars
from benchmarks.shared import show
from verifair.papers.cec.data import ENCODINGS, FOLDS, LOWER, Case, measured
from verifair.papers.cec.printed import ABLATION, SWEEP
from verifair.systems.cec.training import CEC_LOOP, ConsistencyTerms, train_decider

PARTS = {"pred": (0.0, 0.0), "pred + EO": (1.0, 0.0), "pred + CEC": (0.0, 1.0), "full": (1.0, 1.0)}
"""Name -> (lambda_EO, lambda_CEC)."""
LAMBDAS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
METRICS = ("CEC", "B", "A", "F1", "EO gap", "PFR", "AUC", "variance", "positive")
"""The paper's six, and three that show whether the model still decides."""


def run(
    folder: Path, *, folds: Sequence[int] = tuple(range(FOLDS)), lambdas: Sequence[float] = LAMBDAS, jobs: int = 1
) -> list[pd.DataFrame]:
    case = Case.load("german")
    pairs = dict.fromkeys([*PARTS.values(), *itertools.product(lambdas, lambdas)])
    chosen, store = list(folds), folder / "cec-lambdas"
    lines = Parallel(n_jobs=jobs)(delayed(_one)(case, eo, cec, fold, store) for eo, cec in pairs for fold in chosen)
    results = pd.DataFrame(lines).assign(dataset="german")
    results.to_csv(folder / "cec-lambdas.csv", index=False)
    parts = pd.concat([
        results[(results["lambda_EO"] == eo) & (results["lambda_CEC"] == cec)].assign(loss=loss)
        for loss, (eo, cec) in PARTS.items()
    ])
    regime_bars(parts, folder / "cec-ablation.png", by="loss")
    sweep = results[results["lambda_EO"].isin(lambdas) & results["lambda_CEC"].isin(lambdas)]
    heatmaps(sweep, METRICS, folder / "cec-sweep.png")
    means = sweep.groupby(["lambda_EO", "lambda_CEC"])[list(METRICS)].mean().reset_index()
    print(f"The paper of the sweep: {SWEEP}.")
    return [
        show("CEC ablation: losses on German", _table(parts), folder),
        show("CEC sweep: lambdas on German", means, folder),
        show("CEC encodings: other inputs on German", _encodings(case, chosen, folder / "cec-encodings", jobs), folder),
    ]


def _encodings(case: Case, folds: Sequence[int], store: Path, jobs: int) -> pd.DataFrame:
    losses = {"pred": (0.0, 0.0), "full": (1.0, 1.0)}
    lines = []
    for kind in ENCODINGS:
        encoded = case.encoded(kind)
        for loss, (eo, cec) in losses.items():
            here = store / kind.replace(", ", "-")
            found = Parallel(n_jobs=jobs)(delayed(_one)(encoded, eo, cec, fold, here) for fold in folds)
            means = pd.DataFrame(found)[[*METRICS, *(f"B at {threshold:g}" for threshold in LOWER)]].mean()
            lines.append({"inputs": kind, "loss": loss, **means})
    return pd.DataFrame(lines)


def _one(case: Case, eo: float, cec: float, fold: int, store: Path) -> dict[str, object]:
    """Train, measure and write one fold of one pair of weights, unless it is there."""
    path = store / f"{eo:g}-{cec:g}-{fold}.json"
    if path.exists():
        found: dict[str, object] = json.loads(path.read_text())
        return found
    train, test = list(case.folds())[fold]
    start = time.perf_counter()
    loop, weights = replace(CEC_LOOP, seed=fold), ConsistencyTerms(lambda_eo=eo, lambda_cec=cec)
    decider = train_decider("cec", train, case.columns, loop=loop, consistency=weights)
    line = {"lambda_EO": eo, "lambda_CEC": cec, "fold": fold, "seconds": time.perf_counter() - start}
    line |= measured(decider, case.columns, train, test)
    store.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(line, default=float) + "\n")
    part.replace(path)
    print("  ".join(f"{name} {line[name]:.3f}" for name in ("lambda_EO", "lambda_CEC", "fold", *METRICS)), flush=True)
    return line


def _table(parts: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for name, group in parts.groupby("loss", sort=False):
        shown = ("CEC", "B", "B at 0.3", *METRICS[3:])
        cells = {metric: f"{group[metric].mean():.3f} ±{group[metric].std(ddof=0):.3f}" for metric in shown}
        lines.append({"loss": name, "folds": len(group), **cells, "paper": ABLATION[str(name)]})
    return pd.DataFrame(lines)
