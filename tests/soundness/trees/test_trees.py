"""Tree ensembles against the truth: random ensembles over all rows in exact arithmetic, their proofs checked, and forged proofs."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from scipy.special import expit

import verifair as vf
from encoders.errors import ModelError
from encoders.exact.dyadic import exact
from encoders.model import Model
from encoders.onnx.reader import read_model
from encoders.probability.logistic import exceeds
from encoders.problem import TwinBatch, TwinProblem
from encoders.programs.trees import TreeProgram
from encoders.trees.twin import TreeTwin
from solvers import registry
from tests.builders import categorical, integer, one_hot, real, schema_of
from tests.draws import draws
from tests.stores import contents, written
from tests.tree_models import Node, random_tree, save
from verifair.checker import partition
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.partition import PartitionStore
from verifair.engine.cascade import solve
from verifair.engine.gap import trees as gap_of_trees
from verifair.engine.gap.maximise import gap_bounds, maximise
from verifair.engine.questions import FLIPPED, NO_FALL, OBSERVED, bias_problem, decisions, goals_of, questions_of, twin_problem
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import PROVED, VIOLATED
from verifair.engine.solver import copies_of
from verifair.errors import QueryError
from verifair.systems.fgce.robust import certify_robust

GRID = np.array([-1, 0, 0.5, 1, 2], dtype=np.float32)
REAL = np.unique(np.concatenate(
    [np.array([-1.5, -0.3, 0.2, 0.7, 1.5]), *(np.nextafter(GRID, np.float32(side)).astype(float) for side in (-9, 9)), GRID]
))
REAL = REAL[(REAL >= -1.5) & (REAL <= 1.5)]
"""Values of the real feature: in every cell that thresholds of tests leave."""


NEVER = [{"a": (-2, 0), "b": (-1.5, 0.5)}, {"p": "f", "c": "x"}]
"""Rows of its schema that are nobody."""


def schema(kind: int) -> vf.Schema:
    who = one_hot("p", "f", "m", "o") if kind % 3 == 0 else categorical("p", "f", "m", "o")
    scaled = integer("a", -2, 3) if kind % 2 else {**integer("a", -2, 3), "scale": "minmax"}
    return schema_of(scaled, one_hot("c", "x", "y", "z"), who, real("b", -1.5, 1.5), positive="logit > 0")


def rows(of: vf.Schema) -> np.ndarray:
    domain = of.domain
    values = [np.arange(domain.lower[v], domain.upper[v] + 1) if domain.integer[v] else REAL for v in range(domain.variables)]
    return np.array(list(itertools.product(*values)))


def model_of(rng: np.random.Generator, of: vf.Schema, path: Path, trees: int = 12) -> Model:
    found = [random_tree(rng, of.domain.columns, int(rng.integers(0, 5))) for _ in range(rng.integers(1, trees))]
    found += found[: rng.integers(0, 3)]
    base = float(np.float32(rng.normal() * 0.3 + rng.choice([-2, 0, 2])))
    return read_model(save(path, found, of.domain.columns, base=[base], missing=bool(rng.integers(2))))


def by_person(model: Model, of: vf.Schema) -> Iterator[list[Fraction]]:
    """The logits of all rows that differ in p alone."""
    every, v = rows(of), of.index("p")
    every = every[of.domain.legal(every)]
    logits = model.forward(exact(of.domain.encode(every))).to_fractions()[:, 0]
    order = np.lexsort(np.delete(every, v, axis=1).T)
    first = np.flatnonzero((np.diff(np.delete(every, v, axis=1)[order], axis=0, prepend=np.nan) != 0).any(axis=1))
    return (list(part) for part in np.split(logits[order], first[1:]))


def fair(groups: Iterator[list[Fraction]], epsilon: float | None) -> bool:
    if epsilon is None:
        return not any(min(group) <= 0 < max(group) for group in groups)
    return not any(exceeds(max(group), min(group), epsilon) for group in groups)


@pytest.mark.parametrize(("seed", "count"), [(0, 64), (1, 64), (2, 65), (3, 65), (4, 130)])
def test_a_set_of_64_categories_fills_a_machine_word(seed: int, count: int, tmp_path: Path) -> None:
    """The last category is the sign of an int64, or the first one of the next, which sets of categories are."""
    rng, last = np.random.default_rng(seed), count - 1
    names = [f"c{k}" for k in range(count)]
    of = schema_of(one_hot("c", *names), categorical("p", "f", "m"), integer("a", 0, 2), positive="logit > 0")
    start = int(of.domain.start[of.index("c")])
    trees = [random_tree(rng, of.domain.columns, 4) for _ in range(6)]
    trees += [(start + last, "BRANCH_LEQ", 0.5, random_tree(rng, of.domain.columns, 4), random_tree(rng, of.domain.columns, 4))]
    model = read_model(save(tmp_path / "m.onnx", trees, of.domain.columns))
    every = np.array(list(itertools.product(range(count), range(2), range(3))), dtype=float)
    logits = model.forward(of.domain.encode(every))[:, 0].reshape(count, 2, 3)
    apart = np.abs(expit(logits[:, 0]) - expit(logits[:, 1])).max(axis=1)
    for low, high in ((0, last), (last - 1, last), (last, last), (0, last - 1)):
        most = float(apart[low : high + 1].max())
        for epsilon, status in ((most + 1e-6, vf.Status.PROVED), (most - 1e-6, vf.Status.VIOLATED)):
            if epsilon > 0:
                query = vf.IndividualFairness(model=model, schema=of, protected=["p"], epsilon=epsilon,
                                              box={"c": (names[low], names[high])})
                found = vf.verify(query, budget=vf.Budget(seconds=60))
                assert found.status is status
                assert found.certificate is None or vf.check(found.certificate, model=model, schema=of).accepted


@pytest.mark.parametrize("seed", draws(30))
def test_verdicts_are_true_and_proofs_accepted(seed: int, tmp_path: Path) -> None:
    rng, of = np.random.default_rng(seed), schema(seed)
    model = model_of(rng, of, tmp_path / "m.onnx")
    epsilon = None if seed % 2 else float(rng.choice([0.05, 0.3, 0.6]))
    query = vf.IndividualFairness(model=model, schema=of, protected=["p"], epsilon=epsilon)
    found = vf.verify(query, budget=vf.Budget(seconds=60))
    assert found.status is (vf.Status.PROVED if fair(by_person(model, of), epsilon) else vf.Status.VIOLATED)
    if found.certificate is not None:
        assert vf.check(found.certificate, model=model, schema=of).accepted
    else:
        assert found.witness is not None
        assert found.witness.float32_agrees is not None


@pytest.mark.parametrize("ends", [(-1.5, 1.5), (-2.0, 2.0), (-1e-300, 1e38), (-1e38, 1e38), (-5.0, -0.0), (0.0, 1e30)])
@pytest.mark.parametrize("threshold", [-3.0, -1e-30, 1.0])
def test_thresholds_are_found_in_wide_ranges(ends: tuple[float, float], threshold: float, tmp_path: Path) -> None:
    """The numbers between -2 and 2 are more than an int64 counts."""
    of = schema_of(categorical("p", "f", "m"), real("b", *ends))
    tree = (1, "BRANCH_LEQ", threshold, (0, "BRANCH_LEQ", 0.5, [-1.0], [1.0]), [-1.0])
    model = read_model(save(tmp_path / "m.onnx", [tree], 2))
    found = vf.verify(vf.IndividualFairness(model=model, schema=of, protected=["p"]))
    assert found.status is (vf.Status.VIOLATED if ends[0] <= threshold else vf.Status.PROVED)


@pytest.mark.parametrize("seed", draws(10))
def test_forbidden_rows_are_nobody(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    ends = [(int(rng.integers(-2, 1)), int(rng.integers(1, 4)), float(rng.choice([0, 0.5, 1.0]))) for _ in range(2)]
    boxes = [{"a": (low, high), "b": (-1.5, most)} for low, high, most in ends]
    of = schema(seed).forbidding([*boxes, {"p": "f", "c": "x"}], "forbidden")
    model = model_of(rng, of, tmp_path / "m.onnx")
    found = vf.verify(vf.IndividualFairness(model=model, schema=of, protected=["p"]), budget=vf.Budget(seconds=60))
    assert found.status is (vf.Status.PROVED if fair(by_person(model, of), None) else vf.Status.VIOLATED)
    assert found.certificate is None or vf.check(found.certificate, model=model, schema=of).accepted


def observed(seed: int, tmp_path: Path) -> tuple[TwinProblem, list[bool]]:
    """PBA's two questions about everybody of p = 0 and of p = 1, and whether they hold."""
    rng, of = np.random.default_rng(seed), schema(seed)
    model, domain = model_of(rng, of, tmp_path / "m.onnx"), of.domain
    v = of.index("p")
    lower, upper = domain.lower.copy(), domain.upper.copy()
    lower[v], upper[v], prime = 0.0, 0.0, np.where(np.arange(4) == v, 1.0, domain.lower)
    batch = TwinBatch(lower=lower[None], upper=upper[None], prime=prime[None], protected=np.arange(4) == v)
    every = rows(of)
    every = every[every[:, v] == 0]
    other = np.where(np.arange(4) == v, 1.0, every)
    one, two = (model.forward(exact(domain.encode(x))).to_fractions()[:, 0] for x in (every, other))
    problem = TwinProblem(network=model, domain=domain, batch=batch, margin=np.ones(1), goals=(OBSERVED, FLIPPED))
    return problem, [bool((one > two).all()), bool((two > one).all())]


@pytest.mark.parametrize("seed", draws(16))
def test_differences_are_decided_with_ties(seed: int, tmp_path: Path) -> None:
    problem, truth = observed(seed, tmp_path)
    found = decide(problem, seconds=60)
    assert found.status[0].tolist() == [PROVED if one else VIOLATED for one in truth]


def test_a_single_row_that_is_forbidden_is_nobody(tmp_path: Path) -> None:
    """The values of both people are equal at a = 1 alone, and nobody is there."""
    of = schema_of(integer("a", 0, 2), categorical("p", "f", "m")).forbidding([{"a": 1, "p": "f"}], "forbidden")
    up, down = (1, "BRANCH_LEQ", 0.5, [1.0], [-1.0]), (1, "BRANCH_LEQ", 0.5, [-1.0], [1.0])
    equal = (0, "BRANCH_LEQ", 0.5, [0.0], (0, "BRANCH_LEQ", 1.5, down, [0.0]))
    model = read_model(save(tmp_path / "m.onnx", [up, equal], 2))
    ends, protected = (np.array([[0.0, 0.0]]), np.array([[2.0, 0.0]])), np.array([False, True])
    batch = TwinBatch(lower=ends[0], upper=ends[1], prime=np.array([[0.0, 1.0]]), protected=protected)
    for domain, expected in ((of.domain, PROVED), (replace(of.domain, forbidden=None), VIOLATED)):
        problem = TwinProblem(network=model, domain=domain, batch=batch, margin=np.ones(1), goals=(OBSERVED,))
        assert decide(problem, seconds=60).status.tolist() == [[expected]]


def proved(tmp_path: Path) -> tuple[Model, vf.Schema, Certificate]:
    """A proof that needs cuts, of a model with a threshold on every feature."""
    of = schema(1)
    trees = [
        (0, "BRANCH_LEQ", 0.0, (4, "BRANCH_LEQ", 0.5, [0.5], [1.0]), (4, "BRANCH_LEQ", 0.5, [-1.0], [-0.5])),
        (5, "BRANCH_LT", 0.5, (0, "BRANCH_GT", 1.0, [-0.25], [0.5]), [0.25]),
        (0, "BRANCH_LEQ", 0.0, [0.5], (5, "BRANCH_LEQ", 0.5, [-0.5], [-0.75])),
    ]
    model = read_model(save(tmp_path / "m.onnx", trees, of.domain.columns, base=[0.125]))
    found = vf.verify(vf.IndividualFairness(model=model, schema=of, protected=["p"]))
    assert found.certificate is not None
    return model, of, found.certificate


def test_forged_proofs_are_rejected(tmp_path: Path) -> None:
    model, of, certificate = proved(tmp_path)
    assert vf.check(certificate, model=model, schema=of).accepted
    trees = [(k, one.evidence) for k, one in enumerate(certificate.proofs) if isinstance(one.evidence, Tree)]
    deep = [(k, tree) for k, tree in trees if len(tree.feature) > 1]
    assert deep

    def with_tree(k: int, tree: Tree) -> Certificate:
        changed = replace(certificate.proofs[k], evidence=tree)
        return replace(certificate, proofs=(*certificate.proofs[:k], changed, *certificate.proofs[k + 1 :]))

    for k, tree in deep:
        assert not vf.check(with_tree(k, Tree.leaf()), model=model, schema=of).accepted
        moved = replace(tree, cut=np.where(tree.feature >= 0, tree.cut + 1, 0.0))
        assert not vf.check(with_tree(k, moved), model=model, schema=of).accepted


def test_the_only_input_above_a_cut_is_not_tested_at_the_cut(tmp_path: Path) -> None:
    """Of the rows between these cuts all are the input 1, at which decisions flip; the first cut itself is the input before it."""
    of = schema_of(categorical("p", "f", "m"), real("b", -1.5, 1.5))
    flips = (1, "BRANCH_EQ", 1.0, (0, "BRANCH_LEQ", 0.5, [1.0], [-1.0]), [-1.0])
    unfair, fair = (read_model(save(tmp_path / f"{k}.onnx", [tree], 2)) for k, tree in enumerate((flips, [-1.0])))
    below, last = float(np.nextafter(1 - 2.0**-25, 0)), 1 + 2.0**-24
    assert of.encode(np.array([[0, below], [0, np.nextafter(below, 2)], [0, last]]))[:, 1].tolist() == [1 - 2.0**-24, 1, 1]
    given = vf.verify(vf.IndividualFairness(model=fair, schema=of, protected=["p"])).certificate
    assert given is not None
    cuts = Tree.plain(np.array([1, -1, 1, -1, -1]), np.array([below, 0, last, 0, 0]))
    forged = replace(
        given, network_sha256=unfair.source_sha256, proofs=tuple(replace(one, evidence=cuts, float32=False) for one in given.proofs)
    )
    assert vf.check(replace(forged, network_sha256=fair.source_sha256), model=fair, schema=of).accepted
    rejections = vf.check(forged, model=unfair, schema=of).rejections
    assert any("the claim is false at" in one.reason for one in rejections)


def test_another_models_proof_is_rejected(tmp_path: Path) -> None:
    _, of, certificate = proved(tmp_path)
    other = read_model(save(tmp_path / "n.onnx", [(4, "BRANCH_LEQ", 0.5, [-0.5], [1.0])], of.domain.columns))
    forged = replace(certificate, network_sha256=other.source_sha256)
    assert not vf.check(forged, model=other, schema=of).accepted


@pytest.mark.parametrize("seed", draws(6))
def test_partitions_are_decided(seed: int, tmp_path: Path) -> None:
    rng, of = np.random.default_rng(seed), schema(1)
    model = model_of(rng, of, tmp_path / "m.onnx")
    query = vf.IndividualFairness(model=model, schema=of, protected=["p"])
    path = vf.certify_partition(query, size=2, store=tmp_path / "parts.sqlite", budget=vf.Budget(seconds=60))
    with PartitionStore(path) as store:
        status = np.concatenate([one for _, one in store.statuses()])
    assert not (status == partition.UNKNOWN).any()
    assert (status != partition.VIOLATED).all() == fair(by_person(model, of), None)
    assert vf.check(path, model=model, schema=of).accepted


@pytest.mark.parametrize("seed", draws(12))
def test_the_largest_gap_is_bracketed(seed: int, tmp_path: Path) -> None:
    rng, of = np.random.default_rng(seed), schema(seed)
    if seed % 4 == 3:
        of = of.forbidding(NEVER, "forbidden")
    model = model_of(rng, of, tmp_path / "m.onnx")
    logit = seed % 2 == 1
    query = vf.ProbabilityGap(model=model, schema=of, protected=["p"], scale="logit" if logit else "probability")
    with parallel_config(backend="threading"):
        found = maximise(query, budget=vf.Budget(seconds=60), tolerance=1e-4, jobs=1 + seed % 3)
    gaps = [(max(group), min(group)) for group in by_person(model, of)]
    truth = max(float(a - b) if logit else gap_bounds(a, b)[0] for a, b in gaps)
    assert found.lower <= truth + 1e-12
    assert truth <= found.upper
    assert found.reason is None
    assert found.certificate is not None
    assert vf.check(found.certificate, model=model, schema=of).accepted
    if truth > 0.01:
        forged = replace(found.certificate, query=replace(found.certificate.query, epsilon=truth - 1e-3))
        assert not vf.check(forged, model=model, schema=of).accepted


@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_the_largest_gap_is_met_where_the_trees_do_not_ask_what_is_forbidden(scale: str, tmp_path: Path) -> None:
    """Nobody has b = 0 and b = 3, the ends of the only cell of b, or b = 2 where the gap is largest."""
    never = [{"b": 0}, {"b": 3}, {"a": {"low": 0, "high": 3}, "b": 2}]
    of = schema_of(integer("a", -2, 3), integer("b", 0, 3), categorical("p", "f", "m")).forbidding(never, "forbidden")
    by_a = (0, "BRANCH_LEQ", 0.5, [0.25], (0, "BRANCH_LEQ", 1.5, [1.0], [0.5]))
    model = read_model(save(tmp_path / "m.onnx", [(2, "BRANCH_LEQ", 0.5, by_a, [-1.0])], 3))
    found = maximise(vf.ProbabilityGap(model=model, schema=of, protected=["p"], scale=scale), budget=vf.Budget(seconds=60))
    truth = Fraction(2) if scale == "logit" else gap_bounds(Fraction(1), Fraction(-1))[0]
    assert found.lower == pytest.approx(float(truth), abs=1e-12)
    assert found.reason is None
    assert found.witness is not None
    assert (found.witness.x["a"], found.witness.x["b"]) == (1, 1)


@pytest.mark.parametrize("seed", draws(8))
def test_gaps_of_probabilities_are_decided_at_the_largest_one(seed: int, tmp_path: Path) -> None:
    """At the float64 numbers around it, and their neighbours: no bound that rounds tells these apart."""
    rng, of = np.random.default_rng(seed), schema(seed)
    if seed % 3 == 0:
        of = of.forbidding(NEVER, "forbidden")
    model = model_of(rng, of, tmp_path / "m.onnx")
    low, high = max(gap_bounds(max(group), min(group)) for group in by_person(model, of))
    for epsilon in (np.nextafter(low, 0), low, high, np.nextafter(high, 1)) if low > 1e-9 else ():
        query = vf.IndividualFairness(model=model, schema=of, protected=["p"], epsilon=float(epsilon))
        found = vf.verify(query, budget=vf.Budget(seconds=60))
        assert found.status is (vf.Status.PROVED if fair(by_person(model, of), float(epsilon)) else vf.Status.VIOLATED)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=model, schema=of).accepted
            forged = replace(found.certificate, query=replace(found.certificate.query, epsilon=float(np.nextafter(low, 0))))
            assert not vf.check(forged, model=model, schema=of).accepted


def test_a_leaf_at_both_ends_of_a_box_is_not_that_of_all_rows_between(tmp_path: Path) -> None:
    """Decisions flip at b = 1 alone; the rows below and above it end in one leaf, by two ways."""
    of = schema_of(categorical("p", "f", "m"), real("b", -1.5, 1.5))
    flips = (1, "BRANCH_EQ", 1.0, (0, "BRANCH_LEQ", 0.5, [1.0], [-1.0]), [-1.0])
    unfair, fair = (read_model(save(tmp_path / f"{k}.onnx", [tree], 2)) for k, tree in enumerate((flips, [-1.0])))
    given = vf.verify(vf.IndividualFairness(model=fair, schema=of, protected=["p"])).certificate
    assert given is not None
    one = tuple(replace(proof, evidence=Tree.leaf(), float32=False) for proof in given.proofs)
    assert vf.check(replace(given, proofs=one), model=fair, schema=of).accepted
    assert not vf.check(replace(given, proofs=one, network_sha256=unfair.source_sha256), model=unfair, schema=of).accepted


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("seed", draws(6))
def test_values_and_shares_move_by_at_most_epsilon(seed: int, shares: bool, tmp_path: Path) -> None:
    """At the largest difference, just above and below it, and at the float64 and float32 numbers on both sides of it."""
    rng, of = np.random.default_rng(seed), schema(seed)
    of = of if shares else of.model_copy(update={"positive": "value >= 0.25"})
    trees = [random_tree(rng, of.domain.columns, 3) for _ in range(5)]
    more = {"classes": 2, "transform": "NONE"} if shares else {}
    model = read_model(save(tmp_path / "m.onnx", [_positive(one) for one in trees] if shares else trees, of.domain.columns, **more))
    truth = max(max(group) - min(group) for group in by_person(model, of))
    edge = float(truth)
    beside = [np.nextafter(kind(edge), kind(side)) for kind in (float, np.float32) for side in (0, 9)]
    for epsilon in (edge * (1 + 1e-9), edge, *beside, edge * (1 - 1e-9)):
        query = vf.IndividualFairness(model=model, schema=of, protected=["p"], epsilon=float(epsilon))
        assert query.quantity == ("probability" if shares else "value")
        expected = vf.Status.PROVED if truth <= Fraction(float(epsilon)) else vf.Status.VIOLATED
        found = vf.verify(query, budget=vf.Budget(seconds=60))
        assert found.status is expected
        if found.certificate is not None:
            assert vf.check(found.certificate, model=model, schema=of).accepted
            for forged in (edge * (1 - 1e-6), float(np.nextafter(edge, 0))):
                about = replace(found.certificate.query, epsilon=forged)
                assert not vf.check(replace(found.certificate, query=about), model=model, schema=of).accepted
        if found.witness is not None:
            assert found.witness.margin < 0
    path = vf.certify_partition(query, size=2, store=tmp_path / "parts.sqlite", budget=vf.Budget(seconds=60))
    with PartitionStore(path) as store:
        assert partition.VIOLATED in np.concatenate([one for _, one in store.statuses()])
    report = vf.check(path, model=model, schema=of)
    assert report.accepted
    assert f"no {query.quantity} moves by more than" in report.statement


def _positive(node: Node) -> Node:
    """The tree with leaves of at least 0, so small that no two of them and of four trees beside are 1 apart."""
    return [abs(one) / 16 for one in node] if isinstance(node, list) else (*node[:3], *map(_positive, node[3:]))


@pytest.mark.parametrize("method", ["milp", "smt"])
@pytest.mark.parametrize("seed", draws(8))
def test_solvers_agree_with_the_truth(seed: int, method: str, tmp_path: Path) -> None:
    rng, of = np.random.default_rng(seed), schema(seed)
    if seed == 5:
        of = of.forbidding([{"a": (-2, 0), "b": (-1.5, 0.5)}], "forbidden")
    model = model_of(rng, of, tmp_path / "m.onnx", trees=6)
    found = vf.verify(vf.IndividualFairness(model=model, schema=of, protected=["p"]), method=method, budget=vf.Budget(seconds=60))
    truth = vf.Status.PROVED if fair(by_person(model, of), None) else vf.Status.VIOLATED
    assert found.status in (truth, vf.Status.UNKNOWN)
    if method == "smt" and seed != 5:       # exact, ties too; a MILP claims nothing at 0
        assert found.status is truth


@pytest.mark.parametrize("seed", draws(6))
def test_solvers_decide_differences(seed: int, tmp_path: Path) -> None:
    problem, truth = observed(seed, tmp_path)
    for method in ("milp", "smt"):
        ((first, second),) = solve(problem, method=method, budget=vf.Budget(seconds=60))
        for answer, holds in zip((first, second), truth, strict=True):
            assert answer.status in (vf.Status.PROVED if holds else vf.Status.VIOLATED, vf.Status.UNKNOWN)
            assert method == "milp" or answer.status is not vf.Status.UNKNOWN


@pytest.mark.parametrize("seed", draws(4))
def test_two_copies_have_the_same_least_difference(seed: int, tmp_path: Path) -> None:
    """As trees of the difference, and as trees of each copy that share thresholds alone."""
    problem, _ = observed(seed, tmp_path)
    twin, highs = copies_of(problem), registry.get("highs")
    assert isinstance(twin, TreeTwin)
    for goal in problem.goals:
        programs = [TreeProgram.of(twin, 0, goal, apart=apart).worst(goal) for apart in (False, True)]
        least = [highs.solve(program, budget=vf.Budget(seconds=30)).primal_bound for program in programs]
        assert least[0] == pytest.approx(least[1], abs=1e-6)


def test_differences_far_below_the_scores_are_rounded_against_the_goal(tmp_path: Path) -> None:
    """g - g' is 2^-53 = 2^-52 - 2^-53, and either part is no multiple of the step of sums about 1."""
    tiny = 2.0**-52
    grown = [(1, "BRANCH_LEQ", 0.5, [tiny], [0.0]), (1, "BRANCH_LEQ", 0.5, [0.0], [tiny / 2]), (0, "BRANCH_LEQ", 0.5, [1.0], [0.5])]
    described = schema_of(integer("a", 0, 1, unit=1.0), categorical("sex", "F", "M", protected=True))
    model = read_model(save(tmp_path / "trees.onnx", grown, 2))
    for value, goals in ((0.0, (OBSERVED, FLIPPED)), (1.0, (FLIPPED, OBSERVED))):
        row = np.array([[0.0, value]])
        asked = bias_problem(model, described, row, "sex", np.array([1.0 - value]), 1.0, (1, 0))
        for method in ("milp", "smt"):
            held, broken = solve(replace(asked, goals=goals), method=method)[0]
            assert held.status is not vf.Status.VIOLATED
            assert broken.status is not vf.Status.PROVED


def test_classes_of_three_are_the_largest_score(tmp_path: Path) -> None:
    rng, of = np.random.default_rng(0), schema(1)
    trees = [random_tree(rng, of.domain.columns, 3, scores=3) for _ in range(6)]
    model = read_model(save(tmp_path / "m.onnx", trees, of.domain.columns, classes=3, transform="SOFTMAX"))
    x = of.domain.encode(rows(of))
    logits = model.forward(exact(x)).to_fractions()
    assert decisions(model, x).tolist() == [max(range(3), key=lambda c: (row[c], -c)) for row in logits]


def test_values_that_no_tree_tells_apart_are_one_pair(tmp_path: Path) -> None:
    """Trees ask p <= 0.5 and p <= 2.5: of five values 1 and 2 go the same ways, and so do 3 and 4."""
    trees = [(0, "BRANCH_LEQ", 0.5, (1, "BRANCH_LEQ", 1.5, [1.0], [-2.0]), [0.5]), (0, "BRANCH_LEQ", 2.5, [1.0], [-0.25])]
    model = read_model(save(tmp_path / "m.onnx", trees, 2))
    described = schema_of(integer("p", 0, 4, protected=True), integer("a", 0, 3))
    query = vf.IndividualFairness(model=model, schema=described, protected=["p"], epsilon=0.6)
    twin = TreeTwin.of(twin_problem(query, questions_of(query)[1], goals_of(query)))
    kind = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2}
    batch = twin.problem.batch
    kinds = [(kind[int(z)], kind[int(z_prime)]) for z, z_prime in zip(batch.lower[:, 0], batch.prime[:, 0], strict=True)]
    assert len(kinds) == 10
    assert len(twin.pairs) == len(set(kinds)) == 5      # 1 with 2 and 3 with 4 are two of them
    for pair in range(5):
        assert len({kinds[q] for q in np.flatnonzero(twin.pair_of == pair)}) == 1
    scores = model.forward(described.encode(np.array([[p, a] for a in range(4) for p in range(5)], dtype=float)))
    probability = 1 / (1 + np.exp(-scores.reshape(4, 5)))
    gap = float(np.ptp(probability, axis=1).max())
    for epsilon, status in ((gap - 1e-6, vf.Status.VIOLATED), (gap + 1e-6, vf.Status.PROVED)):
        found = vf.verify(replace(query, model=model, epsilon=epsilon, differ="any"))
        assert found.status is status
        if found.certificate is not None:
            assert vf.check(found.certificate, model=model, schema=described).accepted


def test_what_is_not_supported_is_refused_in_one_line(tmp_path: Path) -> None:
    model, of, _ = proved(tmp_path)
    query = vf.IndividualFairness(model=model, schema=of, protected=["p"])
    with pytest.raises(ModelError, match="is a tree ensemble") as error:
        vf.verify(query, method="lp")
    assert "\n" not in str(error.value)
    with pytest.raises(QueryError, match="a partition of a tree ensemble relaxes nothing") as refused:
        vf.certify_partition(replace(query, relax={"a": 1}), size=2, store=tmp_path / "parts.sqlite")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_bounds_fall_where_the_last_question_takes_too_long(
    scale: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a first bound too, as log-odds have none: the epsilons asked about close in on what can be proved."""
    of, asked = schema(1), list[float]()
    model = read_model(save(tmp_path / "m.onnx", [(4, "BRANCH_LEQ", 0.5, [0.0], [0.125])], of.domain.columns))
    query = vf.ProbabilityGap(model=model, schema=of, protected=["p"], scale=scale)
    problem = twin_problem(query, questions_of(query)[1], (NO_FALL,))

    def ask(_: TwinProblem, __: str, epsilon: float, *___: Any) -> gap_of_trees._Answer:
        asked.append(epsilon)
        none = np.empty(0, dtype=np.int64)
        proofs: list[list[Tree]] | None = [] if epsilon >= 0.5 else None
        return gap_of_trees._Answer(question=none, point=np.empty((0, 4)), proofs=proofs, out_of="time", nodes=1, seconds=0.1)

    monkeypatch.setattr(gap_of_trees, "_ask", ask)
    with parallel_config(backend="threading"):
        found = gap_of_trees.largest_gap_of_trees(
            problem, logit=scale == "logit", tolerance=0.01, budget=vf.Budget(seconds=60), jobs=jobs
        )
    assert min(asked[:jobs]) < 0.2
    assert np.isfinite(asked).all()
    assert 0.5 <= found.upper <= 0.52


def test_two_proofs_say_which_epsilon_the_time_left_can_prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a proof takes .1 s for epsilon = 1, and twice as long for every .05 below."""
    of, asked = schema(1), list[float]()
    model = read_model(save(tmp_path / "m.onnx", [(4, "BRANCH_LEQ", 0.5, [0.0], [0.125])], of.domain.columns))
    query = vf.ProbabilityGap(model=model, schema=of, protected=["p"])
    problem = twin_problem(query, questions_of(query)[1], (NO_FALL,))

    def ask(_: TwinProblem, __: str, epsilon: float, budget: vf.Budget, *___: Any) -> gap_of_trees._Answer:
        asked.append(epsilon)
        seconds, none = 0.1 * 2 ** ((1 - epsilon) / 0.05), np.empty(0, dtype=np.int64)
        proofs: list[list[Tree]] | None = [] if seconds <= budget.seconds else None
        return gap_of_trees._Answer(question=none, point=np.empty((0, 4)), proofs=proofs, out_of="time", nodes=1, seconds=seconds)

    monkeypatch.setattr(gap_of_trees, "_ask", ask)
    gap_of_trees.largest_gap_of_trees(problem, logit=False, tolerance=0.01, budget=vf.Budget(seconds=60))
    longest = 1 - 0.05 * np.log2(gap_of_trees.AIM * 60 / 0.1)
    assert asked[3] == pytest.approx(longest, abs=0.01)     # after one just above the best gap, and two proofs


def test_a_threshold_that_no_float32_is_may_be_met_exactly(tmp_path: Path) -> None:
    """0.1 + 0.5 of float32 numbers is a float64 number alone, and the value of half of all people."""
    tenth = float(np.float32(0.1))
    trees = [(0, "BRANCH_LEQ", 0.5, [tenth], [float(np.float32(0.3))]), (1, "BRANCH_LEQ", 2.5, [float(np.float32(0.7))], [0.5])]
    model = read_model(save(tmp_path / "m.onnx", trees, 2))
    of = schema_of(integer("sex", 0, 1, protected=True), integer("age", 0, 5), positive=f"value >= {tenth + 0.5!r}")
    found = vf.verify(vf.IndividualFairness(model=model, schema=of, protected=["sex"]))
    assert found.status is vf.Status.PROVED
    assert found.certificate is not None
    assert vf.check(found.certificate, model=model, schema=of).accepted


@pytest.mark.parametrize("shares", [False, True])
def test_probabilities_that_the_model_does_not_give_are_forged(shares: bool, tmp_path: Path) -> None:
    """Whoever checks such a file is not told that the schema is wrong."""
    trees, more = [(1, "BRANCH_LEQ", 0.5, [0.25], [0.5])], {"classes": 2} if shares else {}
    model = read_model(save(tmp_path / "m.onnx", trees, 2, **more))
    positive = "logit > 0" if shares else "value >= 0.3"
    of = schema_of(integer("age", 0, 5), integer("sex", 0, 1, protected=True), positive=positive)
    query = vf.IndividualFairness(model=model, schema=of, protected=["sex"], epsilon=0.25)
    proof = vf.verify(query).certificate
    assert vf.check(proof, model=model, schema=of).accepted
    store = vf.certify_partition(query, size=3, store=tmp_path / "parts.sqlite")
    about, chunks = contents(store)
    of_probabilities = written(store, {**about, "scale": "probability"}, chunks)
    changes = {"epsilon": None}, {"scale": "probability"}, {"classes": "any"}
    forged = [replace(proof, query=replace(proof.query, **one)) for one in changes]
    said = [vf.check(one, model=model, schema=of) for one in (*forged, of_probabilities)]
    assert [one.verdict for one in said] == ["REJECTED"] * 4
    assert ["gaps between probabilities" in str(one.rejections) for one in said] == [False, True, False, True]


@pytest.mark.parametrize("scores", [1, 3])
def test_no_proof_about_float32_where_a_sum_may_overflow(scores: int, tmp_path: Path) -> None:
    """3e38 - 3e38 + 3e38 - 3e38 is 0, but infinite in another order."""
    trees = [[sign * 3e38] + [0.0] * (scores - 1) for sign in (1, -1, 1, -1)]
    trees.append((0, "BRANCH_LEQ", 0.5, [0.0] * (scores - 1) + [1e36], [0.0] * (scores - 1) + [2e36]))
    model = read_model(save(tmp_path / "m.onnx", trees, 1))
    described = schema_of(integer("sex", 0, 1), positive="logit > 0" if scores == 1 else "class = 2")
    asked = vf.IndividualFairness(model=model, schema=described, protected=["sex"])
    found = vf.verify(asked)
    assert (found.status, found.float32) == (vf.Status.PROVED, False)
    assert vf.verify(replace(asked, model=model, arithmetic="float32")).reason is vf.Reason.FLOAT32
    assert found.certificate is not None
    assert vf.check(found.certificate, model=model, schema=described).accepted
    forged = replace(found.certificate, proofs=tuple(replace(one, float32=True) for one in found.certificate.proofs))
    assert not vf.check(forged, model=model, schema=described).accepted


@pytest.mark.parametrize("swapped", [False, True])
def test_a_mixture_of_rows_that_is_exactly_0_closes_nothing_that_the_checker_does_not(swapped: bool, tmp_path: Path) -> None:
    """Where b is 0, both copies score 0, or 2; elsewhere they score 2 and 1: three quarters of the one less a quarter of the other
    is at least 0, but the checker takes off what combining rows may round."""
    by_sex = [[2.0], [1.0]][:: -1 if swapped else 1]
    tree = (2, "BRANCH_LEQ", 0.0, (1, "BRANCH_LEQ", 0.3, [0.0], [2.0]), (0, "BRANCH_LEQ", 0.5, *by_sex))
    model = read_model(save(tmp_path / "trees.onnx", [tree], 3))
    described = schema_of(integer("sex", 0, 1, protected=True), real("a", 0, 1), real("b", 0, 1), positive="logit > 0")
    found = vf.verify(vf.IndividualFairness(model=model, schema=described, protected=["sex"]))
    assert found.status is vf.Status.PROVED
    report = vf.check(found.certificate, model=model, schema=described)
    assert report.accepted, report.rejections


def test_a_cut_at_the_lower_end_of_a_box_leaves_it_out(tmp_path: Path) -> None:
    """Who has b = 0.1 is the network's 0, and neighbouring numbers are not: the neighbourhood of b = 0.2 begins there."""
    tree = (2, "BRANCH_LEQ", 0.0, [3.0], (1, "BRANCH_LEQ", 0.5, [1.0], [2.0]))
    model = read_model(save(tmp_path / "trees.onnx", [tree, (2, "BRANCH_LEQ", 0.0, [-2.5], [-0.5])], 3))
    scaled = real("b", 0, 0.3, unit=0.1, scale={"offset": 0.1, "scale": 1e5})
    described = schema_of(integer("sex", 0, 1, protected=True), real("a", 0, 1, unit=0.5), scaled, positive="logit > 0")
    found = certify_robust(model, described, np.array([[0.0, 0.5, 0.2]]), delta=[1.0])
    assert found.table["status"].tolist() == ["proved"]
    report = vf.check(found.certificate, model=model, schema=described)
    assert report.accepted, report.rejections
    (proof,) = found.certificate.proofs
    cut = Tree.plain(np.array([2, -1, -1]), np.array([0.1, 0.0, 0.0]))
    for at, accepted in ((0.1, True), (float(np.nextafter(0.1, 1)), False), (0.2, False)):
        moved = replace(proof, evidence=replace(cut, cut=np.array([at, 0.0, 0.0])), margin=None, float32=False)
        forged = replace(found.certificate, proofs=(moved,))
        assert vf.check(forged, model=model, schema=described).accepted == accepted
