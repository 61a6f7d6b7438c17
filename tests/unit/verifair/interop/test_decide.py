"""VNN-LIB queries: never a wrong sat, never a wrong unsat, whatever the boundary; and every sat says why."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.product_network import network_model
from encoders.onnx.reader import read_onnx
from encoders.vnnlib.cases import cases, meets
from encoders.vnnlib.reader import Variable, VnnlibQuery, VnnlibUnsupported, read_vnnlib
from solvers.outcome import Budget
from tests.builders import random_network
from verifair.checker.certificates.tree import Tree
from verifair.errors import QueryError
from verifair.interop import problems
from verifair.interop.decide import QueryAnswer, VnnlibStatus, check_types, covers_reals, decide, networks_of
from verifair.interop.problems import case_problems
from verifair.interop.witness import number, written

SAT, UNSAT, UNKNOWN = VnnlibStatus.SAT, VnnlibStatus.UNSAT, VnnlibStatus.UNKNOWN


def network(*layers: tuple[list[list[float]], list[float]]) -> Network:
    """ReLU layers, the last one affine."""
    made = [Layer(weight=np.array(w, dtype=float), bias=np.array(b, dtype=float), slope=np.zeros(len(b))) for w, b in layers]
    made[-1] = replace(made[-1], slope=np.ones(len(layers[-1][1])))
    return Network(layers=tuple(made), link=Link.IDENTITY, source_sha256="")


def stored(net: Network, path: Path) -> Network:
    onnx.save(network_model(net, {}), path)
    return read_onnx(path)


def query(folder: Path, text: str) -> VnnlibQuery:
    path = folder / "q.vnnlib"
    path.write_text(text, encoding="utf-8")
    return read_vnnlib(path)


def old(inputs: int, outputs: int, *asserts: str, box: tuple[str, str] = ("-1.0", "1.0")) -> str:
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)] + [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    lines += [f"(assert (and (>= X_{i} {box[0]}) (<= X_{i} {box[1]})))" for i in range(inputs)]
    return "\n".join([*lines, *(f"(assert {one})" for one in asserts)])


def twin(n: int, m: int, *asserts: str) -> str:
    lines = ["(vnnlib-version <2.0>)"]
    for name, equal in (("f", ""), ("g", "(equal-to f) ")):
        lines.append(f"(declare-network {name} {equal}(declare-input X_{name} real [{n}]) (declare-output Y_{name} real [{m}]))")
    lines += [f"(assert (and (>= X_f[{i}] -1.0) (<= X_f[{i}] 1.0)))" for i in range(n)]
    return "\n".join([*lines, *(f"(assert {one})" for one in asserts)])


def ask(asked: VnnlibQuery, *networks: Network, seconds: float = 20.0, method: str = "auto") -> QueryAnswer:
    found = decide(asked, networks, budget=Budget(seconds=seconds, nodes=2000), method=method)
    assert (found.assignment is not None) == (found.answer is SAT)
    if found.assignment is not None:  # once more, over the rationals
        values = {}
        for j, (x, y) in enumerate(zip(found.assignment.inputs, found.assignment.outputs, strict=True)):
            assert (networks[j].forward(x[None, :])[0] == y).all()
            values |= {Variable(j, "input", i): v for i, v in enumerate(x)} | {Variable(j, "output", i): v for i, v in enumerate(y)}
        assert all(meets(formula, values) for formula in asked.asserted)
    return found


def met(asked: VnnlibQuery, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...]) -> bool:
    """Whether some of the points, (N, n) for each network, meets the query."""
    for k in range(len(inputs[0])):
        values = {Variable(j, "input", i): v for j, part in enumerate(inputs) for i, v in enumerate(part[k])}
        values |= {Variable(j, "output", i): v for j, part in enumerate(outputs) for i, v in enumerate(part[k])}
        if all(meets(formula, values) for formula in asked.asserted):
            return True
    return False


IDENTITY = network(([[1.0]], [0.0]))
HAT = network(([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
"""|x|, which is 0 at 0 alone."""


@pytest.mark.parametrize(("net", "asserts", "expected"), [
    (IDENTITY, ["(>= Y_0 1.0)"], {SAT}),
    (IDENTITY, ["(> Y_0 1.0)"], {UNSAT, UNKNOWN}),
    (IDENTITY, ["(>= Y_0 1.00000001)"], {UNSAT}),
    (IDENTITY, ["(<= Y_0 -1.0)", "(>= Y_0 -1.0)"], {SAT}),
    (HAT, ["(< Y_0 0.0)"], {UNSAT, UNKNOWN}),
    (HAT, ["(<= Y_0 0.0)"], {SAT, UNKNOWN}),
    (HAT, ["(<= Y_0 -1e-6)"], {UNSAT}),
    (HAT, ["(= Y_0 0.5)"], {SAT, UNKNOWN}),
    (HAT, ["(= Y_0 1.5)"], {UNSAT}),
    (HAT, ["(or (>= Y_0 1.5) (and (>= Y_0 0.9) (<= X_0 -0.5)))"], {SAT}),
    (HAT, ["(or (>= Y_0 1.5) (and (>= Y_0 0.9) (<= X_0 0.5) (>= X_0 -0.5)))"], {UNSAT}),
    (HAT, ["(<= (+ Y_0 X_0) -0.001)"], {UNSAT}),
    (HAT, ["(<= (+ Y_0 (* 2.0 X_0)) -0.9)"], {SAT}),
    (HAT, ["(!= Y_0 5.0)"], {SAT}),
    (HAT, ["(<= 1.0 0.0)"], {UNSAT}),
    (HAT, ["(<= X_0 -3.0)"], {UNSAT}),
])
def test_boundaries(net: Network, asserts: list[str], expected: set[VnnlibStatus], tmp_path: Path) -> None:
    found = ask(query(tmp_path, old(1, 1, *asserts)), net, seconds=2.0).answer
    assert (UNKNOWN if found is VnnlibStatus.TIMED_OUT else found) in expected


def test_bounds_that_are_no_float32_numbers(tmp_path: Path) -> None:
    """float32(0.1) > 0.1: the box must hold all of [0.1, 0.3], and a witness must lie within it."""
    box = ("0.1", "0.3")
    assert ask(query(tmp_path, old(1, 1, "(<= Y_0 0.1)", box=box)), IDENTITY).answer is SAT
    assert ask(query(tmp_path, old(1, 1, "(>= Y_0 0.3)", box=box)), IDENTITY).answer is SAT
    for beyond in ("(<= Y_0 0.09999999999)", "(>= Y_0 0.30000000001)"):
        assert ask(query(tmp_path, old(1, 1, beyond, box=box)), IDENTITY).answer is not SAT
    point = ask(query(tmp_path, old(1, 1, "(= Y_0 0.1)", box=("0.1", "0.1"))), IDENTITY)
    assert point.answer is SAT
    assert point.assignment is not None
    assert point.assignment.inputs[0][0] == Fraction(1, 10)


def test_between_two_neighbouring_float32_there_are_real_numbers(tmp_path: Path) -> None:
    """A ramp that is negative only strictly between two float32 numbers: every float32 input says unsat, the reals say sat."""
    one = np.float32(1.0)
    above = np.nextafter(one, np.float32(2.0))
    gap = float(above) - 1.0
    dip = network(([[1.0]], [0.0]), ([[1.0], [-1.0]], [-1.0 - gap / 2, 1.0 + gap / 2]), ([[1.0, 1.0]], [-gap / 4]))
    values = [dip.forward(np.array([[Fraction(x)]], dtype=object))[0, 0] for x in (1.0, 1.0 + gap / 2, float(above))]
    assert [v > 0 for v in values] == [True, False, True]
    asked = query(tmp_path, old(1, 1, "(< Y_0 0.0)", box=("1.0", f"{1 + gap:.30f}")))
    assert ask(asked, dip).answer in {SAT, UNKNOWN}


def test_a_proof_by_float32_points_does_not_count(tmp_path: Path) -> None:
    (case,) = cases(query(tmp_path, old(1, 1, "(<= Y_0 -2.0)")))
    (part,) = case_problems(query(tmp_path, old(1, 1, "(<= Y_0 -2.0)")), case, [IDENTITY])
    assert covers_reals(Tree.leaf(), part.problem)
    split = Tree.plain(np.array([0, -1, -1]), np.array([-1.0, 0.0, 0.0]))
    assert covers_reals(split, part.problem)  # [-1, -1] is a point
    ends = np.array([0, 0, -1, -1, -1]), np.array([0.5, np.nextafter(0.5, 0), 0.0, 0.0, 0.0])
    assert covers_reals(Tree.plain(*ends), part.problem)  # two float64, one float32
    ends[1][:2] = np.nextafter(0.5, 1) + 2.0**-25, np.nextafter(0.5, 1) + 2.0**-25 - 2.0**-53
    box = part.problem.domain.box(ends[1][1:2, None], ends[1][:1, None])
    assert (box[0] != box[1]).any(), "two float64 with a rounding of float32 between them"
    small = Tree.plain(*ends)
    assert not covers_reals(small, part.problem)
    named = replace(small, start=np.array([0, 0, 0, 0, 1, 1]), index=np.array([0]), value=np.ones(1))
    assert covers_reals(named, part.problem)  # its bound says something of all of it


@pytest.mark.parametrize("seed", range(12))
def test_random_queries_against_brute_force(seed: int, tmp_path: Path) -> None:
    """Single networks, conjunctions and disjunctions over inputs and outputs: a dense lattice finds no sat where unsat is said."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, (2, 4, 3, 2), slope=0.1 * (seed % 2))

    def comparison() -> str:
        a, b, c = (f"{v:.3f}" for v in rng.normal(size=3))
        sign = rng.choice(["<=", "<", ">=", ">"])
        other = rng.choice(["Y_1", "X_0", "X_1"])
        return f"({sign} (+ (* {a} Y_0) (* {b} {other})) {c})"

    asked = query(tmp_path, old(2, 2, f"(or (and {comparison()} {comparison()}) {comparison()})", comparison()))
    found = ask(asked, net)
    line = [Fraction(k, 20) for k in range(-20, 21)]
    x = np.array(list(product(line, line)), dtype=object)
    y = net.forward(x)
    if met(asked, (x,), (y,)):
        assert found.answer is SAT
    else:
        assert found.answer in {SAT, UNSAT}


@pytest.mark.parametrize("seed", range(8))
def test_twins_by_either_way_and_against_brute_force(seed: int, tmp_path: Path) -> None:
    """The twin way, the scalar way (an extra relation over inputs) and a lattice: they never contradict each other."""
    rng = np.random.default_rng(100 + seed)
    net = random_network(rng, (3, 5, 4, 2))
    shared = ["(== X_g[0] X_f[0])", "(== X_f[1] X_g[1])", "(== X_g[2] 1.0)", "(== X_f[2] 0.0)"]
    asserts = [*shared, f"(> (- Y_f[1] Y_f[0]) {0.2 * rng.random():.2f})", "(< (- Y_g[1] Y_g[0]) 0.0)"]
    asked = query(tmp_path, twin(3, 2, *asserts))
    first = ask(asked, net, net)
    assert first.engines[0].endswith("(twin)")
    again = ask(query(tmp_path, twin(3, 2, *asserts, "(<= (+ X_f[0] Y_f[0]) 100.0)")), net, net)
    assert again.engines[0].endswith("(scalar)")
    assert first.answer is again.answer
    line = [Fraction(k, 10) for k in range(-10, 11)]
    x = np.array([(a, b, 0) for a, b in product(line, line)], dtype=object) + Fraction(0)
    prime = x.copy()
    prime[:, 2] = Fraction(1)
    y, z = net.forward(x), net.forward(prime)
    assert first.answer is SAT if met(asked, (x, prime), (y, z)) else first.answer in {SAT, UNSAT}


def test_shifted_inputs_and_different_networks(tmp_path: Path) -> None:
    text = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1]) (declare-output Y real [1]))
(declare-network g (isomorphic-to f) (declare-input U real [1]) (declare-output V real [1]))
(assert (and (>= X[0] 0.0) (<= X[0] 1.0)))
(assert (== U[0] (- X[0] 0.5)))
"""
    double = network(([[2.0]], [0.0]))
    assert ask(query(tmp_path, text + "(assert (>= V[0] (+ Y[0] 0.01)))"), HAT, double).answer is UNSAT  # 2 (x - 1/2) <= x
    found = ask(query(tmp_path, text + "(assert (>= V[0] Y[0]))"), HAT, double)  # at x = 1 alone
    assert found.answer in {SAT, UNKNOWN}
    third = ask(query(tmp_path, text.replace("0.5", "0.1") + "(assert (>= V[0] (+ Y[0] 0.75)))"), HAT, double)  # 0.1: no float32
    assert third.answer is SAT


def test_unknown_and_timed_out_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    net = random_network(rng, (6, 30, 30, 1))
    asked = query(tmp_path, old(6, 1, "(>= Y_0 1e-3)", "(<= Y_0 1.0001e-3)"))
    assert decide(asked, [net], budget=Budget(seconds=1e-3)).answer is VnnlibStatus.TIMED_OUT
    few = decide(asked, [net], budget=Budget(seconds=20, nodes=2), method="bnb")
    assert few.answer in {UNKNOWN, SAT}
    assert VnnlibStatus.TIMED_OUT.value == "timed-out"
    assert VnnlibStatus.TIMED_OUT.competition == "timeout"


def test_witnesses_are_written_for_both_versions(tmp_path: Path) -> None:
    net = stored(HAT, tmp_path / "hat.onnx")
    asked = query(tmp_path, old(1, 1, "(>= Y_0 0.75)"))
    found = ask(asked, net)
    assert found.assignment is not None
    assert found.assignment.agrees
    text = written(asked, found.assignment)
    assert re.fullmatch(r"\(\(X_0 -?\d+\.\d+\)\n\(Y_0 \d+\.\d+\)\)\n", text)
    x, y = (Fraction(v) for v in re.findall(r"-?\d+\.\d+", text))
    assert abs(x) == y >= Fraction(3, 4)

    new = query(tmp_path, twin(1, 1, "(== X_g[0] 0.0)", "(>= Y_f[0] 0.75)"))
    both = ask(new, net, net)
    assert both.assignment is not None
    lines = written(new, both.assignment).splitlines()
    assert lines[0::2] == ["X_f real [1]", "Y_f real [1]", "X_g real [1]", "Y_g real [1]"]


@pytest.mark.parametrize("asserts", [
    ("(> X_0 0.2)", "(<= Y_0 0.75)"), ("(< X_0 -0.25)", "(>= Y_0 0.25)"), ("(> X_0 0.0)", "(<= Y_0 0.0001)"),
])
def test_a_point_on_the_boundary_leads_to_one_inside(asserts: tuple[str, str], tmp_path: Path) -> None:
    """The engine closes strict bounds, and its point may lie on one; others beside it meet the query."""
    found = ask(query(tmp_path, old(1, 1, *asserts)), stored(HAT, tmp_path / "hat.onnx"))
    assert found.answer is VnnlibStatus.SAT


def test_numbers_of_witnesses() -> None:
    assert number(Fraction(1, 8)) == "0.125"
    assert number(Fraction(3)) == "3.0"
    assert number(Fraction(1, 3)) == "0.33333333333333333"
    assert Fraction(number(Fraction(float(np.float32(0.1))))) == Fraction(float(np.float32(0.1)))


def test_networks_have_to_fit(tmp_path: Path) -> None:
    stored(HAT, tmp_path / "hat.onnx")
    onnx.save(network_model(random_network(np.random.default_rng(0), (2, 3, 1)), {}), tmp_path / "two.onnx")
    asked = query(tmp_path, twin(1, 1, "(>= Y_f[0] 0.75)", "(== X_f[0] X_g[0])"))
    first, second = networks_of(asked, {"f": tmp_path / "hat.onnx"})
    assert first is second
    networks_of(asked, {"f": tmp_path / "hat.onnx", "g": tmp_path / "hat.onnx"})
    for files, says in (
        ({}, "--network f=FILE"),
        ({"f": tmp_path / "two.onnx"}, "declares 1 inputs"),
        ({"f": tmp_path / "hat.onnx", "h": tmp_path / "hat.onnx"}, "declares no network h"),
        ({"f": tmp_path / "hat.onnx", "g": tmp_path / "two.onnx"}, "equals f"),
    ):
        with pytest.raises(QueryError, match=says):
            networks_of(asked, files)


def test_floating_point_types_need_consent(tmp_path: Path) -> None:
    asked = query(tmp_path, twin(1, 1, "(>= Y_f[0] 0.75)").replace("real", "float32"))
    with pytest.raises(VnnlibUnsupported, match="--as-real"):
        check_types(asked, as_real=False)
    check_types(asked, as_real=True)


def test_more_constraints_than_a_maximum_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their maximum would be dense layers: a million would fill any memory."""
    asked = query(tmp_path, old(1, 1, *[f"(>= Y_0 -{k}.5)" for k in range(20)]))
    monkeypatch.setattr(problems, "MAX_LEFT", 20)
    assert decide(asked, [HAT], budget=Budget(seconds=20), method="bnb").answer is VnnlibStatus.SAT
    monkeypatch.setattr(problems, "MAX_LEFT", 19)
    with pytest.raises(VnnlibUnsupported, match="20 constraints have to hold together"):
        decide(asked, [HAT], budget=Budget(seconds=20), method="bnb")
