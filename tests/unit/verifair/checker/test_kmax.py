"""The re-checker of kmax certificates: what is true passes, whatever was tampered with is rejected, files are read strictly."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoders.network import Layer, Network
from solvers.outcome import Budget
from tests.builders import integer, schema_of
from tests.soundness.random_twins import nasty_network
from verifair.checker.certificates.kmax import KmaxCertificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.engine.buckets.kmax import kmax
from verifair.engine.queries import KDiscrimination
from verifair.errors import CertificateError
from verifair.schema.schema import Schema

SCHEMA = schema_of(
    integer("group", 0, 5),
    integer("x1", -10, 10),
    integer("x2", 0, 40, scale="minmax"),
)


def asked(seed: int = 3, gain: float = 1.0) -> KDiscrimination:
    rng = np.random.default_rng(seed)
    network = nasty_network(rng, 3, "plain", depth=2, width=8, outputs=1)
    last = network.layers[-1]
    scaled = Layer(weight=(last.weight * gain).astype(np.float32).astype(float), bias=last.bias, slope=last.slope)
    network = replace(network, layers=(*network.layers[:-1], scaled), source_sha256="0" * 64)
    return KDiscrimination(model=network, schema=SCHEMA, protected=["group"])


def proved() -> tuple[KDiscrimination, KmaxCertificate]:
    """A query whose proof needs a tree of several leaves."""
    for seed in range(50):
        query = asked(seed)
        verdict = kmax(query, budget=Budget(seconds=20))
        if verdict.reason is None and 1 < verdict.upper < 6 and len(verdict.certificate.tree.feature) >= 7:
            return query, verdict.certificate
    raise AssertionError("no such query among the seeds")


QUERY, CERTIFICATE = proved()


def report(certificate: KmaxCertificate, network: Network = QUERY.model, schema: Schema = SCHEMA) -> str:
    found = check(certificate, model=network, schema=schema)
    assert found.accepted == (not found.rejections)
    return "; ".join(map(str, found.rejections))


def test_buckets_of_a_model_that_gives_values_are_forged() -> None:
    values = SCHEMA.changed(positive="value > 3")
    assert "the model gives values" in report(replace(CERTIFICATE, schema_sha256=values.sha256), schema=values)


def test_true_certificate_is_accepted_and_counted() -> None:
    seen: list[tuple[int, int]] = []
    found = check(CERTIFICATE, model=QUERY.model, schema=SCHEMA, progress=lambda done, of: seen.append((done, of)))
    assert found.accepted
    assert found.leaves == (CERTIFICATE.tree.feature < 0).sum()
    assert seen[-1] == (found.leaves, found.leaves)


def with_tree(**changes: Any) -> KmaxCertificate:
    tree = CERTIFICATE.tree
    return replace(CERTIFICATE, tree=replace(tree, **{name: change(getattr(tree, name)) for name, change in changes.items()}))


def without_last_leaf(array: Any) -> Any:
    return array[:-1]


def one_more(value: float) -> Callable[[Any], Any]:
    return lambda array: np.append(array, value)


def moved_cut(cut: Any) -> Any:
    out = cut.copy()
    out[0] = 1000.0
    return out


def split_on(feature: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        out = array.copy()
        out[0] = feature
        return out

    return change


@pytest.mark.parametrize(("certificate", "reason"), [
    (replace(CERTIFICATE, upper=CERTIFICATE.upper - 1), "cannot be ruled out"),
    (replace(CERTIFICATE, upper=0), "cannot be ruled out"),
    (replace(CERTIFICATE, reference=6), "combination 6 of 6"),
    (with_tree(feature=without_last_leaf, cut=without_last_leaf), "leaves are missing"),
    (with_tree(feature=one_more(-1), cut=one_more(0)), "left over"),
    (with_tree(cut=moved_cut), "cuts feature"),
    (with_tree(feature=split_on(7)), "does not exist"),
    (with_tree(feature=split_on(-2)), "does not exist"),
    (with_tree(feature=split_on(0)), "protected"),
])
def test_whatever_is_wrong_is_rejected(certificate: KmaxCertificate, reason: str) -> None:
    assert re.search(reason, report(certificate))


@pytest.mark.parametrize(("changes", "reason"), [
    ({"protected": ("sex",)}, "not features"),
    ({"protected": ("group", "group")}, "not features"),
    ({"box": {"x1": (-10.0, 10.0)}}, "every feature"),
    ({"box": {"x1": (-10.0, 10.0), "x2": (0.0, 41.0)}}, "x2"),
    ({"box": {"x1": (-10.0, 10.0), "x2": (30.0, 3.0)}}, "x2"),
    ({"box": {"x1": (-10.0, 10.0), "x2": (0.25, 0.75)}}, "x2"),
    ({"combinations": ((0.0,), (0.0,))}, "twice"),
    ({"combinations": ((0.0, 1.0),)}, "2 values"),
    ({"combinations": ((0.5,),)}, "whole values"),
    ({"combinations": ((6.0,),)}, "whole values"),
])
def test_a_query_that_means_nothing_is_rejected(changes: dict[str, Any], reason: str) -> None:
    assert reason in report(replace(CERTIFICATE, query=replace(CERTIFICATE.query, **changes)))


def test_another_network_of_the_same_name_is_refuted() -> None:
    """Its hash is forged: then the bounds themselves have to tell."""
    others = (asked(seed, gain=4.0) for seed in range(50))
    worse = next(query for query in others if kmax(query, budget=Budget(seconds=5)).lower > CERTIFICATE.upper)
    assert re.search("cannot be ruled out", report(CERTIFICATE, network=worse.model))


def test_a_leaf_that_is_not_shown_at_once_is_rejected() -> None:
    assert "cannot be ruled out" in report(replace(CERTIFICATE, tree=Tree.leaf()))


@pytest.mark.parametrize(("change", "reason"), [
    ({"upper": -1}, "upper"),
    ({"upper": 2.5}, "upper"),
    ({"reference": -1}, "reference"),
    ({"reference": 0.5}, "reference"),
    ({"tree": {"feature": [], "cut": []}}, "tree"),
    ({"tree": {"feature": [-1], "cut": [0.0], "bound": [1]}}, "bound"),
    ({"tree": {"feature": [-1, -1], "cut": [0.0]}}, "entries"),
])
def test_files_are_read_strictly(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "proof.json"
    CERTIFICATE.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CertificateError, match=reason):
        KmaxCertificate.load(path)
