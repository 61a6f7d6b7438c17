"""Proofs about decisions of tree ensembles of several classes, against all pairs of rows in exact arithmetic, with many ties."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.arrays import Array
from encoders.errors import ModelError
from encoders.model import Model
from encoders.onnx.reader import read_model
from encoders.trees.ensemble import TreeEnsemble
from tests.builders import categorical, one_hot, real, schema_of
from tests.draws import draws
from tests.soundness.classes.test_outcomes import RULES, largest, outputs_of, trees
from tests.soundness.classes.whole_weights import FEATURES, ROWS
from tests.tree_models import random_tree, save
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.partition import PartitionStore
from verifair.errors import QueryError

CLASSES = [rule for rule, (outputs, _) in RULES.items() if outputs > 2]


def flips(decided: Array) -> bool:
    """Rows of both sexes stand together."""
    return bool((decided[0::2] != decided[1::2]).any())


@pytest.mark.parametrize("rule", [*CLASSES, "any"])
def test_flips_are_those_of_all_pairs(rule: str, tmp_path: Path) -> None:
    outputs, favourable = RULES.get(rule, (4, largest))
    seen = []
    for seed in draws(24):
        model = trees(seed, tmp_path / f"{seed}.onnx", scores=outputs)
        described = schema_of(*FEATURES, positive="class = 2" if rule == "any" else rule)
        box = {"a": (seed % 3, 3), "b": seed % 2} if seed % 4 else {}
        inside = np.array([(row[0] >= seed % 3 and row[1] == seed % 2) if box else True for row in ROWS])
        expected = np.array([favourable(row) for row in outputs_of(model, ROWS[inside])])
        query = vf.IndividualFairness(
            model=model, schema=described, protected=["sex"], box=box, classes="any" if rule == "any" else "favourable"
        )
        found = vf.verify(query)
        assert found.status is (vf.Status.VIOLATED if flips(expected) else vf.Status.PROVED), (seed, found)
        seen.append(found.status)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=model, schema=described).accepted
    assert len(set(seen)) == 2, seen


REALS: tuple[dict[str, Any], ...] = (
    real("a", 0, 1), real("b", -1, 1), one_hot("job", "x", "y", "z"), categorical("sex", "F", "M", protected=True),
)  # fmt: skip
HALF = np.float32(0.5)
EDGES = np.array([0, np.nextafter(HALF, np.float32(0)), HALF, np.nextafter(HALF, np.float32(1)), 1], dtype=np.float32)


def real_trees(seed: int, path: Path, classes: int) -> TreeEnsemble:
    """Deep trees and stumps over two numbers, three one-hot columns and the sex, thresholds next to each other in float32."""
    rng = np.random.default_rng(seed)

    def whole(node: Any) -> Any:
        return [round(4 * v) / 4 for v in node] if isinstance(node, list) else (*node[:3], *map(whole, node[3:]))

    depths = rng.integers(1, 5, rng.integers(1, 7)).tolist()
    found = [whole(random_tree(rng, 6, depth, scores=classes, grid=EDGES)) for depth in depths]
    model = read_model(save(path, [*found, *found[:1]], 6))
    assert isinstance(model, TreeEnsemble)
    return model


def corners() -> Array:
    """A row of every cell that thresholds may leave, and of every threshold, for both sexes: pairs stand together."""
    a = np.unique(np.concatenate([EDGES, np.nextafter(EDGES, np.float32(2))]).clip(0, 1)).astype(float)
    b = np.unique(np.concatenate([-EDGES, a, np.nextafter(EDGES, np.float32(-2)), [-1, -0.25]]).clip(-1, 1)).astype(float)
    return np.array([[x, y, job, sex] for x in a for y in b for job in range(3) for sex in range(2)], dtype=float)


@pytest.mark.parametrize("classes", [3, 5])
def test_flips_over_reals_are_those_of_all_cells(classes: int, tmp_path: Path) -> None:
    rows, seen = corners(), set()
    for seed in draws(24):
        model = real_trees(seed, tmp_path / f"{seed}.onnx", classes)
        described = schema_of(*REALS, positive="class in [0, 2]" if seed % 2 else "class = 1")
        scores = outputs_of(model, described.encode(rows))
        for asked in ("favourable", "any"):
            query = vf.IndividualFairness(model=model, schema=described, protected=["sex"], classes=asked)
            expected = np.array([largest(row) for row in scores])
            if asked == "favourable":
                expected = np.isin(expected, (0, 2)) if seed % 2 else expected == 1
            found = vf.verify(query)
            assert found.status is (vf.Status.VIOLATED if flips(expected) else vf.Status.PROVED), (seed, asked, found)
            seen.add((asked, found.status))
            if found.certificate is not None:
                assert vf.check(found.certificate, model=model, schema=described).accepted
    assert len(seen) == 4


def proved(model: Model, described: vf.Schema, **more: Any) -> Certificate | None:
    return vf.verify(vf.IndividualFairness(model=model, schema=described, protected=["sex"], **more)).certificate


def test_forged_certificates_are_rejected(tmp_path: Path) -> None:
    described, other = schema_of(*FEATURES, positive="class = 2"), schema_of(*FEATURES, positive="class = 1")
    models = [trees(seed, tmp_path / f"{seed}.onnx", scores=3) for seed in range(40)]
    fair = [(model, one) for model in models if (one := proved(model, described)) is not None]
    unfair = [model for model in models if proved(model, described) is None]
    cut = relabelled = 0
    assert len(fair) > 3
    for model, certificate in fair:
        def accepted(forged: Certificate, network: Model = model, schema: vf.Schema = described) -> bool:
            return vf.check(forged, model=network, schema=schema).accepted

        assert accepted(certificate)
        for wrong in unfair[:4]:
            assert not accepted(replace(certificate, network_sha256=wrong.source_sha256), wrong)
        first, rest = certificate.proofs[0], certificate.proofs[1:]
        assert not accepted(replace(certificate, proofs=rest))
        assert accepted(replace(certificate, proofs=(replace(first, float32=True), *rest))) == first.float32
        assert not accepted(replace(certificate, proofs=(replace(first, margin=0.5), *rest)))
        assert not accepted(replace(certificate, query=replace(certificate.query, classes="any")))
        for scale in ("probability", "logit"):
            assert not accepted(replace(certificate, query=replace(certificate.query, epsilon=0.5, signs=None, scale=scale)))
        if proved(model, other) is None:    # of other classes that is false
            assert not accepted(replace(certificate, schema_sha256=other.sha256), schema=other)
            relabelled += 1
        turned = replace(first.statement, classes=first.statement.classes[::-1])
        assert not accepted(replace(certificate, proofs=(replace(first, statement=turned), *rest)))
        tree = first.evidence
        assert isinstance(tree, Tree)
        if len(tree.feature) > 1:   # one leaf for the whole box: the search cut it because no bound closed it
            assert not accepted(replace(certificate, proofs=(replace(first, evidence=Tree.leaf()), *rest)))
            cut += 1
    assert cut > 0
    assert relabelled > 0


def test_what_is_not_proved_of_them_says_so(tmp_path: Path) -> None:
    model, described = trees(0, tmp_path / "trees.onnx", scores=3), schema_of(*FEATURES, positive="class = 2")
    about = {"model": model, "schema": described, "protected": ["sex"]}
    with pytest.raises(QueryError, match="no error is specified of the softmax of several classes in float32"):
        vf.IndividualFairness(**about, arithmetic="float32", epsilon=0.1)
    for method, epsilon in (("lp", None), ("milp", 0.1), ("smt", 0.1)):     # softmax has no programs
        with pytest.raises(ModelError, match=f"is a tree ensemble, not supported by method {method}: see docs/concepts/models.md"):
            vf.verify(vf.IndividualFairness(**about, epsilon=epsilon), method=method)


def test_parts_and_lists_are_those_of_all_pairs(tmp_path: Path) -> None:
    described, refuted = schema_of(*FEATURES, positive="class = 2"), 0
    for seed in draws(10):
        model = trees(seed, tmp_path / f"{seed}.onnx", scores=3)
        query = vf.IndividualFairness(model=model, schema=described, protected=["sex"])
        decided = np.array([largest(row) == 2 for row in outputs_of(model, ROWS)])
        apart = ROWS[0::2][decided[0::2] != decided[1::2]][:, :2]
        store = tmp_path / f"{seed}.sqlite"
        with PartitionStore(vf.certify_partition(query, size=2, store=store)) as kept:
            extent = kept.extent
        blocks = {(a // 2, b // 2) for a, b in apart.astype(int).tolist()}
        assert (extent.refuted, extent.proved) == (len(blocks), 4 - len(blocks)), seed
        assert vf.check(store, model=model, schema=described).accepted
        listed = vf.counterexamples(query, 20)
        assert listed.complete
        assert {(one.x["a"], one.x["b"]) for one in listed.found} >= {tuple(row) for row in apart.tolist()}
        refuted += len(blocks)
    assert 3 < refuted < 40
