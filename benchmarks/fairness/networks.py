"""Fairify's schemas (JSON, from VERIFAIR_DATA) as our Schema, the public networks with published results about them, and their
queries with exact verdicts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair.checker.certificates.statement import Signs
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.papers.hyfair.data import fairify_schema, family_file
from verifair.schema.schema import Schema
from verifair.training.onnx_writer import Weights

FAMILIES = ("german", "adult", "bank")
"""Those with enumerated queries and published partitions."""
EVERY = ("adult", "bank", "german", "compas")


@dataclass(frozen=True, kw_only=True)
class ExactQuery:
    """A query on a small integer box, by full enumeration: SAT = some decision flips (strict signs), some gap is above epsilon.

    largest_gap: between the probabilities of two rows, in float64.
    """

    name: str
    query: IndividualFairness
    verdict: str
    epsilon_query: IndividualFairness
    epsilon_verdict: str
    gap_query: ProbabilityGap
    largest_gap: float


@dataclass(frozen=True, kw_only=True)
class ListedNetwork:
    """A public network with its schema.   listed: its entry in the schema file.   file: all of that file."""

    name: str
    family: str
    network: Network
    schema: Schema
    listed: Mapping[str, Any]
    file: Mapping[str, Any]

    @property
    def protected(self) -> tuple[str, ...]:
        return tuple(self.file["protected_attributes"])

    @property
    def main(self) -> str:
        """The protected attribute of the main experiment; the file adds the paper's other runs in words after it."""
        return str(self.file["experiments"]["main"]["pa"]).split()[0].rstrip(",")

    def published(self, protected: str) -> Mapping[str, Any]:
        """Return Fairify's published counts for one attribute (sat, unsat, unknown, partitions_tried); empty if there are none."""
        rows = self.file["published"]["rows"] if isinstance(self.file["published"], dict) else []
        return next((row for row in rows if row["net"] == self.name and row["pa"] == protected), {})

    def fairness(self, protected: str, epsilon: float | None = None) -> IndividualFairness:
        """Return the query that no decision flips, by the strict signs of Fairify's counts; or that no gap is above epsilon."""
        signs: Signs = "strict" if epsilon is None else "deployed"
        return IndividualFairness(
            model=self.network, schema=self.schema, protected=[protected], epsilon=epsilon, signs=signs
        )


def subjects(folder: Path, *, nets: Sequence[str] = (), families: Sequence[str] = EVERY) -> Iterator[ListedNetwork]:
    """The public networks, or those that `nets` names, each read when needed."""
    files = {family: family_file(folder, family) for family in families}
    unknown = set(nets) - {listed["net"] for file in files.values() for listed in file["nets"]}
    if unknown:
        raise SystemExit(f"--nets {' '.join(sorted(unknown))}: no such network in {', '.join(families)}")
    for family, file in files.items():
        schema = fairify_schema(folder, family)
        for listed in file["nets"]:
            if not nets or listed["net"] in nets:
                network = read_onnx(folder / "nets" / f"{listed['net']}.onnx")
                yield ListedNetwork(name=listed["net"], family=family, network=network, schema=schema, listed=listed, file=file)


def random_weights(columns: int, hidden: Sequence[int]) -> Weights:
    """Return weights of variance 2 / fan-in and small biases, float32, from one seed: a network of two logits over `columns`
    columns."""
    rng, widths = np.random.default_rng(0), (columns, *hidden, 2)
    return [
        ((rng.standard_normal((m, n)) * np.sqrt(2 / n)).astype("f4"), (0.1 * rng.standard_normal(m)).astype("f4"))
        for n, m in itertools.pairwise(widths)
    ]


def exact_queries(folder: Path) -> list[ExactQuery]:
    """All 84 queries of the three families."""
    return [_exact_query(subject, listed, k) for family in FAMILIES for k, subject, listed in _listed(folder, family)]


def _listed(folder: Path, family: str) -> Iterator[tuple[int, ListedNetwork, dict[str, Any]]]:
    content = json.loads((folder / f"queries_{family}.json").read_text(encoding="utf-8"))
    subject_of = {subject.name: subject for subject in subjects(folder, families=[family])}
    for k, entry in enumerate(content["queries"]):
        yield k, subject_of[entry["net"]], {**entry, "box": dict(zip(content["features"], map(tuple, entry["box"]), strict=True))}


def _exact_query(subject: ListedNetwork, entry: dict[str, Any], k: int) -> ExactQuery:
    network, schema, protected, box = subject.network, subject.schema, [entry["pa"]], entry["box"]
    return ExactQuery(
        name=f"{subject.family}-{k} {entry['net']} {entry['pa']}",
        query=IndividualFairness(model=network, schema=schema, protected=protected, box=box, signs="strict"),
        verdict=entry["verdict"],
        epsilon_query=IndividualFairness(model=network, schema=schema, protected=protected, box=box, epsilon=0.05),
        epsilon_verdict=entry["eps_0_05"],
        gap_query=ProbabilityGap(model=network, schema=schema, protected=protected, box=box),
        largest_gap=entry["max_probability_gap"],
    )
