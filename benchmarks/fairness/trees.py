"""Tree ensembles trained on the encoded Adult table: PBA of rows, a flip on the whole domain, parts of the partition of size 10,
the certified share, the largest gap, one difference decided by MILP as well, and rows by MILP (on trees of differences, and as two
copies that share thresholds alone) and Z3.

XGBoost, LightGBM and HistGradientBoosting of 100 trees and a forest of 100 trees of depth 10, as their converters write them. CPU
seconds; loading is a column of its own. Parts: a sample, up to `nodes` boxes a question, so `open` says what that leaves.
Difference: do log-odds differ by at most the bound of their largest gap, asked of branch-and-bound and of a solver.

    python -m benchmarks.run trees --rows 2000 --parts 400
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarks.shared import Skipped, data_folder, measured
from encoders.model import Model
from encoders.probability.shares import logistic
from encoders.problem import Goal
from encoders.programs.trees import TreeProgram
from encoders.trees.twin import TreeTwin
from solvers import registry
from solvers.outcome import Budget
from verifair.engine.cascade import solve
from verifair.engine.gap.maximise import maximise
from verifair.engine.partition import partition_of
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.questions import Pairs, bias_problem, box_of, goals_of, questions_of, twin_problem
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import PROVED, VIOLATED
from verifair.engine.shares.share import certify_share
from verifair.engine.solver import copies_of
from verifair.engine.verdict import Status
from verifair.models.read import read
from verifair.papers.hyfair.data import fairify_schema
from verifair.schema.schema import Schema

EVERY = ("xgboost", "lightgbm", "histogram", "forest")
LABEL = "income-per-year"


def run(
    folder: Path, *, models: Sequence[str] = EVERY, rows: int = 2000, delta: float = 1.0, parts: int = 400, nodes: int = 2000,
    seconds: float = 60.0, solver: str = "highs", asked: int = 10,
) -> pd.DataFrame:
    """Run the comparison.   rows: of the table, for both questions of PBA within delta units.   parts: of 16,000.   nodes: most
    boxes for each question.

    seconds: for a share, a largest gap, and the solver.   asked: rows whose questions within 3 units are put to solvers too.
    """
    data = data_folder()
    table = pd.read_csv(data / "encoded" / "adult.csv.gz")
    schema = fairify_schema(data, "adult")
    lines = (_line(name, table, schema, rows, delta, parts, nodes, seconds, solver, asked) for name in models)
    return measured(f"Tree ensembles on Adult: {rows} rows, {parts} parts", lines, folder)


def fitted(name: str, x: np.ndarray, y: np.ndarray) -> Any:
    """Return a model of one family. Raises Skipped if its package is not installed."""
    from sklearn import ensemble
    from sklearn.tree import DecisionTreeClassifier

    try:
        if name == "xgboost":
            from xgboost import XGBClassifier

            return XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1).fit(x, y)
        if name == "lightgbm":
            from lightgbm import LGBMClassifier

            return LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1).fit(x, y)
        if name == "catboost":
            from catboost import CatBoostClassifier

            return CatBoostClassifier(iterations=100, depth=6, verbose=0, allow_writing_files=False, random_seed=0).fit(x, y)
    except ImportError as error:
        raise Skipped(f"{name} is not installed") from error
    return {
        "histogram": ensemble.HistGradientBoostingClassifier(max_iter=100),
        "forest": ensemble.RandomForestClassifier(100, max_depth=10, random_state=0),
        "extra": ensemble.ExtraTreesClassifier(100, max_depth=10, random_state=0),
        "gradient": ensemble.GradientBoostingClassifier(random_state=0),
        "tree": DecisionTreeClassifier(max_depth=10, random_state=0),
    }[name].fit(x, y)


def _line(
    name: str, table: pd.DataFrame, schema: Schema, rows: int, delta: float, parts: int, nodes: int, seconds: float, solver: str,
    asked: int,
) -> dict[str, Any]:
    x, y = table.drop(columns=LABEL).to_numpy(dtype=np.float32), table[LABEL].to_numpy()
    model = fitted(name, x, y)
    started = time.process_time()
    ensemble = read(model)
    line: dict[str, Any] = {"model": name, "load s": time.process_time() - started}
    raw = x[:rows].astype(float)
    for columns in (_rows(ensemble, schema, raw, delta), _flip(ensemble, schema), _parts(ensemble, schema, parts, nodes),
                    _share(ensemble, schema, seconds), _gap(ensemble, schema, seconds, solver),
                    _solvers(ensemble, schema, raw, asked, seconds, solver)):
        line |= dict(columns)
    return line


def _rows(model: Model, schema: Schema, raw: np.ndarray, delta: float) -> Iterator[tuple[str, Any]]:
    raw = raw[schema.domain.within(raw)]
    started = time.process_time()
    decision = decide(bias_problem(model, schema, raw, "sex", 1 - raw[:, schema.index("sex")], delta, (1, 0)), seconds=300)
    yield "rows s", time.process_time() - started
    yield "rows open", int((decision.status == 0).sum())


def _flip(model: Model, schema: Schema) -> Iterator[tuple[str, Any]]:
    query = IndividualFairness(model=model, schema=schema, protected=["sex"])
    _, batch = questions_of(query)
    started = time.process_time()
    decision = decide(twin_problem(query, batch, goals_of(query)), seconds=60, group=np.zeros(len(batch), dtype=np.int64))
    yield "flip s", time.process_time() - started
    yield "flip", bool(decision.refuted.any())


def _parts(model: Model, schema: Schema, parts: int, nodes: int) -> Iterator[tuple[str, Any]]:
    query = IndividualFairness(model=model, schema=schema, protected=["sex"])
    box = box_of(schema, query.box)
    partition = partition_of(query, 10, box)
    indices = np.sort(np.random.default_rng(0).choice(partition.count, min(parts, partition.count), replace=False))
    batch, part, _ = Pairs.of(query, *box).batch(schema.domain, *partition.boxes(indices), box)
    started = time.process_time()
    decision = decide(twin_problem(query, batch, goals_of(query)), max_nodes=nodes, group=part, seconds=300)
    yield "parts s", time.process_time() - started
    yield "flips", int(decision.refuted.sum())
    yield "open", int((decision.out_of != "").sum())
    yield "boxes", int(decision.nodes.sum())


def _share(model: Model, schema: Schema, seconds: float) -> Iterator[tuple[str, Any]]:
    started = time.process_time()
    query = IndividualFairness(model=model, schema=schema, protected=["sex"])
    share = certify_share(query, budget=Budget(seconds=seconds))
    yield "share s", time.process_time() - started
    yield "fair", share.fair
    yield "share open", share.width


def _gap(model: Model, schema: Schema, seconds: float, solver: str) -> Iterator[tuple[str, Any]]:
    started = time.process_time()
    scale: Literal["probability", "logit"] = "probability" if logistic(model) else "logit"
    query = ProbabilityGap(model=model, schema=schema, protected=["sex"], scale=scale)
    gap = maximise(query, budget=Budget(seconds=seconds), tolerance=1e-3)
    yield "gap s", time.process_time() - started
    yield "gap from", gap.lower
    yield "to", gap.upper
    logit_gap = maximise(replace(query, scale="logit"), budget=Budget(seconds=seconds), tolerance=1e-3)
    goal = Goal(rows=np.array([[1.0, -1.0]]), constant=np.array([logit_gap.upper]), strict=False)
    _, batch = questions_of(query)
    for method, backend in (("bnb", None), ("milp", solver)):
        started = time.process_time()
        ((answer,),) = solve(twin_problem(query, batch, (goal,)), method=method, solver=backend, budget=Budget(seconds=seconds))
        yield f"difference by {method} s", time.process_time() - started
        yield f"by {method}", answer.status.value


def _solvers(model: Model, schema: Schema, raw: np.ndarray, asked: int, seconds: float, solver: str) -> Iterator[tuple[str, Any]]:
    """Yield columns for both questions about rows: CPU milliseconds for each question over all rows, as `pba` asks them, and over
    the first `asked`, which solvers get one by one; and the numbers decided. `rows s` joins the trees of both copies beforehand."""
    raw = raw[schema.domain.within(raw)]
    all_rows = bias_problem(model, schema, raw, "sex", 1 - raw[:, schema.index("sex")], 3.0, (1, 0))
    started = time.process_time()
    decide(all_rows, seconds=seconds)
    yield "ms a question", 1e3 * (time.process_time() - started) / (2 * len(raw))
    raw = raw[:asked]
    problem = bias_problem(model, schema, raw, "sex", 1 - raw[:, schema.index("sex")], 3.0, (1, 0))
    count, limit = 2 * len(raw), Budget(seconds=seconds / 10)
    started = time.process_time()
    decision = decide(problem, seconds=seconds)
    yield "of a few rows alone", 1e3 * (time.process_time() - started) / count
    for method, backend in (("milp", solver), ("smt", "z3")):
        started, decided = time.process_time(), 0
        for q in range(len(raw)):
            single = replace(problem, batch=problem.batch.take([q]))
            (answers,) = solve(single, method=method, solver=backend, budget=replace(limit, seconds=2 * limit.seconds))
            decided += sum(answer.status is not Status.UNKNOWN for answer in answers)
        yield f"by {backend}", 1e3 * (time.process_time() - started) / count
        yield f"decided by {backend}", decided
    twin, started, decided = copies_of(problem), time.process_time(), 0
    assert isinstance(twin, TreeTwin)
    stops = replace(limit, stop_below=-1e-6, stop_above=1e-6)
    for q in range(len(raw)):
        for g, goal in enumerate(problem.goals):
            outcome = registry.get(solver).solve(TreeProgram.of(twin, q, goal, apart=True).worst(goal), budget=stops)
            bounds = outcome.dual_bound, outcome.primal_bound
            proved, refuted = bounds[0] is not None and bounds[0] > 0, bounds[1] is not None and bounds[1] <= 0
            contradicts = decision.status[q, g] == (VIOLATED if proved else PROVED if refuted else None)
            if contradicts and abs(bounds[0 if proved else 1] or 0.0) > 1e-4:      # far beyond a solver's tolerance
                raise AssertionError(f"row {q}, goal {g}: {solver} says {bounds}, branch-and-bound {decision.status[q, g]}")
            decided += proved or refuted
    yield f"two copies by {solver}", 1e3 * (time.process_time() - started) / count
    yield "two copies decided", decided
