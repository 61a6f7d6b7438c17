"""verifair guard: a network that refuses to judge where rules say that it discriminates, and a schema to certify the rest with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from rich.console import Console

from encoders.errors import ModelError
from encoders.network import Array, Integers, Network
from encoders.onnx.reader import read_onnx
from verifair.cli import fairness, options
from verifair.cli.explain import Outside, legal_rows, names
from verifair.cli.helps import HELPS
from verifair.cli.inputs import inputs
from verifair.datasets import Dataset
from verifair.engine.queries import KDiscrimination
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.hyfair.explain.rules import Rule, refused
from verifair.systems.hyfair.explain.rules_file import RuleFile
from verifair.systems.hyfair.mitigation import guardrail, mitigation, retraining
from verifair.systems.hyfair.mitigation.rounds import with_network
from verifair.systems.hyfair.mitigation.tighten import Tightened, tighten
from verifair.systems.hyfair.rules_report import effects_table
from verifair.systems.hyfair.search.space import Space

EDGES = 50


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command("guard", help=HELPS["guard"])
def guard(
    model: options.Model = None,
    schema: options.SchemaFile = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="rules.json of `verifair explain`, or your own.")] = None,
    target: Annotated[
        float | None, typer.Option("--target", help="Add rules from counterexamples until no probability gap above it is left.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="With --target: write the proof (.json.gz).")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="NAME.onnx; the schema goes to NAME.toml.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table to measure accuracy and abstention on.")] = None,
    demo: options.Demo = None,
    protected: fairness.Protected = None,
    box: options.Box = None,
    retrain: Annotated[Path | None, typer.Option("--retrain", help="Write the retrained network here (NAME.onnx).")] = None,
    epochs: Annotated[int, typer.Option("--epochs", help="Of retraining.")] = 5,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of retraining.")] = 1e-3,
    iterations: Annotated[int, typer.Option("--iterations", help="Steps of each search before and after.")] = 500,
    outside: Outside = "error",
    timeout: options.Timeout = 300.0,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    started = time.monotonic()
    options.budget(timeout, None, seed)
    if out is None or (rules is None and target is None):
        raise QueryError("guard needs --out NAME.onnx, and --rules FILE (of `verifair explain`) or --target GAP")
    for file in (out, *([] if retrain is None else [retrain])):
        if file.suffix != ".onnx":
            raise DataError(f"{file}: a network is written as NAME.onnx; end the name in .onnx")
    if certificate is not None and target is None:
        raise QueryError("--certificate keeps the proof that --target makes: add --target GAP, or drop it")
    if iterations < 1:
        raise QueryError(f"--iterations {iterations}: expected at least 1")
    options.check_outputs({"--out": out, "--retrain": retrain, "--certificate": certificate, "--json": json})
    source = inputs(model, schema, data, demo)
    described, path, dataset = source.schema, source.model, source.dataset
    if retrain is not None and (dataset is None or described.label not in dataset.frame.columns):
        raise QueryError("--retrain needs --data with the schema's label column, to train on")
    given = rules_file.NOTHING if rules is None else rules_file.load(rules, described)
    rows, labels, dataset = _measured(dataset, outside)
    query = _query(given, described, _network(path), protected, options.parsed_box(box or []))
    rules_file.check_protected(rules, given.rules, query.protected, described)
    kept, tightened = guardrail.snapped(given.rules, described), None
    if target is not None:
        with _interrupted("nothing was written"):
            tightened = _tighten(query, dataset, target, kept, timeout / 2, seed)
        kept = tightened.rules
    written = _write(path, out, kept, described, rows, seed)
    if tightened is not None:
        _save(tightened, query, out.with_suffix(".rules.json"), certificate)
    asked, added = [("original", query)], None
    if retrain is not None and dataset is not None:
        with options.progress_bar("epochs") as progress:
            added = retraining.retrain(
                Space.of(query), dataset, given.clusters, retrain, epochs=epochs, learning_rate=learning_rate, seed=seed,
                progress=progress,
            )  # fmt: skip
        asked.append(("retrained", with_network(query, read_onnx(retrain))))
    with _interrupted(f"{out} and {written} are written; what they change was not measured"):
        effects = _effects(asked, kept, rows, labels, given.clusters, iterations, timeout - (time.monotonic() - started), seed)
    options.write_json(
        json,
        {
            "guarded": str(out), "schema": str(written), "rules": [rule.words(described) for rule in kept],
            "certified": None if tightened is None else _certified(tightened), "retrained": str(retrain) if retrain else None,
            "instances": None if added is None else {"people": added.people, "rows": len(added.raw)},
            "effects": mitigation.table(effects), "seconds": time.monotonic() - started, "seed": seed,
        },
    )  # fmt: skip
    console = options.console()
    if given.model_sha256 not in (None, query.network.source_sha256):
        console.print("note: these rules explain another network")
    if tightened is not None:
        _show_tightened(tightened, described, rows, certificate, console)
    console.print(effects_table(effects))
    if added is not None:
        console.print(f"wrote {retrain}: {added.people:,} discriminatory people with all their variants ({len(added.raw):,} rows)")
    before = len(guardrail.earlier(described))
    also = f", and {before} of an earlier guardrail that the schema was made for" if before else ""
    console.print(f"wrote {out} ({len(kept)} rules{also}) and {written}", soft_wrap=True)
    about = " ".join([*(f"--protected {name}" for name in query.protected), options.box_options(query.box)]).rstrip()
    command = f"verifair certify {path} --schema {written} {about} --differ any --maximise"
    console.print(f"To prove what is left: {command}", soft_wrap=True)


@contextmanager
def _interrupted(stands: str) -> Iterator[None]:
    """After Ctrl-C, say what stands."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print(f"interrupted: {stands}", soft_wrap=True, markup=False)
        raise typer.Exit(options.INTERRUPTED) from None


def _effects(
    asked: Sequence[tuple[str, KDiscrimination]], kept: Sequence[Rule], rows: Array | None, labels: Integers | None,
    clusters: Array, iterations: int, seconds: float, seed: int,
) -> list[mitigation.Effect]:  # fmt: skip
    """Every network without and with the rules."""
    found: list[mitigation.Effect] = []
    with options.progress_bar("interventions") as progress:
        for name, query in asked:
            for suffix, chosen in (("", ()), (" + rules", kept)):
                measured = mitigation.effect(
                    name + suffix, query, chosen, data=rows, labels=labels, iterations=iterations,
                    seconds=max(seconds, 0.1) / (2 * len(asked)), clusters=clusters, seed=seed,
                )  # fmt: skip
                found.append(measured)
                progress(len(found), 2 * len(asked))
    return found


def _tighten(
    query: KDiscrimination, dataset: Dataset | None, target: float, kept: tuple[Rule, ...], seconds: float, seed: int
) -> Tightened:
    if dataset is None:
        raise QueryError("--target needs --data: the rules are to spare real people")
    table = dataset.train if query.schema.label in dataset.frame.columns else dataset.frame
    with options.progress_bar("rounds") as progress:
        found = tighten(query, query.schema.raw(table), target, rules=kept, seconds=seconds, seed=seed, progress=progress)
    if not found.rules:
        raise QueryError(
            f"no probability gap above {target:g} was met ({found.bound.upper:.4f} is certified), so there is nothing to refuse; "
            "set a smaller --target"
        )
    return found


def _save(tightened: Tightened, query: KDiscrimination, path: Path, certificate: Path | None) -> None:
    """The rules, to look at and to use again, and the proof."""
    schema = query.schema
    rules_file.save(
        path,
        {
            "kind": rules_file.KIND, "model_sha256": query.network.source_sha256, "query": {"protected": list(query.protected)},
            "rules": [{"when": rules_file.when(rule, schema), "words": rule.words(schema)} for rule in tightened.rules],
        },
    )  # fmt: skip
    if certificate is not None and tightened.bound.certificate is not None:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        tightened.bound.certificate.save(certificate)


def _certified(tightened: Tightened) -> dict[str, Any]:
    return {"steps": [asdict(step) for step in tightened.steps], **tightened.bound.to_dict()}


def _show_tightened(
    tightened: Tightened, schema: Schema, rows: Array | None, certificate: Path | None, console: Console
) -> None:
    for number, rule in enumerate(tightened.rules, start=1):
        share = "" if rows is None else f" ({100 * float(rule.contain(rows).mean()):.2g} % of the rows)"
        console.print(f"{number}. {rule.words(schema)}{share}", soft_wrap=True)
    for step in tightened.steps:
        console.print(f"{step.rules} rules: a gap of {step.lower:.4f} was met, {step.upper:.4f} is certified")
    if certificate is not None:
        proved = tightened.bound.certificate is not None
        console.print(f"certificate: {certificate}" if proved else "no certificate: nothing below 1 was proved")


def _measured(dataset: Dataset | None, outside: str) -> tuple[Array | None, Integers | None, Dataset | None]:
    """Held-out rows and labels: accuracy is measured where retraining does not train."""
    if dataset is None:
        return None, None, None
    rows, legal = legal_rows(dataset, outside)
    if legal.schema.label is None or legal.schema.label not in legal.frame.columns:
        return rows, None, legal
    return legal.schema.raw(legal.test), legal.schema.labels(legal.test), legal


def _write(path: Path, out: Path, kept: Sequence[Rule], schema: Schema, rows: Array | None, seed: int) -> Path:
    """The guarded network and its schema, after a check that wrapper and raw boxes agree. Returns the schema's path."""
    if out.resolve() == path.resolve():
        raise DataError(f"{out}: is the network itself; give the guarded one another name")
    narrowed = guardrail.guarded_schema(schema, kept)
    if rows is not None and refused(kept, rows).all():
        raise DataError(f"the rules refuse all {len(rows)} rows of the data: the guarded network would answer nobody there")
    wrapped = guardrail.guard(path, kept, schema)
    edges = guardrail.edge_rows(kept, schema, EDGES, np.random.default_rng(seed))
    guardrail.check_agreement(out, wrapped, kept, schema, edges if rows is None else np.concatenate([edges, rows]))
    out.parent.mkdir(parents=True, exist_ok=True)
    toml = out.with_suffix(".toml")
    narrowed.save(toml)
    onnx.save(wrapped, out)
    return toml


def _network(path: Path) -> Network:
    try:
        return read_onnx(path)
    except ModelError as error:
        if guardrail.is_guarded(path):
            told = "is guarded already; pass the model itself, and the guarded schema: the new guardrail refuses the old rules, too"
            raise ModelError(path, told) from error
        raise


def _query(
    given: RuleFile, schema: Schema, network: Network, protected: list[str] | None, box: dict[str, Any]
) -> KDiscrimination:
    """What the rules were found by, unless the command line says something else."""
    asked = {key: given.query[key] for key in ("buckets", "box", "values") if key in given.query} | ({"box": box} if box else {})
    return KDiscrimination(
        network=network, schema=schema, protected=names(schema, protected or given.query.get("protected")), **asked
    )
