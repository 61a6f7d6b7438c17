"""verifair cst: would the decision have been another, had this person not been of their group? Counterfactual situation testing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from verifair.cli import options
from verifair.cli.cst_answer import Answer, case_files, check_linear, named_cases
from verifair.cli.cst_certify import Proofs, check_certify
from verifair.cli.cst_certify import certify as certified
from verifair.cli.cst_inputs import given, testing
from verifair.cli.helps import HELPS
from verifair.errors import QueryError
from verifair.systems.cst.chance import chance as dealt
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.findings import Intervention
from verifair.systems.cst.groups import told
from verifair.systems.cst.sensitivity_report import Robustness

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("cst", help=HELPS["cst"])
def cst(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table of rows: CSV, CSV.GZ or Parquet.")] = None,
    causal: Annotated[
        Path | None, typer.Option("--causal", help="Causal model (TOML), with who is compared and who decides: docs/cst.md.")
    ] = None,
    demo: Annotated[
        str | None, typer.Option("--demo", help="Shipped table and causal model: loan, german, adult (law_school: with --data).")
    ] = None,
    do: Annotated[
        list[str] | None, typer.Option("--do", help="ATTRIBUTE=VALUE of those not protected; several: each alone.")
    ] = None,
    intersectional: Annotated[
        bool | None, typer.Option("--intersectional/--no-intersectional", help="Several attributes jointly as well.")
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", help="What makes people similar; repeat. Default: all nodes but --do's.")
    ] = None,
    k: Annotated[list[int] | None, typer.Option("--k", min=1, help="People in each group; repeat. Default: 15 30 50 100.")] = None,
    tau: Annotated[float | None, typer.Option("--tau", help="A case differs by more than this, in 0 .. 1. Default: 0.")] = None,
    level: Annotated[float | None, typer.Option("--level", help="Confidence of intervals, in percent. Default: 95.")] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", help="newcombe (behaves at 0 and 1), or wald as in the paper.")
    ] = None,
    one_sided: Annotated[bool, typer.Option("--one-sided", help="One-sided intervals: z = 1.645 at 95.")] = False,
    correct: Annotated[
        str | None, typer.Option("--correct", help="bh: hold the share of false significant cases down (Benjamini-Hochberg).")
    ] = None,
    distance: Annotated[
        str | None, typer.Option("--distance", help="mixed (range-normalised), standardised, heom or mahalanobis.")
    ] = None,
    ties: Annotated[
        str | None, typer.Option("--ties", help="Equally near rows share the last places, or the first in the table win.")
    ] = None,
    small: Annotated[
        str | None, typer.Option("--small", help="Groups smaller than the largest k: error, or leave-out (and say so).")
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="paper: the authors' own procedure, in all of the above.")] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", help="Row (as the table calls it) to write a case file of; repeat.")
    ] = None,
    cases: Annotated[
        int, typer.Option("--cases", min=0, help="Without --case: case files of so many of the first to review.")
    ] = 5,
    chance: Annotated[
        int, typer.Option("--chance", min=0, help="Test as often with the protected values dealt out anew: what chance finds.")
    ] = 0,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="How wrong must the (linear) causal model be before claims flip?")
    ] = False,
    certify: Annotated[
        float | None, typer.Option("--certify", help="Prove CF for all coefficients in their LEVEL % intervals, e.g. 95.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Write these proofs here (.json or .json.gz), for `verifair check`.")
    ] = None,
    nodes: options.Nodes = None,
    top: Annotated[int, typer.Option("--top", min=0, help="People to review on the screen.")] = 10,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for tables (CSV), plots (PNG), case files and the screen's text.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Threads of the neighbour search.")] = 2,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for tests and proofs.")] = 3600.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:  # fmt: skip
    started = time.monotonic()
    _check(out, json, certificate, level, tau)
    _check_level("--certify", certify)
    options.budget(timeout, nodes, seed)
    asked = given(model, schema, data, causal, demo)
    check_certify(certify, certificate, asked)
    said: dict[str, Any] = {
        "k": k or None, "tau": tau, "level": _share(level), "sides": 1 if one_sided else None,
        "interval": interval, "correction": correct, "distance": distance, "ties": ties, "preset": preset,
        "intersectional": intersectional, "attributes": attribute or None, "small": small,
    }  # fmt: skip
    test = testing(asked, do or [], said, seed=seed, threads=jobs)
    named = named_cases(test, case or [])
    check_linear(test, asked, sensitivity=sensitivity, certify=certify is not None)
    tests, missing, stopped = _run(test, started + timeout, chance)
    robust: tuple[Robustness, ...] = ()
    proved: tuple[Proofs, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        if sensitivity and not stopped:
            try:
                robust = tuple(_robustness(test, one, started + timeout) for one in tests)
            except TimeoutError:
                notes = ("How wrong the causal model must be was not finished: the time was up (--timeout).",)
        if certify is not None and not stopped:
            left = options.budget(max(timeout - (time.monotonic() - started), 1e-3), nodes, seed)
            proved = certified(asked, test, [one.found.do for one in tests], _share(certify) or 0.0, left, certificate)
    except KeyboardInterrupt:
        stopped = True
    unmeasured = [one.name for one in tests if chance and one.chance is None]
    if unmeasured:
        notes = (f"What chance finds (--chance) was not finished for do({'), do('.join(unmeasured)}): there was no time.", *notes)
    if stopped and ((sensitivity and not robust) or (certify is not None and not proved)):
        notes = (*notes, "Interrupted before all of --sensitivity and --certify was done: what is not shown is not known.")
    written = case_files(test, tests, named, cases if out is not None else 0, [*robust, *proved])
    answer = Answer(
        given=asked, model=test, tests=tests, missing=missing, cases=tuple(map(tuple, written)), proved=proved, robust=robust,
        notes=notes, top=top, seconds=time.monotonic() - started, seed=seed,
    )  # fmt: skip
    # Files before the screen: whoever pipes us into `head` still gets them.
    whole = True
    if out is not None:
        try:
            answer.write(out)
        except KeyboardInterrupt:
            stopped, whole = True, False
    options.write_json(json, answer.to_dict() if json is not None else {})
    console = Console(highlight=False, markup=False)  # names of groups and categories may hold [brackets]
    answer.show(console)
    if out is None:
        for one in (one for each in written for one in each):
            console.print("\n" + one.markdown(None), soft_wrap=True)
    if stopped:
        kept = "what was tested until then is kept" if whole else f"not everything is in --out {out}"
        Console(stderr=True, highlight=False, markup=False).print(f"interrupted: {kept}", soft_wrap=True)
        raise typer.Exit(options.INTERRUPTED)


def _run(test: SituationTesting, deadline: float, deals: int) -> tuple[tuple[Intervention, ...], tuple[str, ...], bool]:
    """The interventions in turn: those tested, the others' names, and whether Ctrl-C came. Nothing of one half tested is kept.

    Raises QueryError where the time is up before the first is done; exits with 130 where Ctrl-C comes before.
    """
    done: list[Intervention] = []
    asked = test.interventions()
    stopped = False
    try:
        for one in asked:
            with _bar(deadline, told(one)) as tell:
                done.append(Intervention.of(test, one, tell))
            if deals:
                with _bar(deadline, told(one), "deals") as tell:
                    done[-1] = replace(done[-1], chance=dealt(test, one, deals=deals, progress=tell))
    except KeyboardInterrupt:
        stopped = True
    except TimeoutError as error:
        if not done:
            raise QueryError(f"--timeout: {error}; allow more, or test fewer rows") from None
    if stopped and not done:
        Console(stderr=True, highlight=False).print("interrupted before the first intervention was tested: nothing is kept")
        raise typer.Exit(options.INTERRUPTED)
    return tuple(done), tuple(told(one) for one in asked[len(done) :]), stopped


def _robustness(test: SituationTesting, one: Intervention, deadline: float) -> Robustness:
    """Raises TimeoutError when time is up."""
    with _bar(deadline, one.name, "sensitivity") as tell:
        return Robustness.of(test, one, tell)


@contextmanager
def _bar(deadline: float, name: str, what: str = "searches") -> Iterator[Callable[[int, int], None]]:
    """progress(done, total) that ends the work with TimeoutError when time is up."""
    with options.progress_bar(f"do({name}), {what}") as bar:

        def tell(done: int, total: int) -> None:
            bar(done, total)
            if done < total and time.monotonic() > deadline:
                raise TimeoutError(f"time was up after {done:,} of {total:,} {what} of do({name})")

        yield tell


def _check(out: Path | None, json: Path | None, certificate: Path | None, level: float | None, tau: float | None) -> None:
    """Before the run, so that nothing is lost after it."""
    options.check_outputs({"--json": json, "--certificate": certificate})
    if out is not None:
        if out.exists() and not out.is_dir():
            raise QueryError(f"--out {out}: is a file; name a folder")
        options.check_outputs({"--out": out / "cst.txt"})
    _check_level("--level", level)
    if tau is not None and not 0 <= tau < 1:
        raise QueryError(f"--tau {tau:g}: a difference of shares that makes a case; expected 0 or more, below 1")


def _check_level(option: str, level: float | None) -> None:
    share = _share(level)
    if share is not None and not 0.5 <= share < 1:
        raise QueryError(f"{option} {level:g}: expected percent, at least 50 and below 100, such as 95")


def _share(level: float | None) -> float | None:
    """95 and 0.95 are the same."""
    return None if level is None else level if 0 < level < 1 else level / 100
