"""Measured procedure against verified fairness: CEC-trained networks and the paper's baselines, verified by the engine.

The networks of `verifair reproduce cec --table 2`, German and Adult, one fold, kept in a folder. Beside the measured CEC,
regime B and prediction flip rate of the network on the test fold stand answers that hold for every input: the share of regime A
that is certified within delta units, PBA's proved shares (sex, both groups, delta 1), the largest probability gap when only the
sensitive feature changes, and the largest k over all protected features, each between a witness and a certified bound. The last
lines are Spearman's rank correlations over the methods, CEC against each; for a bracket they use the value found (brackets
overlap). Certificates are re-checked in `gaps` and `kmax`.

Hardt's method is left out: its network is the unconstrained one, without the post-processing. DIR's network is trained blind to the
sensitive feature and takes repaired inputs; the engine is asked about the network itself.

    python -m benchmarks.run cec_verified --kept runs/cec-nets --seconds 10 --datasets german
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from benchmarks.shared import measured, show
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from verifair.datasets.stream import Stream
from verifair.engine.buckets.kmax import kmax
from verifair.engine.gap.maximise import maximise
from verifair.engine.queries import KDiscrimination, PersistentBias, ProbabilityGap
from verifair.engine.store import Verdicts
from verifair.errors import Disagreement
from verifair.papers.cec.data import SENSITIVE, CecData, keep
from verifair.systems.cec.audit import audit
from verifair.systems.cec.certified import certify_consistency
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.measures import triviality
from verifair.systems.cec.training import CEC_LOOP, METHODS, train_decider
from verifair.systems.pba.rows import decide_rows
from verifair.systems.pba.scores import proved_shares
from verifair.systems.pba.stream import TableStream

DATASETS = ("german", "adult")
NETWORKS = tuple(method for method in METHODS if method != "hardt")
DELTA = 1.0
CERTIFIED_PEOPLE = 500
"""Of the test fold, so that Adult takes about as long as German."""
COMPARED = ("PFR", "B", "certified A", "PBA gap", "gap witness", "k found")


def run(
    folder: Path, *, kept: Path | None = None, seconds: float = 30.0, datasets: Sequence[str] = DATASETS, fold: int = 0,
    methods: Sequence[str] = NETWORKS,
) -> pd.DataFrame:
    """kept: folder of networks; missing ones are trained into it.   seconds: for each gap, k and certification."""
    nets = folder / "cec-nets" if kept is None else kept
    tables = []
    with threadpool_limits(limits=1):
        for name in datasets:
            title = f"CEC verified {name}: measured and verified, fold {fold}, {seconds:g} s a question"
            tables.append(measured(title, _lines(CecData.load(name), methods, nets, seconds, fold), folder))
    table = pd.concat(tables, ignore_index=True)
    show("CEC ranks: Spearman's correlation with CEC over the methods", _ranks(table), folder)
    return table


def _lines(case: CecData, methods: Sequence[str], nets: Path, seconds: float, fold: int) -> Iterator[dict[str, Any]]:
    for method in methods:
        yield _line(case, method, _network(case, method, nets, fold), seconds, fold)


def _network(case: CecData, method: str, nets: Path, fold: int) -> Network:
    path = nets / f"{case.name}-{method}-{fold}"
    if not path.with_suffix(".onnx").exists():
        train, _ = list(case.folds())[fold]
        keep(train_decider(method, train, case.columns, loop=replace(CEC_LOOP, seed=fold)), case, path, fold)
    return read_onnx(path.with_suffix(".onnx"))


def _line(case: CecData, method: str, network: Network, seconds: float, fold: int) -> dict[str, Any]:
    schema, sensitive = case.data.schema, SENSITIVE[case.name]
    train, test = list(case.splits())[fold]
    reference, people = Reference.of(case.people.take(train), case.columns.merit), case.people.take(test)
    audited = audit(network, reference, people)
    sample = people.take(np.arange(min(CERTIFIED_PEOPLE, len(people))))
    budget = Budget(seconds=seconds)
    proved = certify_consistency(network, schema, audit(network, reference, sample), reference, sample, DELTA, budget=budget)
    pba = PersistentBias(model=network, schema=schema, protected=sensitive, delta=[DELTA])
    rows = Stream.of(case.data.frame.iloc[test].reset_index(drop=True))
    verdicts = decide_rows(pba, TableStream.of(network, schema, rows, [pba]), budget=Budget(seconds=10 * seconds))
    if not verdicts.complementary:
        raise Disagreement(f"{case.name}, {method}: a row is proved in both directions")
    biased = _pba_shares(verdicts, pba)
    gap = maximise(ProbabilityGap(model=network, schema=schema, protected=[sensitive]), budget=budget)
    largest_k = kmax(KDiscrimination(model=network, schema=schema, protected=schema.protected_names, buckets=20), budget=budget)
    return {
        "dataset": case.name, "method": method, "AUC": triviality(audited).auc, "variance": triviality(audited).variance,
        "CEC": audited.value, "B": float((audited.regime == "B").mean()), "PFR": float((~audited.same_decision).mean()),
        "regime A": proved.candidates, "certified A": proved.share, **biased, "PBA gap": float(np.ptp(list(biased.values()))),
        "unknown": int(verdicts.tally("status").set_index("status")["number"].get("unknown", 0)),
        "gap witness": gap.lower, "gap bound": gap.upper, "k found": largest_k.lower,
        "k bound": largest_k.upper, "K": largest_k.combinations,
    }


def _pba_shares(verdicts: Verdicts, pba: PersistentBias) -> dict[str, float]:
    """Return PBA of each group, observed: share of its eligible rows whose margin beats the counterfactual's in the
    neighbourhood."""
    lines = proved_shares([verdicts], [pba.exchange])
    lines = lines[(lines["metric"] == "PBA") & (lines["setting"] == "observed")]
    counts = lines.groupby("group")[["proved", "rows"]].sum()
    return {f"PBA {group}": float(line.proved / line.rows) for group, line in counts.iterrows()}


def _ranks(table: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for dataset, group in table.groupby("dataset", sort=False):
        for column in COMPARED:
            scores = group[["CEC", column]].dropna()
            varies = len(scores) > 2 and scores.nunique().min() > 1
            rho, p = spearmanr(scores["CEC"], scores[column]) if varies else (np.nan, np.nan)
            lines.append({"dataset": dataset, "CEC against": column, "methods": len(scores), "rho": float(rho), "p": float(p)})
    return pd.DataFrame(lines)
