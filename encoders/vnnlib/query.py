"""What a VNN-LIB file asks, over exact numbers: networks, their input and output tensors, and linear constraints on them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Literal

Side = Literal["input", "output"]


@dataclass(frozen=True)
class Variable:
    """One element of a tensor: of which network, which side, its position (row-major)."""

    network: int
    side: Side
    index: int


@dataclass(frozen=True, kw_only=True)
class Atom:
    """terms . variables + constant  <= 0  ("le"),  < 0  ("lt"),  or  = 0  ("eq"). Terms are not zero."""

    terms: tuple[tuple[Variable, Fraction], ...]
    constant: Fraction
    sign: Literal["le", "lt", "eq"]
    line: int


@dataclass(frozen=True, kw_only=True)
class Formula:
    """An atom, or a conjunction ("and") or disjunction ("or") of formulas."""

    kind: Literal["atom", "and", "or"]
    atom: Atom | None = None
    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeclaredTensor:
    """name, type and shape as declared; onnx: the name of the model's tensor, where one is given."""

    name: str
    type: str
    shape: tuple[int, ...]
    onnx: str | None

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class DeclaredNetwork:
    """A network: its name, the network that it equals (None: it has a model of its own), and its two tensors."""

    name: str
    equal_to: str | None
    input: DeclaredTensor
    output: DeclaredTensor


@dataclass(frozen=True, kw_only=True)
class VnnlibQuery:
    """A file: is there an assignment that meets all of `asserted`?  Version 1.0 declares one network, called "" here."""

    path: Path
    version: Literal["1.0", "2.0"]
    networks: tuple[DeclaredNetwork, ...]
    asserted: tuple[Formula, ...]


Linear = tuple[dict[Variable, Fraction], Fraction]
"""Terms and a constant."""


def scaled(one: Linear, factor: Fraction) -> Linear:
    return {variable: factor * value for variable, value in one[0].items() if factor}, factor * one[1]


def added(*parts: Linear) -> Linear:
    terms: dict[Variable, Fraction] = {}
    for part, _ in parts:
        for variable, value in part.items():
            terms[variable] = terms.get(variable, Fraction(0)) + value
    return {variable: value for variable, value in terms.items() if value}, sum((constant for _, constant in parts), Fraction(0))
