"""A network of 15 neurons and 612 rows in all, so that every statement about it can be held against every row; and what our own
verbs write about it: stores and certificates of every kind.
"""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import verifair as vf
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from tests.builders import categorical, integer, lattice, one_hot, random_network, schema_of
from verifair.engine.buckets.kmax import kmax
from verifair.engine.partition import certify_partition
from verifair.engine.shares.share import certify_share
from verifair.systems.cec.audit import audit
from verifair.systems.cec.certified import certify_consistency
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import merit_columns, people_of
from verifair.systems.cec.settings import CecSettings
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.robustness.certified import certify_counterfactuals
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.stream import LabelledRows
from verifair.training.onnx_writer import onnx_model

SCHEMA = schema_of(
    integer("age", 0, 5, unit=1, scale="minmax", merit=True),
    integer("hours", -2, 3, unit=2, merit=True),
    one_hot("work", "a", "b", "c"),
    categorical("sex", "f", "m", protected=True),
    integer("race", 0, 2),
    label="good",
    positive_label="yes",
    constraints=[{"name": "the young work little", "never": {"age": {"high": 0}, "hours": {"low": 2}}}],
)
BUDGET = vf.Budget(seconds=60)


@cache
def network() -> Network:
    """Read from a file, as a user's network is; a little bias by sex, so that some things hold and some do not."""
    rng = np.random.default_rng(11)
    layers = random_network(rng, (7, 8, 6, 1)).layers
    first = layers[0].weight.copy()
    first[:, 5] *= 0.15  # sex
    weights = [
        (w.astype(np.float32), layer.bias.astype(np.float32))
        for w, layer in zip((first, layers[1].weight, layers[2].weight), layers, strict=True)
    ]
    folder = Path(tempfile.mkdtemp())
    (folder / "small.onnx").write_bytes(onnx_model(weights, {}).SerializeToString())
    return read_onnx(folder / "small.onnx")


def rows() -> np.ndarray:
    """(N, V) every legal row."""
    every = lattice(SCHEMA.domain.lower, SCHEMA.domain.upper)
    return every[SCHEMA.inside(every)]


def frame(count: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    chosen = rows()[rng.permutation(len(rows()))[:count]]
    table = pd.DataFrame([SCHEMA.decode(row) for row in chosen])
    good = network().forward(SCHEMA.encode(chosen))[:, 0] > 0
    table["good"] = np.where(good ^ (rng.random(count) < 0.1), "yes", "no")
    return table


def causal_model() -> CausalModel:
    """sex -> hours -> race: whatever that may mean."""
    hours = Node(name="hours", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": 1.0}}))
    race = Node(name="race", parents=("hours",), mechanism=Linear(coefficients={"hours": 0.4}))
    return CausalModel(nodes=(Node(name="sex"), hours, race))


def certificates(folder: Path) -> None:
    """Every kind that a verb writes, as NAME.json, some also as NAME.json.gz, and the stores of partitions, into the folder."""
    kept: dict[str, Any] = {}
    ask = {"model": network(), "schema": SCHEMA}
    kept["flip"] = vf.verify(
        vf.IndividualFairness(**ask, protected=["sex"], box={"age": (2, 4), "hours": (0, 1)}), budget=BUDGET
    ).certificate
    for name, given in {
        "gap": {"protected": ["sex"]},
        "gap_any": {"protected": ["sex", "race"], "differ": "any", "box": {"age": 3}},
        "gap_relaxed": {"protected": ["sex"], "relax": {"hours": 1}, "box": {"work": "b"}},
        "logit": {"protected": ["sex"], "scale": "logit", "box": {"age": (1, 3)}},
    }.items():
        kept[name] = vf.verify(vf.ProbabilityGap(**ask, **given), budget=BUDGET, tolerance=1e-2).certificate
    kept["claimed"] = vf.verify(
        vf.IndividualFairness(**ask, protected=["sex"], epsilon=0.6, box={"age": 2}), budget=BUDGET, method="milp"
    ).certificate
    table = frame()
    for name, query in {
        "bias": vf.PersistentBias(**ask, protected="sex", delta=[1, 2]),
        "robust": vf.Robustness(**ask, delta=[1]),
    }.items():
        found = verify_rows(query, table, budget=BUDGET, store=folder / f"{name}.sqlite")
        kept[name] = certificate_of(query, LabelledRows.of(network(), SCHEMA, table), found)
    kept["kmax"] = kmax(vf.KDiscrimination(**ask, protected=["race", "sex"], buckets=10), budget=BUDGET).certificate
    who = people_of(SCHEMA, table, "sex")
    reference = Reference.of(who, merit_columns(SCHEMA))
    measured = audit(network(), reference, who, CecSettings(threshold=0.6), threads=1)
    kept["pairs"] = certify_consistency(network(), SCHEMA, measured, reference, who, 1.0).certificate
    kept["pairs_still"] = certify_consistency(network(), SCHEMA, measured, reference, who, 0.0).certificate
    errors = {"hours": {"sex = m": 0.25}, "race": {"hours": 0.125}}
    kept["counterfactual"] = certify_counterfactuals(
        causal_model=causal_model(), **ask, frame=table, do={"sex": "m"}, errors=errors
    ).certificate
    for name, more in {"share": {"protected": ["sex"]}, "share_any": {"protected": ["sex", "race"], "differ": "any"}}.items():
        kept[name] = certify_share(vf.IndividualFairness(**ask, **more), tolerance=1e-2, budget=BUDGET).certificate
    for name, limit in {"centers": None, "centers_cost": 0.6}.items():
        fitted = vf.GroupCounterfactuals(network(), SCHEMA, k=2, coverage=0.8, eps=0.7, max_cost=limit)
        kept[name] = fitted.fit(table.drop(columns="good"), sensitive_features="sex").prove_optima()
    for name, certificate in kept.items():
        assert certificate is not None, name
        certificate.save(folder / f"{name}.json")
        if name in ("gap", "bias", "kmax", "pairs"):
            certificate.save(folder / f"{name}.json.gz")
    for name, more in {"parts": {}, "parts_gap": {"epsilon": 0.05}, "parts_relaxed": {"relax": {"hours": 1}}}.items():
        certify_partition(
            vf.IndividualFairness(**ask, protected=["sex"], **more), size=2, store=folder / f"{name}.sqlite", budget=BUDGET
        )  # type: ignore[arg-type]
