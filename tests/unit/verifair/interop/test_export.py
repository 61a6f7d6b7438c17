"""Exported queries mean what verifair's own do: every pair against the query is in some file, and what else is in one is said."""

import csv
import json
from ast import literal_eval
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from encoders.evaluate import exact_goals
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from encoders.probability.logistic import exceeds
from encoders.vnnlib.cases import meets
from encoders.vnnlib.reader import Variable, VnnlibQuery, read_vnnlib
from solvers.outcome import Budget
from tests.brute_force import fractions
from tests.builders import categorical, integer, network_of, one_hot, random_network, real, schema_of
from verifair.checker.certificates.statement import Signs
from verifair.engine.queries import IndividualFairness
from verifair.engine.verdict import Status
from verifair.engine.verify import verify
from verifair.errors import QueryError
from verifair.interop.decide import VnnlibStatus, decide, networks_of
from verifair.interop.export import Export, against, export, pieces_of
from verifair.schema.schema import Schema

FEATURES = (categorical("sex", "a", "b"), integer("age", 0, 3), real("size", -1.0, 1.0, scale="minmax"), one_hot("job", *"pqr"))


def schema(outputs: int = 1, more: str = "") -> Schema:
    described = schema_of(*FEATURES, positive="logit > 0" if outputs == 1 else "class = 1")
    return Schema.loads(described.dumps() + more)


def query(seed: int = 0, outputs: int = 1, more: str = "", **fields: object) -> IndividualFairness:
    network = random_network(np.random.default_rng(seed), (6, 5, 4, outputs))
    asked = {"protected": ["sex"], "box": {"age": 1, "job": "q"}, **fields}
    return IndividualFairness(model=network, schema=schema(outputs, more), **asked)  # type: ignore[arg-type]


def files(written: Export, version: str) -> list[tuple[VnnlibQuery, dict[str, Path]]]:
    """The queries of instances.csv with their networks."""
    folder = written.folder / version
    found = []
    for networks, name, _ in csv.reader((folder / "instances.csv").read_text().splitlines()):
        models = {"": folder / networks} if version == "1.0" else {n: folder / f for n, f in literal_eval(networks)}
        found.append((read_vnnlib(folder / name), models))
    return found


def answer(asked: VnnlibQuery, models: dict[str, Path]) -> VnnlibStatus:
    return decide(asked, networks_of(asked, models), budget=Budget(seconds=10)).answer


def holds(asked: VnnlibQuery, networks: tuple[Network, ...], inputs: list[np.ndarray]) -> bool:
    """Whether exact inputs, with the networks' exact outputs, meet a file."""
    values = {}
    for j, (network, x) in enumerate(zip(networks, inputs, strict=True)):
        y = network.forward(fractions(x)[None, :])[0]
        values |= {Variable(j, "input", i): v for i, v in enumerate(fractions(x))}
        values |= {Variable(j, "output", i): v for i, v in enumerate(y)}
    return all(meets(formula, values) for formula in asked.asserted)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_every_violation_is_in_a_file_and_no_exact_file_has_more(outputs: int, epsilon: float | None, tmp_path: Path) -> None:
    asked = query({1: 3, 2: 13}[outputs], outputs, epsilon=epsilon, box={"age": (0, 1)}, relax={})
    written = export(asked, tmp_path / "out", enumerated=["all"])
    assert len(written.files) == 2 * 2 * 3
    pieces = pieces_of(asked, enumerated=["all"], relaxed=False)
    rng = np.random.default_rng(0)
    loaded = {version: [(one, networks_of(one, models)) for one, models in files(written, version)] for version in ("1.0", "2.0")}
    hits = 0
    for _ in range(40):
        raw = np.array([[0.0, rng.integers(0, 2), rng.uniform(-1, 1), rng.integers(0, 3)]])
        met, _ = exact_goals(pieces.problem, np.zeros(1, dtype=np.int64), raw)
        x = asked.schema.encode(raw)[0]
        x_prime = asked.schema.encode(pieces.problem.batch.second(raw))[0]
        k = next(k for k, piece in enumerate(pieces.pieces) if (piece.lower <= raw[0]).all() and (raw[0] <= piece.upper).all())
        for goal in range(2):
            violated = not met[0, goal]
            hits += violated
            old, new = loaded["1.0"][k + goal], loaded["2.0"][k + goal]
            in_old = holds(*old, [np.concatenate([x, x_prime[:1]])])
            in_new = holds(*new, [x, x_prime])
            assert not violated or (in_old and in_new)
            if epsilon is None:
                assert in_new == violated
                assert in_old == violated  # no logit is exactly 0 here
    assert hits > 2


@pytest.mark.parametrize("signs", ["deployed", "strict"])
@pytest.mark.parametrize("falls", [True, False])
def test_at_a_logit_of_exactly_zero_the_old_version_is_closed_and_the_new_one_exact(
    signs: Signs, falls: bool, tmp_path: Path
) -> None:
    """At size = 0 the logits of the two people are 1 and 0, or 0 and 1: a flip, unless signs are strict, which 1.0 cannot say."""
    sex, bias = (-1.0, 2.0) if falls else (1.0, 1.0)
    edge = network_of(([[sex, 0.0, -2.0, 0.0, 0.0, 0.0]], [bias]))
    asked = replace(query(box={"age": 1, "job": "q", "size": 0.0}), model=edge, signs=signs)  # minmax: size 0 is 0.5
    flips = signs == "deployed"
    assert verify(asked).status is (Status.VIOLATED if flips else Status.PROVED)
    written = export(asked, tmp_path / "out")
    answers = {version: [answer(*one) for one in files(written, version)] for version in ("1.0", "2.0")}
    touched, never = VnnlibStatus.SAT, VnnlibStatus.UNSAT
    fall, rise = (touched, never) if falls else (never, touched)
    assert answers == {"1.0": [fall, rise], "2.0": [fall, rise] if flips else [never, never]}
    assert any("exactly 0" in line for line in written.relaxed_1)
    assert written.relaxed_2 == ()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fields", [
    {},
    {"epsilon": 0.05},
    {"relax": {"age": 1}},
    {"differ": "any", "protected": ["sex", "age"], "box": {"job": "p", "age": (1, 2)}},
])
def test_our_own_answers_to_the_files_agree_with_the_verdict(seed: int, fields: dict[str, object], tmp_path: Path) -> None:
    asked = query(seed, 1 + seed % 2, **fields)
    written = export(asked, tmp_path / "out", enumerated=["all"])
    verdict = verify(asked, budget=Budget(seconds=20))
    for version in ("1.0", "2.0"):
        answers = {answer(*one) for one in files(written, version)}
        if verdict.status is Status.PROVED and asked.epsilon is None:
            assert answers == {VnnlibStatus.UNSAT}
        if verdict.status is Status.VIOLATED:
            assert VnnlibStatus.SAT in answers
        if answers == {VnnlibStatus.UNSAT}:
            assert verdict.status is Status.PROVED


def test_nothing_is_relaxed_silently(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"age \(4 values\), job \(3 values\).*--enumerate age.*--relaxed"):
        export(query(box={}), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    some = export(query(box={}), tmp_path / "some", enumerated=["age"], relaxed=True)
    assert len(some.files) == 8
    for version, loose in (("1.0", some.relaxed_1), ("2.0", some.relaxed_2)):
        assert any("intervals" in line and "job" in line and "age" not in line for line in loose)
        text = (some.folder / version / "vnnlib" / some.files[0]).read_text()
        assert all(f";   {line}\n" in text for line in loose)
    assert "sum up to 1" in " ".join(some.relaxed_1)
    assert "(assert (== (+ X_f[0,3] X_f[0,4] X_f[0,5]) 1.0))" in (some.folder / "2.0" / "vnnlib" / some.files[0]).read_text()
    exact = export(query(box={"size": 0.25}), tmp_path / "exact", enumerated=["all"])
    assert exact.relaxed_2 == ()
    assert "; exact: a sat is a counterexample\n" in (exact.folder / "2.0" / "vnnlib" / exact.files[0]).read_text()


def test_constraints_drop_the_pieces_that_cannot_be_and_are_said(tmp_path: Path) -> None:
    more = '\n[[constraint]]\nname = "no"\nnever = { job = "r", age = 3 }\n'
    written = export(query(more=more, box={}), tmp_path / "out", enumerated=["all"])
    assert len(written.files) == 2 * (4 * 3 - 1)
    assert any("constraints" in line for line in written.relaxed_2)


def test_lines_stand_for_the_curve_on_the_safe_side() -> None:
    asked = query(epsilon=0.2)
    rng = np.random.default_rng(1)
    for goal in range(2):
        condition = against(asked, goal)
        rows, constants = condition.rows, condition.constants
        assert not condition.closed.any()
        assert (rows.astype(np.float32) == rows).all()
        outside = 0
        for a, b in rng.normal(scale=3, size=(400, 2)):
            first, second = (a, b) if goal == 0 else (b, a)
            above = (rows @ (a, b) > constants).all()
            over = exceeds(Fraction(first), Fraction(second), 0.2)
            assert above or not over
            outside += above and not over
        assert outside < 4


def test_the_manifest_says_what_each_file_asks(tmp_path: Path) -> None:
    written = export(query(relax={"age": 1}, box={"age": (1, 2), "job": "q"}), tmp_path / "out", enumerated=["all"])
    manifest = json.loads((written.folder / "export.json").read_text())
    assert [one["file"] for one in manifest["queries"]] == list(written.files)
    one = manifest["queries"][0]
    assert one["direction"] == "fall"
    assert one["second"] == {"sex": 1.0}
    assert one["lower"][1] == one["upper"][1]
    assert {piece["shift"]["age"] for piece in manifest["queries"]} == {-1.0, 0.0, 1.0}


def test_the_same_export_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        export(query(), tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 2 * 4 + 1
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


def test_exported_networks_hold_the_same_function(tmp_path: Path) -> None:
    asked = query(outputs=2)
    written = export(asked, tmp_path / "out")
    again = read_onnx(written.folder / "2.0" / "onnx" / "network.onnx")
    x = fractions(np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32).astype(float))
    assert (again.forward(x) == asked.model.forward(x)).all()


def test_too_many_queries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"24 queries.*--limit"):
        export(query(box={}), tmp_path / "out", enumerated=["all"], limit=23)
    with pytest.raises(QueryError, match="real-valued"):
        export(query(box={}), tmp_path / "out", enumerated=["size"])
