"""Run FGCE: counterfactuals of the groups, the network's decisions and proofs about them, and measures, each with a share of the
time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from solvers.registry import get
from verifair.errors import QueryError
from verifair.interrupts import Interrupted, OutOfTime
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import comparisons, explanations, summaries
from verifair.systems.fgce.measures.burden import Burden, burden, levels_of
from verifair.systems.fgce.result import FgceQuery, FgceResult
from verifair.systems.fgce.robust import CertifiedRobustness, askable
from verifair.systems.fgce.settings import CostGrid, FgceSettings
from verifair.systems.groups import Rows, rows_of
from verifair.systems.results.words import listed
from verifair.systems.subject import Subject
from verifair.systems.work import Tell, Work

GROUPS_SHARE = 0.5
"""Share of the time that goes to the groups' counterfactuals where measures are to follow."""
PROOFS_SHARE = 0.1
"""Share of that which goes to proofs that the counterfactuals are robust, where they are asked for."""
INTERRUPTED = "this is what was done until then"
UNTIMED = ("decisions", "graph", "density")
"""Steps that must finish before the first group is solved, and that do not watch the time themselves."""


def solve(settings: FgceSettings, subject: Subject, work: Work) -> FgceResult:
    """Return every group's counterfactuals; after Ctrl-C those of the groups that were finished.

    Raises QueryError, DataError, SchemaError, BackendError for inputs that do not fit or a solver that is not installed, OutOfTime,
    Interrupted.
    """
    if settings.method == "mip" and not get(settings.solver).is_available():
        raise QueryError(f"--solver {settings.solver}: is not installed; `verifair doctor` says how to install it")
    if settings.deltas:
        askable(subject.network, subject.schema, settings.deltas)
    rows_text = "no rows"
    if subject.data is not None:
        data, rows_text = subject.some(settings.rows, work.seed)
        subject = replace(subject, data=data)
    rows = rows_of(settings, subject, "fgce")
    fitted = _estimator(settings, subject, rows, work)
    with work.bars() as report:
        finished = _fit(fitted, rows, report, work)
        decided, proved = _network_decisions(fitted, settings, work, report) if finished else (None, None)
        measured = _measured(fitted, settings.grid, work, report) if settings.measures and decided is not None else None
        compared = _compared(fitted, work, report) if settings.compare and decided is not None else None
    names = rows.frame.index.astype(object)  # as objects, whole numbers stay whole beside a None
    groups = summaries(fitted, names, seed=work.seed)
    if settings.deltas or work.certificate is None:
        _, note = work.save_proof(proved.certificate if proved else None, "nothing was proved robust")
    else:
        optimum = fitted.prove_optima(seconds=max(work.left, 1.0)) if finished else "interrupted"
        _, note = work.save_proof(None, optimum) if isinstance(optimum, str) else work.save_proof(optimum, "")
        short = [name for name, group in getattr(fitted, "groups_", {}).items() if group.short is not None]
        note = f"{note}; it is not about {listed(short)}: k is too few there" if short and not isinstance(optimum, str) else note
    is_complete = decided is not None and (measured is None or measured.stopped != "interrupted")
    return FgceResult(
        model_sha256=subject.network.source_sha256, schema_sha256=subject.schema.sha256, seed=work.seed,
        query=_query(settings, rows), groups=groups, explanations=explanations(fitted, names),
        comparison=comparisons(fitted, groups, measured, seed=work.seed), measures=measured, compared=compared,
        re_evaluated=None if decided is None else _with_row_names(decided, names),
        robust=_with_row_names(proved.table, names) if proved else None,
        fitted=fitted, rows=rows, drawn=rows_text, certificate=proved.certificate if proved else None,
        note=note,
        interrupted=None if is_complete else INTERRUPTED, seconds=work.seconds,
    )


def _estimator(settings: FgceSettings, subject: Subject, rows: Rows, work: Work) -> GroupCounterfactuals:
    share = (GROUPS_SHARE if settings.measures else 1.0) * (1 - PROOFS_SHARE if settings.deltas else 1.0)
    parameters = set(GroupCounterfactuals._get_param_names()) & set(FgceSettings.model_fields)
    values: dict[str, Any] = {name: getattr(settings, name) for name in parameters}
    seconds = work.budget(share / rows.count).seconds
    return GroupCounterfactuals(subject.network, subject.schema, seconds=seconds, threads=work.jobs, **values)


def _fit(fitted: GroupCounterfactuals, rows: Rows, tell: Tell, work: Work) -> bool:
    """Solve the groups. Return False if Ctrl-C ended it. Raises Interrupted where none was, OutOfTime before the first."""

    def report(task: str, done: int, total: int) -> None:
        tell(task, done, total)
        if task in UNTIMED and work.up:
            raise OutOfTime(f"the time was up after {done:,} of {total:,} ({task})")

    try:
        fitted.fit(rows.frame, sensitive_features=rows.groups, audit=rows.audit, progress=report)
    except KeyboardInterrupt:
        if not getattr(fitted, "groups_", None):
            raise Interrupted("interrupted before the first group was done: there is nothing to keep") from None
        return False
    return True


def _network_decisions(
    fitted: GroupCounterfactuals, settings: FgceSettings, work: Work, tell: Tell
) -> tuple[pd.DataFrame | None, CertifiedRobustness | None]:
    """Return the network's decisions on the counterfactuals, and the robustness verdicts; None after Ctrl-C."""
    try:
        decided, proved = fitted.re_evaluated(), None
        if settings.deltas:
            seconds = work.budget(PROOFS_SHARE if settings.measures else 1.0).seconds
            proved = fitted.certify(settings.deltas, seconds=seconds, progress=lambda done, total: tell("robust", done, total))
    except KeyboardInterrupt:
        return None, None
    return decided, proved


def _measured(fitted: GroupCounterfactuals, grid: CostGrid, work: Work, tell: Tell) -> Burden:
    instances = {name: group.instance for name, group in fitted.groups_.items()}
    levels = levels_of(fitted.space_, instances, fitted.cost, grid)
    return burden(
        instances, levels, exact=fitted.method != "greedy", seconds=max(work.left, 1.0), grid=grid, space=fitted.space_,
        jobs=work.jobs, progress=lambda done, total: tell("measures", done, total),
    )


def _compared(fitted: GroupCounterfactuals, work: Work, tell: Tell) -> pd.DataFrame:
    """Return the comparison of other methods with FGCE, as far as time and Ctrl-C allow."""
    lines: list[dict[str, Any]] = []
    try:
        for line in fitted.compared(seed=work.seed, tell=tell):
            lines.append(line)
            if work.up:
                break
    except KeyboardInterrupt:
        pass
    return pd.DataFrame(lines)


def _with_row_names(table: pd.DataFrame, names: pd.Index) -> pd.DataFrame:
    return table.assign(row=names[table["row"].to_numpy(dtype=int)])


def _query(settings: FgceSettings, rows: Rows) -> FgceQuery:
    query = settings.model_dump() | {"protected": tuple(rows.groups.columns), "audit": rows.audited}
    return FgceQuery.model_validate({**query, "solver": settings.solver if settings.method == "mip" else None})
