"""verifair guard: a network that refuses to judge where rules say that it discriminates, and a schema to certify the rest with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer

from encoders.network import Array
from encoders.onnx_reader import read_onnx
from encoders.problem import Integers
from verifair.cli import options
from verifair.cli.explain import Outside, Protected, inputs, legal_rows, names
from verifair.datasets import Dataset
from verifair.errors import DataError, QueryError
from verifair.explain import guardrail, mitigation, retraining, rules_file
from verifair.explain.rules import Rule, refused
from verifair.explain.rules_file import RuleFile
from verifair.queries import KDiscrimination
from verifair.report.rules import effects_table
from verifair.schema import Schema
from verifair.search.space import Space

EXAMPLE = """
Writes GUARDED.onnx with an output `abstain` (true: refused; the other outputs are then NaN), and GUARDED.toml, the schema without
the refused rows, for `verifair certify`. --retrain also trains the network on, with discriminatory instances labelled alike.

Example: verifair guard german.onnx --schema german.toml --rules explain/rules.json --data german.csv --out guarded.onnx
"""
EDGES = 50


def register(app: typer.Typer) -> None:
    app.command("guard", help=EXAMPLE)(guard)


def guard(
    model: Annotated[Path | None, typer.Argument(help="The network, an ONNX file.", show_default=False)] = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="Description of the inputs (TOML).")] = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="rules.json of `verifair explain`, or your own.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="NAME.onnx; the schema goes to NAME.toml.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Table to measure accuracy and abstention on.")] = None,
    demo: Annotated[str | None, typer.Option("--demo", help="Use a shipped network and its data: german or adult.")] = None,
    protected: Protected = None,
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
    if rules is None or out is None:
        raise QueryError("guard needs --rules FILE (of `verifair explain`) and --out NAME.onnx")
    for file in (out, *([] if retrain is None else [retrain])):
        if file.suffix != ".onnx":
            raise DataError(f"{file}: a network is written as NAME.onnx; end the name in .onnx")
    described, path, dataset = inputs(model, schema, data, demo)
    if retrain is not None and (dataset is None or described.label not in dataset.frame.columns):
        raise QueryError("--retrain needs --data with the schema's label column, to train on")
    given = rules_file.load(rules, described)
    network = read_onnx(path)
    kept = guardrail.snapped(given.rules, described)
    rows, labels, dataset = _measured(dataset, outside)
    written = _write(path, out, kept, described, rows, seed)
    console = options.console()
    if given.model_sha256 not in (None, network.source_sha256):
        console.print("note: these rules explain another network")
    query = _query(given, described, network, protected)
    networks: list[tuple[str, KDiscrimination]] = [("original", query)]
    added = None
    if retrain is not None and dataset is not None:
        added = _retrain(query, given, dataset, retrain, epochs, learning_rate, seed)
        again = KDiscrimination(
            network=read_onnx(retrain), schema=described, protected=query.protected, buckets=query.buckets, box=query.box,
            values=query.values,
        )  # fmt: skip
        networks.append(("retrained", again))
    left = max(timeout - (time.monotonic() - started), 0.1) / (2 * len(networks))
    effects = []
    with options.progress_bar("interventions") as progress:
        for name, asked in networks:
            for suffix, chosen in (("", ()), (" + rules", kept)):
                measured = mitigation.effect(
                    name + suffix, asked, chosen, data=rows, labels=labels, iterations=iterations, seconds=left,
                    clusters=given.clusters, seed=seed,
                )  # fmt: skip
                effects.append(measured)
                progress(len(effects), 2 * len(networks))
    options.write_json(
        json,
        {
            "guarded": str(out), "schema": str(written), "rules": list(given.words), "retrained": str(retrain) if retrain else None,
            "instances": None if added is None else {"people": added.people, "rows": len(added.raw)},
            "effects": mitigation.table(effects), "proof": False, "seconds": time.monotonic() - started, "seed": seed,
        },
    )  # fmt: skip
    console.print(effects_table(effects))
    if added is not None:
        console.print(f"wrote {retrain}: {added.people:,} discriminatory people with all their variants ({len(added.raw):,} rows)")
    console.print(f"wrote {out} ({len(kept)} rules) and {written}")
    asked_for = " ".join(f"--protected {name}" for name in query.protected)
    console.print(
        f"To prove what is left: verifair certify {path} --schema {written} {asked_for} --differ any --maximise", soft_wrap=True
    )


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


def _query(given: RuleFile, schema: Schema, network: Any, protected: list[str] | None) -> KDiscrimination:
    asked = {key: given.query[key] for key in ("buckets", "box", "values") if key in given.query}
    return KDiscrimination(
        network=network, schema=schema, protected=names(schema, protected or given.query.get("protected")), **asked
    )


def _retrain(
    query: KDiscrimination, given: RuleFile, dataset: Dataset, out: Path, epochs: int, learning_rate: float, seed: int
) -> retraining.Instances:
    with options.progress_bar("epochs") as progress:
        return retraining.retrain(
            Space.of(query), dataset, given.clusters, out, epochs=epochs, learning_rate=learning_rate, seed=seed, progress=progress
        )
