"""Witnesses of VNN-LIB queries: checked exactly against the whole file, replayed in onnxruntime, and written as text.

A point that the engine found lies in a box rounded outwards, so it is first moved into the exact bounds. Then every assertion of
the file is evaluated over the rationals, with the networks' exact outputs: a point that violates one of them is no witness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array
from encoders.exact.rational import Rational
from encoders.network import Network
from encoders.onnx.runtime import runtime_outputs
from encoders.vnnlib.cases import Conjunction, cases, meets
from encoders.vnnlib.reader import Formula, Variable, VnnlibQuery

DIGITS = 17
"""Digits of numbers without a finite decimal: enough to identify a float64."""
TOLERANCE = Fraction(1, 10**4)
"""Up to which VNN-COMP takes an assignment that misses a constraint, relative to 1 and the number that is missed."""
LARGEST = 400
"""Exponent of a number that somebody states, at most: a fraction of larger ones fills the memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Assignment:
    """Exact inputs and outputs of every network.   agrees: whether onnxruntime's float32 outputs meet the file as well (None
    if no network has a file)."""

    inputs: tuple[npt.NDArray[np.object_], ...]
    outputs: tuple[npt.NDArray[np.object_], ...]
    agrees: bool | None


def assignment(
    query: VnnlibQuery, case: Conjunction, networks: Sequence[Network], u: Sequence[float | Fraction]
) -> Assignment | None:
    """Return the assignment at free inputs u (V,), moved into the case's bounds; None if it does not meet the file."""
    exact = [min(max(Fraction(value), low), high) for value, (low, high) in zip(u, case.bounds, strict=True)]
    inputs = []
    for j, network in enumerate(networks):
        x = np.empty(network.inputs, dtype=object)
        for i in range(network.inputs):
            k, offset = case.place[j, i]
            x[i] = exact[k] + offset
        inputs.append(x)
    outputs = _outputs(networks, inputs)
    if not _is_met(query, inputs, outputs):
        return None
    return Assignment(inputs=tuple(inputs), outputs=tuple(outputs), agrees=_replayed(query, networks, inputs))


def _outputs(networks: Sequence[Network], inputs: Sequence[npt.NDArray[np.object_]]) -> list[npt.NDArray[np.object_]]:
    return [network.forward(Rational.of(x[None, :])).to_fractions()[0] for network, x in zip(networks, inputs, strict=True)]


def _is_met(query: VnnlibQuery, inputs: Sequence[npt.NDArray[np.object_]], outputs: Sequence[npt.NDArray[np.object_]]) -> bool:
    values = {Variable(j, "input", i): value for j, x in enumerate(inputs) for i, value in enumerate(x)}
    values |= {Variable(j, "output", i): value for j, y in enumerate(outputs) for i, value in enumerate(y)}
    return all(meets(formula, values) for formula in query.asserted)


def _replayed(query: VnnlibQuery, networks: Sequence[Network], inputs: Sequence[npt.NDArray[np.object_]]) -> bool | None:
    """Return whether the file is met by the exact inputs and the runtime's outputs for inputs rounded to its type; None without
    one."""
    if any(network.source is None for network in networks):
        return None
    outputs: list[Array] = [
        runtime_outputs(network, x.astype(np.float64)[None, :])[0] for network, x in zip(networks, inputs, strict=True)
    ]
    if not all(np.isfinite(output).all() for output in outputs):
        return False
    return _is_met(query, inputs, [np.array([Fraction(float(v)) for v in output], dtype=object) for output in outputs])


def written(query: VnnlibQuery, witness: Assignment) -> str:
    """Return the assignment in the form of VNN-COMP and the standard: ((X_0 v) ... (Y_0 v)) for 1.0, tensor by tensor for 2.0."""
    if query.version == "1.0":
        pairs = [*(f"(X_{i} {number(v)})" for i, v in enumerate(witness.inputs[0]))]
        pairs += [f"(Y_{i} {number(v)})" for i, v in enumerate(witness.outputs[0])]
        return "(" + "\n".join(pairs) + ")\n"
    lines = []
    for declared, x, y in zip(query.networks, witness.inputs, witness.outputs, strict=True):
        for tensor, values in ((declared.input, x), (declared.output, y)):
            shape = ",".join(map(str, tensor.shape))
            lines += [f"{tensor.name} {tensor.type} [{shape}]", *map(number, values)]
    return "\n".join(lines) + "\n"


def number(value: Fraction) -> str:
    """Return the exact decimal if it has at most 60 digits, else the nearest with DIGITS digits."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    with localcontext() as context:
        context.prec = 60
        quotient = Decimal(value.numerator) / Decimal(value.denominator)
        if rest != 1 or Fraction(quotient) != value:
            context.prec = DIGITS
            quotient = Decimal(value.numerator) / Decimal(value.denominator)
    text = f"{quotient:f}"
    return text if "." in text else f"{text}.0"


def read_inputs(query: VnnlibQuery, text: str) -> list[npt.NDArray[np.object_]] | None:
    """Return the inputs of each network that an assignment states, in either form; None if one is missing or no number.

    Stated outputs are not trusted, and not read.
    """
    stated: dict[tuple[int, int], str] = {}
    if query.version == "1.0":
        stated = {(0, int(index)): value for index, value in re.findall(r"\(\s*X_(\d+)\s+([^\s()]+)\s*\)", text)}
    else:
        current: int | None = None
        position = 0
        names = {declared.input.name: j for j, declared in enumerate(query.networks)}
        for line in text.splitlines():
            words = line.split()
            if words and words[0][0].isalpha():
                current, position = names.get(words[0]), 0
            elif current is not None:
                stated |= {(current, position + k): word for k, word in enumerate(words)}
                position += len(words)
    try:
        return [
            np.array([_fraction(stated[j, i]) for i in range(declared.input.size)], dtype=object)
            for j, declared in enumerate(query.networks)
        ]
    except (KeyError, ArithmeticError, ValueError):
        return None


def _fraction(text: str) -> Fraction:
    value = Decimal(text)
    if not value.is_finite() or abs(value.adjusted()) > LARGEST:
        raise ValueError(f"{text[:20]} is no number of a float")
    return Fraction(value)


def confirmed(
    query: VnnlibQuery, networks: Sequence[Network], inputs: Sequence[npt.NDArray[np.object_]]
) -> tuple[Assignment | None, bool]:
    """Return the assignment of given inputs after moving them into the exact bounds (None: they do not meet the query), and whether
    the inputs as given meet it within TOLERANCE, as VNN-COMP counts. Outputs are computed exactly."""
    for case in cases(query):
        u = [Fraction(0)] * len(case.bounds)
        for (j, i), (k, offset) in case.place.items():
            u[k] = inputs[j][i] - offset
        outside = (max(low - v, v - high) / (1 + abs(v)) for v, (low, high) in zip(u, case.bounds, strict=True))
        witness = assignment(query, case, networks, u) if max(outside, default=0) <= TOLERANCE else None
        if witness is not None:
            return witness, True
    outputs = _outputs(networks, inputs)
    relaxed = replace(query, asserted=tuple(map(_relaxed, query.asserted)))
    return None, _is_met(relaxed, inputs, outputs)


def _relaxed(formula: Formula) -> Formula:
    """Return a formula that TOLERANCE makes easier to meet."""
    if formula.atom is None:
        return replace(formula, parts=tuple(map(_relaxed, formula.parts)))
    atom = formula.atom
    slack = TOLERANCE * (1 + abs(atom.constant))
    if atom.sign != "eq":
        return replace(formula, atom=replace(atom, constant=atom.constant - slack, sign="le"))
    negative = tuple((variable, -value) for variable, value in atom.terms)
    sides = ((atom.terms, atom.constant), (negative, -atom.constant))
    parts = [Formula(kind="atom", atom=replace(atom, terms=t, constant=c - slack, sign="le")) for t, c in sides]
    return Formula(kind="and", parts=tuple(parts))
