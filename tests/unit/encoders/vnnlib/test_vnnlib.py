"""VNN-LIB text: what is written is exact and read again, what is read is exact, and everything else is refused with its line."""

import contextlib
import gzip
import random
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoders.vnnlib import cases as vnnlib_cases
from encoders.vnnlib import reader as vnnlib_text
from encoders.vnnlib.cases import cases, meets
from encoders.vnnlib.reader import Variable, VnnlibError, VnnlibQuery, VnnlibUnsupported, read_vnnlib
from encoders.vnnlib.scalar_network import scalar_network
from encoders.vnnlib.writer import TwinQuery, decimal, version_1, version_2
from tests.brute_force import fractions
from tests.builders import random_network

TWIN = TwinQuery(
    lower=np.array([0.1, 1.0, np.float32(1 / 3)], dtype=np.float64),
    upper=np.array([0.3, 1.0, 0.5], dtype=np.float64),
    own=np.array([1]),
    own_value=np.array([0.0]),
    shift=np.array([2]),
    shift_value=np.array([-2.0]),
    margin=np.array([-1.0, 1.0]),
    rows=np.array([[1.0, 0.0], [0.0, -1.0], [1.0, -0.1]]),
    constants=np.array([0.0, 1e-30, -5.5]),
    closed=np.array([False, True, False]),
)
NEW = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2]) (declare-output Y real [1]))
(declare-network g (equal-to f) (declare-input U real [1,2]) (declare-output V real [1]))
(assert (and (>= X[0,0] 0.0) (<= X[0,0] 1.0)))
(assert (== X[0,1] -0.5))
(assert (== U[0,0] (+ X[0,0] 2.0)))
(assert (== U[0,1] X[0,1]))
"""
OLD = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (<= X_0 1))\n(assert (>= X_0 0))\n"


PIECES = ["(", ")", "[", "]", '"', ";", "-", "assert", "<2.0>", "X", "9", "\x00", "é", "[0,0]", "or "]
RELATIONS = [
    ("(== U[0,0] (+ X[0,0] 2.0))", 2),
    ("(== (- X[0,0] 2.0) U[0,0])", -2),
    ("(== (* 3.0 X[0,0]) (+ 1.5 (* 3.0 U[0,0])))", -0.5),
]


def read(folder: Path, text: str) -> VnnlibQuery:
    path = folder / "q.vnnlib"
    path.write_text(text, encoding="utf-8")
    return read_vnnlib(path)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_are_the_very_number(value: float) -> None:
    text = decimal(value)
    assert Fraction(text) == Fraction(value)
    assert "." in text
    assert "e" not in text


def test_what_is_written_for_two_networks_is_read_again(tmp_path: Path) -> None:
    query = read(tmp_path, version_2(TWIN, ["a comment; with a semicolon", "and a word beyond ascii: Süd"]))
    (case,) = cases(query)
    assert [one.equal_to for one in query.networks] == [None, "f"]
    k, none = case.place[1, 0]
    assert (case.place[0, 0], none) == ((k, 0), 0)
    assert case.bounds[k] == (Fraction(0.1), Fraction(0.3))
    assert case.bounds[case.place[1, 1][0]] == (0, 0)
    assert case.place[1, 2] == (case.place[0, 2][0], -2)
    y = [Variable(j, "output", i) for j in range(2) for i in range(2)]
    assert [(dict(atom.terms), atom.constant, atom.sign) for atom in case.left] == [
        ({y[0]: 1, y[1]: -1}, 0, "lt"),
        ({y[2]: -1, y[3]: 1}, Fraction(1e-30), "le"),
        ({y[0]: 1, y[1]: -1, y[2]: -Fraction(0.1), y[3]: Fraction(0.1)}, Fraction(-5.5), "lt"),
    ]


def test_what_is_written_for_the_product_is_read_again(tmp_path: Path) -> None:
    query = read(tmp_path, version_1(TWIN, [(0, True, 0.0), (2, False, 5.5)], 3, []))
    (case,) = cases(query)
    expected = [(0.1, 0.3), (1, 1), (float(np.float32(1 / 3)), 0.5), (0, 0), (-2, -2)]
    assert [case.bounds[case.place[0, i][0]] for i in range(5)] == [(Fraction(a), Fraction(b)) for a, b in expected]
    assert [(dict(atom.terms), atom.constant, atom.sign) for atom in case.left] == [
        ({Variable(0, "output", 0): -1}, 0, "le"),
        ({Variable(0, "output", 2): 1}, Fraction(-5.5), "le"),
    ]


def test_the_reference_parser_reads_what_is_written() -> None:
    vnnlib = pytest.importorskip("vnnlib", reason="pip install vnnlib")
    query = vnnlib.parse_query_string(version_2(TWIN, ["a comment"]))
    assert [(one.name, one.equal_to) for one in query.networks] == [("f", ""), ("g", "f")]
    text = " ".join(str(assertion.expr) for assertion in query.assertions)
    for number in ("0.1000000000000000055511151231257827021181583404541015625", decimal(1e-30), "-2.0"):
        assert number in text


@given(data=st.data())
def test_comparisons_are_the_very_half_planes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Random sums, differences, products and signs of two variables and decimals, read and computed with fractions alone."""
    def term(depth: int) -> tuple[str, tuple[Fraction, Fraction, Fraction]]:
        """Text, and the factors of both variables and the constant."""
        kind = data.draw(st.sampled_from(["number", "X[0,0]", "X[0,1]", *(["+", "-", "*", "minus"] if depth else [])]))
        if kind == "number":
            number = data.draw(st.sampled_from(["0", "-7", "0.1", "12345678901234567890.125", ".5e-30", "+3e2", "5."]))
            return number, (Fraction(0), Fraction(0), Fraction(number))
        if kind.startswith("X"):
            return kind, (Fraction(kind == "X[0,0]"), Fraction(kind == "X[0,1]"), Fraction(0))
        text, (first, second, constant) = term(depth - 1)
        if kind in ("*", "minus"):
            factor = data.draw(st.sampled_from(["0", "1.0", "-2.5", "1e-3"])) if kind == "*" else "-1"
            f = Fraction(factor)
            return f"(* {factor} {text})" if kind == "*" else f"(- {text})", (f * first, f * second, f * constant)
        other, sign = term(depth - 1), 1 if kind == "+" else -1
        a, b, c = other[1]
        return f"({kind} {text} {other[0]})", (first + sign * a, second + sign * b, constant + sign * c)

    left, right = term(2), term(2)
    relation = data.draw(st.sampled_from(["<=", "<", ">=", ">", "==", "!="]))
    query = read(tmp_path_factory.mktemp("q"), NEW + f"; about\n(assert\n ({relation} {left[0]}\n {right[0]}))\n")
    first, second, constant = ((a - b) * (-1 if relation in (">=", ">") else 1) for a, b in zip(left[1], right[1], strict=True))
    found = query.asserted[-1]
    atom = (found.parts[0] if relation == "!=" else found).atom
    assert atom is not None
    assert dict(atom.terms) == {Variable(0, "input", k): value for k, value in enumerate((first, second)) if value}
    assert (atom.constant, atom.line) == (constant, 1 + NEW.count("\n") + 2)
    assert atom.sign == {"<=": "le", ">=": "le", "==": "eq"}.get(relation, "lt")
    if relation == "!=":
        other_side = found.parts[1].atom
        assert other_side is not None
        assert dict(other_side.terms) == {variable: -value for variable, value in atom.terms}
        assert other_side.constant == -constant


@pytest.mark.parametrize("text", [NEW, NEW + "(assert (or (and (> Y[0] 0.0) (< V[0] 0.0)) (<= (- Y[0] V[0] (* 2.0 Y[0])) -1.5)))"])
def test_our_reader_and_the_reference_agree_on_the_constraints(text: str, tmp_path: Path) -> None:
    vnnlib = pytest.importorskip("vnnlib", reason="pip install vnnlib")
    ours, theirs = read(tmp_path, text), vnnlib.parse_query_string(text)
    places = {"X": (0, "input"), "Y": (0, "output"), "U": (1, "input"), "V": (1, "output")}

    def value(expression, values) -> Fraction:
        kind = type(expression).__name__
        match kind:
            case "Var":
                network, side = places[expression.name]
                return values[Variable(network, side, expression.indices[-1])]
            case "Float" | "Int" | "Literal":
                return Fraction(expression.lexeme if hasattr(expression, "lexeme") else str(expression.value))
            case "Plus":
                return sum((value(one, values) for one in expression.args), Fraction(0))
            case "Minus":
                return value(expression.head, values) - sum((value(one, values) for one in expression.rest), Fraction(0))
            case "Multiply":
                first, second = (value(one, values) for one in expression.args)
                return first * second
        raise AssertionError(kind)

    def holds(expression, values) -> bool:
        kind = type(expression).__name__
        if kind in ("And", "Or"):
            return (all if kind == "And" else any)(holds(one, values) for one in expression.args)
        left, right = value(expression.lhs, values), value(expression.rhs, values)
        return {
            "GreaterThan": left > right, "LessThan": left < right, "GreaterEqual": left >= right, "LessEqual": left <= right,
            "Equal": left == right, "NotEqual": left != right,
        }[kind]

    rng = random.Random(0)
    seen = set()
    for _ in range(300):
        values = {
            Variable(j, side, i): Fraction(rng.choice([-1, 0, 1, 2, 3]), rng.choice([1, 2]))
            for j in range(2) for side, size in (("input", 2), ("output", 1)) for i in range(size)
        }
        for formula, assertion in zip(ours.asserted, theirs.assertions, strict=True):
            expected = holds(assertion.expr, values)
            assert meets(formula, values) == expected
            seen.add(expected)
    assert seen == {True, False}


def test_disjunctions_become_cases_and_empty_ones_vanish(tmp_path: Path) -> None:
    text = OLD + "(assert (or (and (<= X_0 0.5) (<= Y_0 1e-1)) (>= X_0 2.0) (= Y_0 .5)))\n(assert (or (<= Y_0 3) (>= Y_0 4)))"
    found = list(cases(read(tmp_path, text)))
    assert len(found) == 4  # of 6: X_0 >= 2 is outside its bounds
    assert found[0].bounds == ((0, Fraction(1, 2)),)
    assert found[0].left[0].constant == Fraction(-1, 10)


def test_a_compressed_query_is_read(tmp_path: Path) -> None:
    (tmp_path / "q.vnnlib.gz").write_bytes(gzip.compress(OLD.encode()))
    assert read_vnnlib(tmp_path / "q.vnnlib.gz").version == "1.0"
    (tmp_path / "no.vnnlib.gz").write_bytes(b"no gzip at all")
    with pytest.raises(VnnlibError, match=r"no\.vnnlib\.gz"):
        read_vnnlib(tmp_path / "no.vnnlib.gz")


@pytest.mark.parametrize(("text", "line", "says"), [
    ("", None, "declares no X_0"),
    ("(assert (<= X_0 1)", 1, "never closed"),
    (OLD + ")", 5, "outside parentheses"),
    (OLD + "word", 5, "outside parentheses"),
    (OLD + '(assert "never ends', 5, "stray"),
    (OLD + "(assert (<= X_1 0))", 5, "'X_1' is neither"),
    (OLD + "(assert (<= X_0))", 5, "compares two"),
    (OLD + "(assert X_0)", 5, "no formula"),
    (OLD + "(assert (and))", 5, "joins nothing"),
    (OLD + "(assert (not (<= X_0 1)))", 5, "not is not read"),
    (OLD + "(assert (<= (* X_0 Y_0) 1))", 5, "not linear"),
    (OLD + "(assert (<= X_0 1e999999999))", 5, "not read here"),
    (OLD + "(assert (<= X_0 \u0661))", 5, "is neither"),  # a digit, but none of VNN-LIB's
    (OLD + "(assert (<= X_\u0660 1))", 5, "is neither"),
    (OLD + f"(assert (<= X_0 0.{'1' * 3000}))", 5, "not read here"),
    (OLD + f"(assert (<= (* {'1e300 ' * 90} X_0) 1))", 5, "digits"),
    (OLD + "(declare-fun X_1 () Int)", 5, "Real"),
    (OLD + "(check-sat)", 5, "check-sat"),
    ("(declare-const X_0 Real)(declare-const X_2 Real)(declare-const Y_0 Real)(assert (<= X_0 1))", None, "X_1 is not"),
    ("(vnnlib-version <3.0>)", 1, "<3.0>"),
    (NEW.replace("(equal-to f)", "(equal-to h)"), 3, "not declared"),
    (NEW.replace("real [1,2]", "int64 [1,2]", 1), 2, "int64"),
    (NEW.replace("real [1,2]", "real [1,99999999]", 1), 2, "whole numbers"),
    (NEW.replace("(declare-input U", '(declare-hidden H real [1] "h") (declare-input U'), 3, "hidden"),
    (NEW.replace("(declare-input U", "(declare-input W real [1]) (declare-input U"), 3, "second input"),
    (NEW.replace("U real", "X real"), 3, "taken"),
    (NEW + "(assert (<= X[0,2] 1.0))", 8, "outside its shape"),
    (NEW + "(assert (<= X[0] 1.0))", 8, "2 dimensions"),
    (NEW + "(assert (<= X_0 1.0))", 8, "neither"),
    (NEW + "(declare-network h (declare-input A real [1]) (declare-output B real [1]))", 8, "before the first assert"),
])
def test_what_is_not_read_is_refused_with_its_line(text: str, line: int | None, says: str, tmp_path: Path) -> None:
    with pytest.raises(VnnlibError, match=says) as refused:
        read(tmp_path, text)
    assert (f"line {line}:" in str(refused.value)) == (line is not None)


def test_nesting_without_end_neither_crashes_nor_hangs(tmp_path: Path) -> None:
    for text in ("(" * 1_000_000, OLD + "(assert " + "(and " * 200_000, OLD + "(assert (<= " + "(- " * 99_000 + "X_0"):
        with pytest.raises(VnnlibError, match="nested more than"):
            read(tmp_path, text)


def test_inputs_need_bounds_and_disjunctions_have_limits(tmp_path: Path) -> None:
    with pytest.raises(VnnlibUnsupported, match="X_0 has no upper bound"):
        list(cases(read(tmp_path, OLD.replace("(assert (<= X_0 1))", ""))))
    two = "(or (<= Y_0 0) (>= Y_0 1))"
    with pytest.raises(VnnlibUnsupported, match="combinations"):
        list(cases(read(tmp_path, OLD + f"(assert {two})" * 14)))
    with pytest.raises(VnnlibUnsupported, match="combinations"):
        list(cases(read(tmp_path, OLD + f"(assert (and {two * 40}))")))
    with pytest.raises(VnnlibUnsupported, match="combinations"):
        list(cases(read(tmp_path, OLD + f"(assert (or {'(and ' + two * 13 + ')'} {'(and ' + two * 13 + ')'}))")))
    with pytest.raises(VnnlibUnsupported, match="comparisons"):
        list(cases(read(tmp_path, OLD + f"(assert (and {two * 13} {'(<= Y_0 5)' * 300}))")))


@given(data=st.data())
def test_mutated_files_raise_our_own_errors_alone(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = data.draw(st.sampled_from([NEW, OLD, version_2(TWIN, ["x"])]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(st.sampled_from(PIECES))
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 3)) :]
    folder = tmp_path_factory.mktemp("q")
    with contextlib.suppress(VnnlibError):
        list(cases(read(folder, text)))


def test_inputs_of_several_networks_are_joined_whichever_way_round(tmp_path: Path) -> None:
    for relation, offset in RELATIONS:
        query = read(tmp_path, NEW.replace("(== U[0,0] (+ X[0,0] 2.0))", relation))
        (case,) = cases(query)
        assert case.place[1, 0] == (case.place[0, 0][0], Fraction(offset))
        assert not case.left


def test_more_combinations_than_have_digits(tmp_path: Path) -> None:
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)  # of 4,300, which takes seconds
    try:
        with pytest.raises(VnnlibUnsupported, match="more than 10,000 combinations"):
            list(cases(read(tmp_path, OLD + "(assert (or (<= Y_0 0) (>= Y_0 1)))" * 2_200)))
    finally:
        sys.set_int_max_str_digits(most)


def test_cases_that_would_take_hours_to_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = read(tmp_path, OLD + "(assert (or (<= Y_0 0) (>= Y_0 1)))" * 3)
    monkeypatch.setattr(vnnlib_cases, "MAX_STEPS", 8 * (2 + 1))
    assert len(list(cases(asked))) == 8
    monkeypatch.setattr(vnnlib_cases, "MAX_STEPS", 8 * (2 + 1) - 1)
    with pytest.raises(VnnlibUnsupported, match="8 cases of 2 comparisons and more"):
        list(cases(asked))


def test_more_dimensions_than_any_tensor_has(tmp_path: Path) -> None:
    with pytest.raises(VnnlibError, match="expected at most 32 whole numbers"):
        read(tmp_path, NEW.replace("[1,2]", f"[{','.join(['9999999'] * 700)}]", 1))


def test_parentheses_without_number_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert vnnlib_text.MAX_BYTES // 2 > vnnlib_text.MAX_WORDS
    words = sum(len(line.replace("(", " ( ").replace(")", " ) ").split()) for line in OLD.splitlines())
    monkeypatch.setattr(vnnlib_text, "MAX_WORDS", words + 1)
    read(tmp_path, OLD)
    monkeypatch.setattr(vnnlib_text, "MAX_WORDS", words)
    with pytest.raises(VnnlibError, match=f"has {words} words and parentheses, or more"):
        read(tmp_path, OLD)


def test_comments_without_number_are_passed_at_once(tmp_path: Path) -> None:
    with pytest.raises(VnnlibError, match="declares no X_0"):
        read(tmp_path, ";\n \t\n" * 2_000_000)
    assert len(read(tmp_path, OLD.replace("\n", " ; a (\n; b\n\n")).asserted) == 2


def test_words_as_long_as_the_file_are_not_printed_whole(tmp_path: Path) -> None:
    long = "X" * 100_000
    for text in (long, f"(assert (<= {long} 1))", f"(declare-const {long} Real)", f"({long})", f"(vnnlib-version <2.0>)({long})"):
        with pytest.raises(VnnlibError) as caught:
            read(tmp_path, text)
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(("written", "problem"), [
    ("[0 1]", "no commas"), ("[0,,1]", "no commas"), ("[,0,1]", "no commas"), ("[0,1,]", "no commas"),
    ("[0, \u0661]", "one whole number"),
    ("[0 , (+ 1) 1]", "no commas"), ("[0,(+ 1)]", "one whole number for each"), ("[0]", "one whole number"),
    ("[]", "one whole number"),
])
def test_indices_are_whole_numbers_with_commas_between_them(written: str, problem: str, tmp_path: Path) -> None:
    read(tmp_path, NEW + "(assert (<= X[0 ,1] 1.0))")
    with pytest.raises(VnnlibError, match=problem):
        read(tmp_path, NEW + f"(assert (<= X{written} 1.0))")


# The network of a conjunction is the largest of its constraints, exactly.


@pytest.mark.parametrize("count", range(1, 8))
def test_networks_of_different_depth_with_shared_and_shifted_inputs(count: int) -> None:
    rng = np.random.default_rng(count)
    first, second = random_network(rng, (3, 4, 2)), random_network(rng, (2, 3, 3, 1), slope=0.1)
    rows, constants = rng.integers(-2, 3, (count, 5)).astype(float), rng.standard_normal(count)
    own = [np.array([0, 1, 2]), np.array([1, 3])]
    shift = [np.array([-1, -1, -1]), np.array([4, -1])]
    network = scalar_network([first, second], own, shift, np.array([0, 3]), rows, constants)
    u = fractions(rng.standard_normal((30, 5)).astype(np.float32).astype(float))
    x_second = u[:, [1, 3]].copy()
    x_second[:, 0] += u[:, 4]
    values = np.concatenate([first.forward(u[:, :3]), second.forward(x_second), u[:, [0, 3]]], axis=1)
    expected = (values @ fractions(rows).T + fractions(constants)).max(axis=1)
    assert (network.forward(u)[:, 0] == expected).all()
