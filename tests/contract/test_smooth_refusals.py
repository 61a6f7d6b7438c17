"""What cannot take a smooth network says so, by name, from its own entry: nothing answers as if a sigmoid were a ReLU."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.bounds.explanations.gradient import gradient_zonotopes
from encoders.bounds.twin import Twin
from encoders.curves.layer import SmoothLayer
from encoders.errors import CurveError
from encoders.evaluate import exact_goals
from encoders.exact.dyadic import exact
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.product_network import product_network
from encoders.problem import TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.smt import smt
from encoders.programs.triangle import triangle
from encoders.programs.twin_box import Method, TwinBox
from tests.builders import categorical, integer, schema_of
from tests.soundness.classes.whole_weights import FEATURES, made
from verifair.checker.certificates.tree import Tree
from verifair.checker.kinds.consistency import check_consistency
from verifair.engine.cascade import solve
from verifair.engine.search.signs.neurons import decide_by_phases
from verifair.errors import QueryError
from verifair.systems.cec.certified import certify_consistency
from verifair.systems.hyfair.guard.retraining import weights_of

SCHEMA = schema_of(
    categorical("sex", "f", "m", protected=True),
    integer("age", 0, 9, unit=1),
    positive="logit > 0",
)


def network() -> Network:
    layer = SmoothLayer(
        weight=np.array([[1.0, 0.5], [-1.0, 0.25]]), bias=np.array([0.1, -0.3]), bend=np.ones(2),
        curve=np.array([1, 2], dtype=np.int8),
    )
    last = Layer(weight=np.array([[1.0, -2.0]]), bias=np.array([0.2]), slope=np.ones(1))
    return Network(layers=(layer, last), link=Link.SIGMOID, source_sha256="0" * 64)


def problem() -> TwinProblem:
    from encoders.problem import TwinBatch
    from verifair.engine.questions import NO_FALL, NO_RISE

    low, high = np.array([[0.0, 0.0]]), np.array([[0.0, 9.0]])
    batch = TwinBatch(lower=low, upper=high, prime=np.array([[1.0, 0.0]]), protected=np.array([True, False]))
    return TwinProblem(network=network(), domain=SCHEMA.domain, batch=batch, margin=np.array([1.0]), goals=(NO_FALL, NO_RISE))


def fairness(**more: Any) -> vf.IndividualFairness:
    return vf.IndividualFairness(model=network(), schema=SCHEMA, protected=["sex"], **more)


def box() -> TwinBox:
    return TwinBox.of(Twin.of(problem()), 0, method=Method.LINEAR)


X = np.array([[0.0, 3.0]])
ONE = np.ones(1)
REFUSALS: dict[str, Callable[[], Any]] = {
    "slope": lambda: network().layers[0].slope,
    "exact forward": lambda: network().forward(exact(X)),
    "rational forward": lambda: network().forward(np.array([[Fraction(0), Fraction(3)]], dtype=object)),
    "exact goals": lambda: exact_goals(problem(), np.zeros(1, dtype=np.int64), X),
    "twin box": box,
    "triangle": lambda: triangle(box()),
    "big-M": lambda: big_m(box()),
    "smt encoding": lambda: smt(box()),
    "method lp": lambda: vf.verify(fairness(), method="lp"),
    "method milp": lambda: vf.verify(fairness(), method="milp"),
    "method smt": lambda: vf.verify(fairness(), method="smt"),
    "a solver": lambda: vf.verify(fairness(), method="auto", solver="highs"),
    "neuron branching": lambda: decide_by_phases(problem(), 0, 0, seconds=5, max_nodes=10),
    "check of consistency": lambda: check_consistency("none.json", network=network(), schema=SCHEMA, batches=None),
    "gradient bounds": lambda: gradient_zonotopes(network(), ONE, X, X, X + 1, 4),
    "certified consistency": lambda: certify_consistency(
        network(), SCHEMA, SimpleNamespace(people=SimpleNamespace(values=X, labels=ONE, groups=ONE)), None,
        SimpleNamespace(values=X, labels=ONE, groups=ONE), 1.0,
    ),
    "retraining": lambda: weights_of(network()),
    "product network": lambda: product_network(network(), own=np.array([0])),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_it_is_refused_by_name(name: str) -> None:
    with pytest.raises(CurveError, match="neurons") as caught:
        REFUSALS[name]()
    assert caught.value.exit_code == 3
    assert "docs/concepts/smooth.md" in str(caught.value)


@pytest.mark.parametrize("method", ["auto", "bnb"])
def test_branch_and_bound_decides_and_asks_no_one_else(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing but branch-and-bound may be asked about a smooth network")

    from verifair.engine import cascade as engine

    for other in ("ask", "NeuronSearch"):
        monkeypatch.setattr(engine, other, nobody)
    for nodes in (1, 2, None):
        for row in solve(problem(), method=method, budget=vf.Budget(seconds=20, nodes=nodes)):
            for answer in row:
                assert answer.engine == "branch-and-bound"
                assert nodes is not None or answer.status is not vf.Status.UNKNOWN


def test_signs_and_slopes_of_neurons_prove_nothing_about_a_smooth_network() -> None:
    verdict = vf.verify(fairness(box={"age": (9, 9)}, epsilon=0.999), budget=vf.Budget(seconds=20))
    assert verdict.certificate is not None
    good, nothing = verdict.certificate, np.empty(0, dtype=np.int64)
    signs = Tree(feature=np.array([-2, -1, -1]), cut=np.zeros(3), start=np.zeros(4, dtype=int), index=nothing, value=np.empty(0))
    slopes = Tree(feature=np.array([-1]), cut=np.zeros(1), start=np.array([0, 1]), index=np.array([0]), value=np.array([0.5]))
    for tree in (signs, slopes):
        proofs = (replace(good.proofs[0], evidence=tree), *good.proofs[1:])
        report = vf.check(replace(good, proofs=proofs), model=network(), schema=SCHEMA)
        assert [one.proof for one in report.rejections] == [0]
        assert "smooth" in str(report.rejections[0])


def test_the_checker_rejects_a_claim() -> None:
    """MILP and SMT claims are never made about smooth networks; one in a file is not re-provable, as ever."""
    verdict = vf.verify(fairness(box={"age": (9, 9)}, epsilon=0.999), budget=vf.Budget(seconds=20))
    assert verdict.status is vf.Status.PROVED
    assert verdict.certificate is not None
    assert verdict.certificate.trust.value == "checked"
    assert vf.check(verdict.certificate, model=network(), schema=SCHEMA).accepted
    relu = Layer(weight=network().layers[0].weight, bias=network().layers[0].bias, slope=np.zeros(2))
    bent = replace(network(), layers=(relu, network().layers[1]))
    assert not vf.check(verdict.certificate, model=bent, schema=SCHEMA).accepted


def test_probabilities_of_several_classes_are_refused_as_such() -> None:
    """The network itself has ReLU layers alone: it is not to be trained again."""
    several, described = made(0, 3), schema_of(*FEATURES, positive="class = 1")
    query = vf.IndividualFairness(model=several, schema=described, protected=["sex"], epsilon=0.1)
    with pytest.raises(CurveError, match=r"probabilities of several classes are not supported by method milp: ask about decisions"):
        vf.verify(query, method="milp")
    with pytest.raises(QueryError, match="no error is specified of the softmax of several classes in float32"):
        replace(query, model=several, arithmetic="float32")
