"""A VNN-LIB query as cases: boxes of free inputs with a conjunction of linear constraints each; it is sat if some case is.

    asserted formulas  ->  conjunctions of atoms (disjunctive normal form, within limits)
    one input only     ->  a bound
    x = y + constant   ->  y is no input of its own any more (inputs of different networks: the twins of `equal-to` queries)
    everything else    ->  a remaining constraint, on outputs or on several inputs

All over exact rationals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from encoders.vnnlib.reader import Atom, Formula, Variable, VnnlibQuery, VnnlibUnsupported

MAX_CASES = 10_000
MAX_ATOMS = 2_000_000
"""The most comparisons in all conjunctions that one assertion becomes."""
MAX_STEPS = 100_000_000
"""Comparisons and inputs, each counted in every case."""
Bounds = tuple[Fraction, Fraction]
Place = tuple[int, int]
"""The place of an input: its network and its position there."""


@dataclass(frozen=True, kw_only=True)
class Conjunction:
    """Free inputs u_0 ..., each in [lower, upper]; input (network j, i) is u[own] + shift; and the remaining constraints."""

    bounds: tuple[Bounds, ...]
    place: dict[Place, tuple[int, Fraction]]
    left: tuple[Atom, ...]

    @property
    def lower(self) -> list[Fraction]:
        return [low for low, _ in self.bounds]

    @property
    def upper(self) -> list[Fraction]:
        return [high for _, high in self.bounds]


def cases(query: VnnlibQuery) -> Iterator[Conjunction]:
    """Yield the cases of a query that are not obviously empty. Raises VnnlibUnsupported for inputs without bounds, for more than
    MAX_CASES conjunctions, and if listing them would take too long."""
    fixed: list[Atom] = []
    choices: list[list[list[Atom]]] = []
    for formula in query.asserted:
        normal = _normal(formula, query)
        if len(normal) == 1:
            fixed += normal[0]
        else:
            choices.append(normal)
    count = _product(choices)
    _check_count(query, count, 0)
    if count * (len(fixed) + sum(network.input.size for network in query.networks)) > MAX_STEPS:
        message = f"{count:,} cases of {len(fixed):,} comparisons and more would take hours to list"
        raise VnnlibUnsupported(query.path, None, f"{message}; ask in several files")
    for chosen in product(*choices):
        case = _case(query, [*fixed, *(atom for part in chosen for atom in part)])
        if case is not None:
            yield case


def meets(formula: Formula, values: dict[Variable, Fraction]) -> bool:
    """Return True if an assignment meets a formula, exactly."""
    if formula.atom is None:
        return (all if formula.kind == "and" else any)(meets(part, values) for part in formula.parts)
    atom = formula.atom
    value = sum((factor * values[variable] for variable, factor in atom.terms), atom.constant)
    return {"le": value <= 0, "lt": value < 0, "eq": value == 0}[atom.sign]


def _normal(formula: Formula, query: VnnlibQuery) -> list[list[Atom]]:
    """Return conjunctions of atoms, one of which must hold."""
    if formula.atom is not None:
        return [[formula.atom]]
    parts = [_normal(part, query) for part in formula.parts]
    if formula.kind == "or":
        _check_count(query, sum(len(part) for part in parts), 0)
        return [conjunction for part in parts for conjunction in part]
    count = _product(parts)
    _check_count(query, count, count * sum(max(map(len, part)) for part in parts))
    return [[atom for part in chosen for atom in part] for chosen in product(*parts)]


def _product(parts: Sequence[Sequence[object]]) -> int:
    """Return the number of combinations, at most MAX_CASES + 1: a product of a million twos would take too long."""
    count = 1
    for part in parts:
        count = min(count * len(part), MAX_CASES + 1)
    return count


def _check_count(query: VnnlibQuery, count: int, atoms: int) -> None:
    if count > MAX_CASES or atoms > MAX_ATOMS:
        message = f"more than {MAX_CASES:,} combinations" if count > MAX_CASES else f"more than {MAX_ATOMS:,} comparisons"
        raise VnnlibUnsupported(query.path, None, f"its disjunctions have {message}; ask in several files")


def _case(query: VnnlibQuery, atoms: Sequence[Atom]) -> Conjunction | None:
    """Return the case of a conjunction; None if its bounds are empty."""
    groups = _Groups([(j, i) for j, network in enumerate(query.networks) for i in range(network.input.size)])
    left: list[Atom] = []
    bounds: list[Atom] = []
    for atom in atoms:
        if not atom.terms:
            if not meets(Formula(kind="atom", atom=atom), {}):
                return None
        elif len(atom.terms) == 1 and atom.terms[0][0].side == "input":
            bounds.append(atom)
        elif not groups.joined(atom):
            left.append(atom)
    lower: dict[Place, Fraction] = {}
    upper: dict[Place, Fraction] = {}
    for atom in bounds:
        ((variable, factor),) = atom.terms
        root, offset = groups.find((variable.network, variable.index))
        end = _quotient(-atom.constant, factor)
        if offset:
            end -= offset
        if (atom.sign == "eq" or factor > 0) and (root not in upper or end < upper[root]):
            upper[root] = end
        if (atom.sign == "eq" or factor < 0) and (root not in lower or end > lower[root]):
            lower[root] = end
    roots = sorted({groups.find(place)[0] for place in groups.parent})
    for root in roots:
        if root not in lower or root not in upper:
            side = "lower" if root not in lower else "upper"
            raise VnnlibUnsupported(query.path, None, f"{_named(query, root)} has no {side} bound: only boxes are decided here")
        if lower[root] is not upper[root] and lower[root] > upper[root]:
            return None
    number = {root: k for k, root in enumerate(roots)}
    place = {p: (number[root], offset) for p in groups.parent for root, offset in [groups.find(p)]}
    return Conjunction(bounds=tuple((lower[root], upper[root]) for root in roots), place=place, left=tuple(left))


def _quotient(value: Fraction, factor: Fraction) -> Fraction:
    """Return value / factor, fast for the most frequent factors 1 and -1."""
    return value if factor == 1 else -value if factor == -1 else value / factor


def _named(query: VnnlibQuery, place: Place) -> str:
    tensor = query.networks[place[0]].input
    if query.version == "1.0":
        return f"X_{place[1]}"
    indices, rest = [], place[1]
    for size in reversed(tensor.shape):
        rest, index = divmod(rest, size)
        indices.append(str(index))
    return f"{tensor.name}[{','.join(reversed(indices))}]"


class _Groups:
    """Inputs that are equal up to constants: each group has a root, and no two inputs of one network."""

    def __init__(self, places: Sequence[Place]) -> None:
        zero = Fraction(0)
        self.parent: dict[Place, tuple[Place, Fraction]] = {place: (place, zero) for place in places}
        self.members: dict[Place, list[Place]] = {place: [place] for place in places}

    def find(self, place: Place) -> tuple[Place, Fraction]:
        """Return the root and offset: place = root + offset."""
        return self.parent[place]

    def joined(self, atom: Atom) -> bool:
        """Join the groups of x and y if the atom is x = y + constant and no group gets two inputs of a network; else return
        False."""
        if atom.sign != "eq" or len(atom.terms) != 2 or any(variable.side == "output" for variable, _ in atom.terms):
            return False
        (x, a), (y, b) = atom.terms
        if a != -b:
            return False
        (first, shift), (second, shift2) = self.find((x.network, x.index)), self.find((y.network, y.index))
        networks = [place[0] for root in (first, second) for place in self.members[root]]
        if first == second or len(set(networks)) < len(networks):
            return False
        offset = shift - shift2 if shift or shift2 else shift
        if atom.constant:
            offset += atom.constant / a
        if second < first:  # the earlier network keeps the inputs
            self._join(second, first, -offset)
        else:
            self._join(first, second, offset)
        return True

    def _join(self, root: Place, other: Place, offset: Fraction) -> None:
        """other = root + offset."""
        for place in self.members.pop(other):
            current = self.parent[place][1]
            self.parent[place] = (root, current + offset if current and offset else current or offset)
            self.members[root].append(place)
