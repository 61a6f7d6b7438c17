"""verifair cec: like people, like reasons? Everybody's explanation beside that of comparable people of other groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from encoders.onnx.reader import read_onnx
from verifair.cli import options
from verifair.cli.cec_answer import Answer, Proved
from verifair.cli.cec_certify import check_delta
from verifair.cli.cec_inputs import audited
from verifair.cli.helps import HELPS
from verifair.cli.inputs import inputs
from verifair.errors import QueryError
from verifair.systems.cec.attributions import MOST_STEPS, positive_margin
from verifair.systems.cec.audit import audit as audit_of
from verifair.systems.cec.audit import control
from verifair.systems.cec.findings import Consistency
from verifair.systems.cec.matching import Ties
from verifair.systems.cec.score import THRESHOLD

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("cec", help=HELPS["cec"])
def cec(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table of rows: CSV, CSV.GZ or Parquet.")] = None,
    demo: options.Demo = None,
    protected: Annotated[
        list[str] | None, typer.Option("--protected", help="Column that makes groups, input or not; several combine.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", help="feature=5: two groups, at most 5 and above; feature=5,9: three; repeat.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Table of the counterparts and baselines, such as the training rows.")
    ] = None,
    tau: Annotated[
        float | None, typer.Option("--tau", help="Farther people are no counterparts; in standard deviations of merit.")
    ] = None,
    threshold: Annotated[float, typer.Option("--threshold", help="Scores above it are different reasons, 0 .. 1.")] = THRESHOLD,
    steps: Annotated[
        str, typer.Option("--steps", help="exact (integral), or a number: steps of a Riemann sum, 32 in the paper.")
    ] = "exact",
    ties: Annotated[str, typer.Option("--ties", help="Among equally near people: the first, or random with --seed.")] = "first",
    audit: Annotated[
        str, typer.Option("--audit", help="Whose explanations are compared: all, test (with --demo), or column=value.")
    ] = "all",
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Audit so many of them only, drawn with --seed.")] = None,
    outside: Annotated[str, typer.Option("--outside", help="Rows outside the schema's ranges: error, or drop them.")] = "error",
    within: Annotated[
        bool, typer.Option("--within/--no-within", help="Beside it scores of like people of the same group.")
    ] = True,
    top: Annotated[int, typer.Option("--top", min=0, help="People to review on the screen.")] = 10,
    certify: Annotated[
        float | None, typer.Option("--certify", help="Prove regime A of pairs wherever both move within DELTA units.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Write these proofs here (.json or .json.gz), for `verifair check`.")
    ] = None,
    nodes: options.Nodes = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for tables (CSV), plots (PNG) and the screen's text.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Threads for the attributions.")] = 2,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for the whole run.")] = 3600.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:  # fmt: skip
    started = time.monotonic()
    _check(out, json, certificate, ties, tau, threshold)
    check_delta(certify)
    if certificate is not None and certify is None:
        raise QueryError("--certificate holds proofs that pairs are in regime A: add --certify DELTA, or drop it")
    options.budget(timeout, nodes, seed)
    count = _steps(steps)
    given = inputs(model, schema, data, demo)
    network = read_onnx(given.model)
    given.schema.check_network(network)
    positive_margin(network)
    if certify:
        given.schema.steps([])  # a schema without units has no neighbourhoods: said before the work
    asked = audited(
        given, protected or [], split or [], audit, outside, reference=reference, sample=rows, seed=seed, demo=demo is not None
    )
    with _bar(started + timeout) as tell:
        measured = audit_of(
            network, asked.reference, asked.people, tau=tau, steps=count, threshold=threshold, ties=_ties(ties), seed=seed,
            threads=jobs, progress=tell,
        )  # fmt: skip
        inner = control(
            network, asked.reference, measured, steps=count, ties=_ties(ties), seed=seed, threads=jobs, progress=tell
        ) if within else None  # fmt: skip
    found = Consistency.of(measured, given.schema, asked.rows, asked.reference_rows, inner=inner, top=max(top, 20), seed=seed)
    proved = None
    if certify is not None:
        left = options.budget(max(timeout - (time.monotonic() - started), 1e-3), nodes, seed)
        files = options.Output(source=given.words, json=json, certificate=certificate)
        proved = Proved.of(network, given.schema, measured, asked, certify, left, files)
    answer = Answer(
        network=network, schema=given.schema, found=found, asked=asked, ties=ties, top=top, proved=proved,
        seconds=time.monotonic() - started, seed=seed,
    )  # fmt: skip
    # Files before the screen: whoever pipes us into `head` still gets them.
    if out is not None:
        answer.write(out)
    options.write_json(json, answer.to_dict() if json is not None else {})
    answer.show(Console(highlight=False, markup=False))  # names of groups and categories may hold [brackets]
    if proved is not None and proved.interrupted:
        Console(stderr=True, highlight=False).print("interrupted: what was measured until then is kept", soft_wrap=True)
        raise typer.Exit(options.INTERRUPTED)


@contextmanager
def _bar(deadline: float) -> Iterator[Callable[[int, int], None]]:
    """progress(done, total) that ends the work with QueryError when time is up; 130 on Ctrl-C.

    Scores of some of the people only would be of those who happen to stand first, so that nothing is kept; --rows draws a sample.
    """
    last = (0, 0)
    with options.progress_bar("explanations") as bar:

        def tell(done: int, total: int) -> None:
            nonlocal last
            last = (done, total)
            bar(done, total)
            if done < total and time.monotonic() > deadline:
                raise QueryError(f"--timeout: time was up {_so_far(last)}; allow more, or audit fewer (--rows)")

        try:
            yield tell
        except KeyboardInterrupt:
            Console(stderr=True, highlight=False).print(
                f"interrupted {_so_far(last)}: nothing is kept; --rows N audits a sample", soft_wrap=True
            )
            raise typer.Exit(options.INTERRUPTED) from None


def _so_far(last: tuple[int, int]) -> str:
    return f"after {last[0]:,} of {last[1]:,} explanations" if last[1] else "before the first"


def _check(out: Path | None, json: Path | None, certificate: Path | None, ties: str, tau: float | None, threshold: float) -> None:
    """Before the run, so that nothing is lost after it."""
    options.check_outputs({"--json": json, "--certificate": certificate})
    if out is not None:
        if out.exists() and not out.is_dir():
            raise QueryError(f"--out {out}: is a file; name a folder")
        options.check_outputs({"--out": out / "cec.txt"})
    _ties(ties)
    if tau is not None and not 0 < tau < float("inf"):
        raise QueryError(f"--tau {tau:g}: expected a positive distance, in standard deviations of merit; without it any is near")
    if not 0 <= threshold <= 1:
        raise QueryError(f"--threshold {threshold:g}: scores lie in 0 .. 1; expected a number there, such as {THRESHOLD:g}")


def _ties(name: str) -> Ties:
    if name == "first":
        return "first"
    if name == "random":
        return "random"
    raise QueryError(f"--ties {name}: expected first or random")


def _steps(text: str) -> int | None:
    """None for exact integrals. Raises QueryError for anything but exact or a number in 1 .. MOST_STEPS."""
    if text == "exact":
        return None
    if text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= MOST_STEPS:
        return int(text)
    raise QueryError(f"--steps {text}: expected exact, or a number of steps in 1 .. {MOST_STEPS}, such as the paper's 32")
