"""verifair certify: are people who differ in protected features alone treated alike, throughout a box or the whole domain?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from verifair.cli import certify_maximise, certify_partition, certify_verdict, fairness, options
from verifair.cli.helps import HELPS
from verifair.cli.inputs import inputs
from verifair.engine.questions import check_possible
from verifair.errors import QueryError

ONLY = {
    "--logit": "--maximise", "--tolerance": "--maximise", "--store": "--partition", "--resume": "--partition",
    "--jobs": "--partition", "--cluster": "--partition", "--data": "--partition", "--plot": "--partition",
}  # fmt: skip
"""Options that mean something in one mode alone."""


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("certify", help=HELPS["certify"])
def certify(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    demo: options.Demo = None,
    protected: fairness.Protected = None,
    flip: fairness.Flip = False,
    epsilon: fairness.Epsilon = None,
    box: options.Box = None,
    relax: fairness.Relax = None,
    differ: fairness.Differ = "all",
    targeted: Annotated[
        list[str] | None, typer.Option("--targeted", help="A sub-population, feature=low:high,feature=value; repeat.")
    ] = None,
    maximise: Annotated[bool, typer.Option("--maximise", help="The largest probability gap, from both sides.")] = False,
    logit: Annotated[bool, typer.Option("--logit", help="Maximise the gap between log-odds instead.")] = False,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="How far the two sides may stay apart.  [default: 1e-4]", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", help="Cut features into blocks of so many values; decide every part.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="Verdicts and proofs of the parts (default: named after the question).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run that the store holds.")] = False,
    jobs: options.Jobs = 1,
    cluster: options.Cluster = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table: which share of its rows lies in certified parts?")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the certified share (PNG, PDF or SVG).")] = None,
    method: options.Method = "auto",
    solver: options.Solver = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Write the proof here (.json, .json.gz; with --targeted a folder).")
    ] = None,
    timeout: options.Timeout = 60.0,
    nodes: options.Nodes = None,
    seed: options.Seed = 0,
    json: options.Json = None,
    exit_verdict: options.ExitVerdict = False,
) -> None:
    mode = _mode(targeted, maximise, partition)
    used = {
        "--logit": logit, "--tolerance": tolerance is not None, "--store": store is not None, "--resume": resume,
        "--jobs": jobs > 1, "--cluster": cluster is not None, "--data": data is not None, "--plot": plot is not None,
    }  # fmt: skip
    for option, belongs in ONLY.items():
        if used[option] and mode != belongs:
            raise QueryError(f"{option} belongs to {belongs}{f', not to {mode}' if mode else ''}; drop one, or ask with {belongs}")
    asked = fairness.Question(
        verb="certify", protected=protected, flip=flip, epsilon=epsilon, box=box, relax=relax, differ=differ
    )
    asked.check()
    if mode == "--maximise" and (flip or epsilon is not None or exit_verdict):
        which = "--flip" if flip else "--exit-verdict" if epsilon is None else "--epsilon"
        raise QueryError(f"--maximise asks how large the gap can be, which is no yes or no: drop {which}")
    if mode in ("--maximise", "--partition") and (options.method_name(method) != "auto" or solver is not None):
        which = "--solver" if solver is not None else "--method"
        raise QueryError(f"{mode} always works by branch-and-bound, whose proofs can be checked: drop {which}")
    if mode == "--partition" and certificate is not None:
        raise QueryError("--partition keeps its proofs in the store, which `verifair check` re-proves: drop --certificate")
    options.check_workers(jobs, cluster)
    options.check_outputs(
        {"--json": json, "--plot": plot, "--store": store, "--certificate": None if mode == "--targeted" else certificate}
    )
    given = inputs(model, schema, data, demo)
    query = asked.about(given)
    check_possible(query)
    budget = options.budget(timeout, nodes, seed)
    out = options.Output(source=given.words, json=json, certificate=certificate)
    if mode == "--maximise":
        scale: Literal["logit", "probability"] = "logit" if logit else "probability"
        certify_maximise.run(query, scale, budget, 1e-4 if tolerance is None else tolerance, out)
        return
    if mode == "--partition":
        assert partition is not None
        settings = certify_partition.Settings(
            size=partition, store=store, resume=resume, jobs=jobs, cluster=cluster, plot=options.picture(plot),
            data=None if demo is not None and relax else given.frame,
        )
        code = certify_partition.run(query, budget, settings, out)
    elif mode == "--targeted":
        code = certify_verdict.several(query, targeted or [], budget, method=options.method_name(method), solver=solver, out=out)
    else:
        code = certify_verdict.one(query, budget, method=options.method_name(method), solver=solver, out=out)
    if exit_verdict:
        raise typer.Exit(code)


def _mode(targeted: list[str] | None, maximise: bool, partition: int | None) -> str | None:
    modes = [("--targeted", bool(targeted)), ("--maximise", maximise), ("--partition", partition is not None)]
    given = [name for name, on in modes if on]
    if len(given) > 1:
        raise QueryError(f"{' and '.join(given)} are different questions: ask them one at a time")
    return given[0] if given else None
