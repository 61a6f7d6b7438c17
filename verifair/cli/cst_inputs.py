"""What `verifair cst` is about: the table, the causal model, who decides, and what is asked of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.cli.options import assignments
from verifair.datasets import read_table
from verifair.errors import DataError, QueryError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.checks import nearest
from verifair.systems.cst.causal.file import CausalFile
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import Decider, NetworkDecider, Recorded, Rule, counterfactually
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.testing import K

DEMOS = ("loan", "german", "adult")
BY_PATH = "law_school"
"""Not shipped; --data names its file, which is prepared as in the paper."""
SETTINGS: dict[str, Any] = {
    "k": K, "tau": 0.0, "level": 0.95, "sides": 2, "distance": "mixed", "interval": "newcombe", "ties": "share",
    "correction": None, "intersectional": False, "preset": None, "attributes": None, "small": "error",
}  # fmt: skip
"""What is taken where neither the command line nor the causal file says anything."""
OF_PRESET = {
    "level": "level", "sides": "one-sided", "distance": "distance", "interval": "interval", "ties": "ties", "correction": "correct",
}  # fmt: skip
"""What `--preset paper` sets, and the options' names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """frame: the table.   file: the causal file, found at `path`.   decider: who decides.   words: where the rows are from.

    source: the options that name the network and its schema to `verifair check`, empty where no network decides.
    """

    frame: pd.DataFrame
    file: CausalFile
    path: Path
    decider: Decider
    words: str
    source: str

    @property
    def network(self) -> NetworkDecider | None:
        """The network that decides on counterfactuals, if one does."""
        who = counterfactually(self.decider)
        return who if isinstance(who, NetworkDecider) else None

    @property
    def causal_sha256(self) -> str:
        return sha256(self.path.read_bytes()).hexdigest()


def given(
    model: Path | None, schema: Path | None, data: Path | None, causal: Path | None, demo: str | None
) -> Given:  # fmt: skip
    """What the options name. Raises QueryError for what is missing or named twice, DataError and SchemaError for files."""
    if demo is not None:
        if demo not in (*DEMOS, BY_PATH):
            raise QueryError(
                f"--demo {demo}: expected one of {', '.join(DEMOS)}, or {BY_PATH} with --data; for others pass --data and --causal"
            )
        if model is not None or schema is not None or (data is not None and demo != BY_PATH):
            raise QueryError("--demo brings its own model, schema and data: drop it, or drop the others")
        dataset, shipped = datasets.load(demo, data), datasets.causal_path(demo)
        path = causal or shipped
        file = causal_file.load(path)
        silent = not file.decision.model_fields_set  # an own graph about the demo's decisions
        decider = decider_of(causal_file.load(shipped), shipped, None) if silent else decider_of(file, path, None)
        source = f"--demo {demo}" if silent or path == shipped else _source(file)
        return Given(frame=dataset.frame, file=file, path=path, decider=decider, words=f"demo {demo}", source=source)
    if causal is None:
        raise QueryError(
            "cst needs a causal model, --causal FILE.toml: who causes what, in [[causal.node]] sections; try --demo loan, or see "
            "docs/cst.md"
        )
    if data is None:
        raise QueryError("cst needs rows: pass --data TABLE, or try a shipped example with --demo loan")
    if (model is None) != (schema is None):
        raise QueryError("MODEL and --schema belong together: a network, and what it takes; pass both, or neither")
    network = None
    if model is not None and schema is not None:
        network = NetworkDecider(network=read_onnx(model), schema=Schema.load(schema))
    file = causal_file.load(causal)
    decider = decider_of(file, causal, network)
    source = _source(file) if model is None else f"--model {model} --schema {schema}"
    return Given(frame=read_table(data), file=file, path=causal, decider=decider, words=str(data), source=source)


def _source(file: CausalFile) -> str:
    return "" if file.network_path is None else f"--model {file.network_path} --schema {file.schema_path}"


def decider_of(file: CausalFile, path: Path, network: NetworkDecider | None) -> Decider:
    """Who decides. network: that of the command line; it takes the place of the file's [decision].

    Recorded decisions of the file's column stand for the rows, and whoever else is named decides on counterfactuals.
    """
    if network is not None:
        return network
    said = file.decision
    who: Decider | None = None
    if said.weights is not None:
        who = Rule(weights=said.weights, above=said.above, at_least=said.at_least)
    elif file.network_path is not None and file.schema_path is not None:
        good = 1 if said.good is None else said.good
        who = NetworkDecider(network=read_onnx(file.network_path), schema=Schema.load(file.schema_path), good=good)
    if said.column is not None:
        return Recorded(column=said.column, positive=said.positive, counterfactual=who)
    if who is None:
        raise SchemaError(
            f"{path}: nobody decides; name in [decision] a column with its positive value, weights with above or at_least, or "
            "network and schema; or pass MODEL and --schema"
        )
    return who


def testing(given: Given, do: Sequence[str], options: Mapping[str, Any], *, seed: int, threads: int) -> SituationTesting:
    """The test that is asked for, fitted. options: name -> value of the command line, None where it says nothing.

    Raises QueryError, DataError, SchemaError.
    """
    file = given.file.situation
    asked = {name: _first(options.get(name), getattr(file, name), default) for name, default in SETTINGS.items()}
    if asked["preset"] is not None:
        said = {name: value for name, value in options.items() if value is not None}
        beside = said if "preset" in said else {**file.model_dump(), **said}  # the command line goes before the file
        named = [option for name, option in OF_PRESET.items() if beside.get(name) is not None]
        if named:
            raise QueryError(
                f"--preset {asked['preset']} sets {', '.join(OF_PRESET.values())} itself: drop it, or drop your {named[0]}"
            )
    wanted = parsed_do(do) if do else dict(file.do or {})
    model = CausalModel(nodes=given.file.nodes)
    if not wanted:
        roots = ", ".join(model.roots)
        raise QueryError(f"cst needs a question: pass --do ATTRIBUTE=VALUE, the value of the not protected (roots: {roots})")
    for name in wanted:
        if name not in model.graph:
            raise QueryError(f"--do {name}: is no node of the causal model; {nearest(name, model.graph)}")
    for name in asked["attributes"] or ():
        if name not in given.frame.columns:
            where = "--attribute" if options.get("attributes") else f"{given.path}: [situation]: attribute"
            raise DataError(f"{where} {name}: the table has no such column; {nearest(name, map(str, given.frame.columns))}")
    if asked["tau"] < 0:
        raise QueryError(f"{given.path}: [situation]: tau = {asked['tau']:g}: a case is a greater difference; expected 0 or more")
    test = SituationTesting(model, given.decider, do=wanted, seed=seed, threads=threads, **asked)
    return test.fit(given.frame)


def _first(*values: Any) -> Any:
    """The first that says anything."""
    return next((value for value in values if value is not None), None)


def parsed_do(texts: Sequence[str]) -> dict[str, str]:
    """attribute -> value, of `--do Gender=0`. Raises QueryError."""
    expected = "expected ATTRIBUTE=VALUE, the value of those who are not protected, e.g. --do Gender=0"
    return assignments(texts, "--do", expected=expected, once="give each attribute once, with one value")
