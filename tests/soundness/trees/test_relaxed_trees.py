"""Relaxed features of tree ensembles against enumeration in exact arithmetic: flips, gaps, and certificates with a proof less."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.arrays import Array
from tests.builders import categorical, integer, one_hot, schema_of
from tests.draws import draws
from tests.soundness.classes.test_outcomes import largest, outputs_of
from tests.tree_models import random_tree, save

FEATURES: tuple[dict[str, Any], ...] = (
    integer("a", 0, 3), integer("b", 0, 4, scale="minmax"), one_hot("town", "x", "y", "z"),
    categorical("sex", "f", "m", protected=True),
)  # fmt: skip
ROWS = np.array(list(product(range(4), range(5), range(3), range(2))), dtype=float)
GRID = np.array([0, 0.25, 0.5, 1, 2], dtype=np.float32)
RELAXED: tuple[dict[str, Any], ...] = ({"a": 1}, {"b": 2}, {"town": "any"}, {"a": 2, "b": 1}, {"a": 1, "town": "any"})


def pairs(relax: dict[str, Any]) -> list[tuple[int, int]]:
    """Numbers of rows of both sexes that are near each other."""
    reach = [relax.get("a", 0), relax.get("b", 0), 2 if "town" in relax else 0]
    women, men = np.flatnonzero(ROWS[:, 3] == 0), np.flatnonzero(ROWS[:, 3] == 1)
    return [(i, j) for i in women.tolist() for j in men.tolist() if (np.abs(ROWS[i, :3] - ROWS[j, :3]) <= reach).all()]


def grown(seed: int, path: Path, scores: int) -> tuple[Any, Array]:
    """A model, and the class, or whether the score is above 0, of every row."""
    rng = np.random.default_rng(seed)

    def halved(node: Any) -> Any:
        return [round(2 * v) / 2 for v in node] if isinstance(node, list) else (*node[:3], *map(halved, node[3:]))

    found = [halved(random_tree(rng, 6, 2, scores=scores, grid=GRID)) for _ in range(2)]
    model = vf.read(save(path, found, 6))
    values = outputs_of(model, schema_of(*FEATURES).encode(ROWS))
    return model, np.array([largest(row) == 2 if scores > 1 else row[0] > 0 for row in values])


@pytest.mark.parametrize("scores", [1, 3])
@pytest.mark.parametrize("relax", RELAXED, ids=str)
def test_relaxed_flips_are_those_of_enumeration(relax: dict[str, Any], scores: int, tmp_path: Path) -> None:
    described, seen = schema_of(*FEATURES, positive="class = 2" if scores > 1 else "logit > 0"), set()
    for seed in draws(24):
        model, good = grown(seed, tmp_path / f"{seed}.onnx", scores)
        query = vf.IndividualFairness(model=model, schema=described, protected=["sex"], relax=relax)
        found = vf.verify(query)
        flips = any(good[i] != good[j] for i, j in pairs(relax))
        assert found.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED), seed
        if found.certificate is not None and found.status not in seen:
            given = found.certificate
            assert vf.check(given, model=model, schema=described).accepted
            for k in np.random.default_rng(seed).permutation(len(given.proofs))[:3].tolist():
                less = replace(given, proofs=given.proofs[:k] + given.proofs[k + 1 :])
                assert not vf.check(less, model=model, schema=described).accepted
            wider = replace(given, query=replace(given.query, relax={"a": 3}))
            assert not vf.check(wider, model=model, schema=described).accepted
        seen.add(found.status)
    assert len(seen) == 2


@pytest.mark.parametrize("relax", RELAXED, ids=str)
def test_relaxed_gaps_lists_and_programs_are_those_of_enumeration(relax: dict[str, Any], tmp_path: Path) -> None:
    described = schema_of(*FEATURES, positive="logit > 0")
    for seed in draws(4):
        model, good = grown(seed, tmp_path / f"{seed}.onnx", 1)
        about = {"model": model, "schema": described, "protected": ["sex"], "relax": relax}
        values = [float(row[0]) for row in outputs_of(model, described.encode(ROWS))]
        most = max(abs(values[i] - values[j]) for i, j in pairs(relax))
        found = vf.verify(vf.ProbabilityGap(scale="logit", **about))
        assert found.lower <= most <= found.upper
        assert found.upper - found.lower <= 1e-3
        assert vf.check(found.certificate, model=model, schema=described).accepted
        flips = any(good[i] != good[j] for i, j in pairs(relax))
        asked = vf.verify(vf.IndividualFairness(**about), method="milp")
        assert asked.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED), seed
