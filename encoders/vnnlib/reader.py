"""Read VNN-LIB files, 1.0 and 2.0: networks, their input and output tensors, and linear constraints over exact numbers.

2.0 follows the standard's grammar of December 2025; 1.0 is the subset of SMT-LIB that VNN-COMP uses (declare-const X_i, Y_i,
assert). Numbers are read as exact rationals. The reader refuses anything outside the fragment and names its line: hidden
variables, products of variables, integer types, `not`. The text becomes S-expressions without recursion and within limits, so that
no file can exhaust memory or the stack. The code is verifair's own, since PyPI's vnnlib reads only 2.0; tests compare the two.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple

from encoders.errors import ModelError

Side = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class Variable:
    """One element of a tensor: its network, its side, its position (row-major)."""

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


def scaled(form: Linear, factor: Fraction) -> Linear:
    return {variable: factor * value for variable, value in form[0].items() if factor}, factor * form[1]


def negated(form: Linear) -> Linear:
    return {variable: -value for variable, value in form[0].items()}, -form[1]


def added(*parts: Linear) -> Linear:
    """Return the sum, fast for the most frequent parts: one variable or one number."""
    terms: dict[Variable, Fraction] = {}
    constant = Fraction(0)
    for part, number in parts:
        for variable, value in part.items():
            terms[variable] = terms[variable] + value if variable in terms else value
        constant = constant + number if constant and number else constant or number
    if len(terms) < sum(len(part) for part, _ in parts):  # something may have cancelled
        terms = {variable: value for variable, value in terms.items() if value}
    return terms, constant


MAX_BYTES = 64 << 20
MAX_WORDS = 1 << 22
"""The most words of a file, parentheses included: a damaged file must not fill the memory with them."""
MAX_DEPTH = 100
LONGEST = 1000
"""The most characters of a message."""
_TOKEN = re.compile(r"""\n(?:\s+|;[^\n]*)*+|;[^\n]*|([()\[\],]|"[^"\n]*"|[^\s()\[\],;"]+)|(")""")
"""Lines that end, with what is empty behind them; comments; words. Other space is nothing."""


class VnnlibError(ModelError):
    """A VNN-LIB file that is damaged or not well-formed; names file, line, what was found and what is expected."""

    exit_code = 2

    def __init__(self, path: str | Path, line: int | None, problem: str) -> None:
        message = problem if len(problem) <= LONGEST else f"{problem[:LONGEST]} ..."  # a word may be as long as the file
        super().__init__(path, message if line is None else f"line {line}: {message}")


class VnnlibUnsupported(VnnlibError):
    """A query that is, or may be, well-formed, but outside the supported fragment."""

    exit_code = 3


class Word(NamedTuple):
    text: str
    line: int


class SExpression(NamedTuple):
    """head: the text of the first item, where that is a word."""

    items: tuple[Word | SExpression, ...]
    line: int
    head: str


def _content(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise VnnlibError(path, None, f"is larger than {MAX_BYTES >> 20} MiB; ask in several files")
        return raw.decode("utf-8")
    except OSError as error:
        raise VnnlibError(path, None, f"cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise VnnlibError(path, None, "is no text in UTF-8; expected a VNN-LIB query") from error


def trees(path: Path) -> list[SExpression]:
    """Return the parenthesised lists of a file, built without recursion."""
    done: list[SExpression] = []
    items: list[Word | SExpression] = []
    stack: list[tuple[list[Word | SExpression], int]] = []  # the lists around this one, and the line on which the next one begins
    line, began, text = 1, 0, _content(path)
    if len(text) >= MAX_WORDS and sum(map(bool, (m[1] for m in islice(_TOKEN.finditer(text), 2 * MAX_WORDS)))) >= MAX_WORDS:
        raise VnnlibError(path, None, f"has {MAX_WORDS:,} words and parentheses, or more; ask in several files")
    new_word = partial(tuple.__new__, Word)  # a third of what Word(...) takes, and most of the file is words
    for match in _TOKEN.finditer(text):
        word = match[1]
        if word is None:
            if match[2]:
                raise VnnlibError(path, line, "stray '\"'; strings end on the line they begin on")
            line += match[0].count("\n")
        elif word == "(":
            if len(stack) >= MAX_DEPTH:
                raise VnnlibError(path, line, f"nested more than {MAX_DEPTH} deep; flatten it")
            stack.append((items, began))
            items, began = [], line
        elif not stack:
            raise VnnlibError(path, line, f"{word!r} stands outside parentheses; expected a command such as (assert ...)")
        elif word == ")":
            first = items[0] if items else None
            tree = SExpression(tuple(items), began, first.text if isinstance(first, Word) else "")
            items, began = stack.pop()
            (items if stack else done).append(tree)
        else:
            items.append(new_word((word, line)))
    if stack:
        raise VnnlibError(path, began, "this parenthesis is never closed")
    return done


MAX_DIGITS = 2000
MAX_EXPONENT = 400
MAX_BITS = 1 << 13
"""The most bits of a numerator in a product."""
MAX_DIMENSIONS = 32
MAX_SIZE = 1_000_000
"""Elements of all declared tensors together."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE]([+-]?\d+))?", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OLD = re.compile(r"([XY])_(\d+)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,7}")
_ZERO, _ONE = Fraction(0), Fraction(1)
FLOATS = ("real", "float16", "bfloat16", "float32", "float64")


def read_vnnlib(path: str | Path) -> VnnlibQuery:
    """Read a query, also one compressed as .gz. Raises VnnlibError (what is wrong, and in which line)."""
    return _Reader(Path(path)).read(trees(Path(path)))


class _Reader:
    """The reader of a file's commands, with all declarations so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.networks: list[DeclaredNetwork] = []
        self.tensors: dict[str, tuple[int, Side, DeclaredTensor]] = {}
        self.old: dict[Side, set[int]] = {"input": set(), "output": set()}
        self.numbers: dict[str, Fraction] = {}

    def read(self, commands: list[SExpression]) -> VnnlibQuery:
        new = bool(commands) and commands[0].head == "vnnlib-version"
        if new:
            self._version(commands[0])
        asserted: list[Formula] = []
        for tree in commands[1:] if new else commands:
            match tree.head:
                case "declare-network" if new:
                    if asserted:
                        raise self._error(tree, "networks are declared before the first assert")
                    self._network(tree)
                case "declare-const" | "declare-fun" if not new:
                    self._constant(tree)
                case "assert":
                    if len(tree.items) != 2:
                        raise self._error(tree, "assert takes one formula")
                    asserted.append(self._formula(tree.items[1]))
                case other:
                    hint = "" if new else "; a query of VNN-LIB 2.0 begins with (vnnlib-version <2.0>)"
                    raise self._unsupported(tree, f"{other or 'this'} is not read here{hint}")
        if not new:
            self._old_network(commands)
        if not self.networks:
            raise VnnlibError(self.path, None, "declares no network and no variables")
        if not asserted:
            raise VnnlibError(self.path, None, "asserts nothing")
        return VnnlibQuery(path=self.path, version="2.0" if new else "1.0", networks=tuple(self.networks), asserted=tuple(asserted))

    # Declarations

    def _version(self, tree: SExpression) -> None:
        words = [item.text for item in tree.items[1:] if isinstance(item, Word)]
        if len(words) != 1 or re.fullmatch(r"<\d+\.\d+>", words[0]) is None:
            raise self._error(tree, "expected (vnnlib-version <2.0>)")
        if not words[0].startswith("<2."):
            raise self._unsupported(tree, f"version {words[0]} is not read here; 1.0 (without this line) and 2.0 are")

    def _network(self, tree: SExpression) -> None:
        if len(tree.items) < 2 or not isinstance(tree.items[1], Word):
            raise self._error(tree, "declare-network needs a name")
        name, number = self._name(tree.items[1]), len(self.networks)
        if name in [network.name for network in self.networks] or name in self.tensors:
            raise self._error(tree, f"{name} is declared twice")
        equal_to: str | None = None
        declared: dict[Side, DeclaredTensor] = {}
        for part in tree.items[2:]:
            if not isinstance(part, SExpression):
                raise self._error(part, f"{part.text!r} is no declaration")
            match part.head:
                case "equal-to" | "isomorphic-to":
                    other = self._name(part.items[1]) if len(part.items) == 2 else ""
                    if other not in [network.name for network in self.networks]:
                        raise self._error(part, f"{part.head} names {other or 'nothing'}, which is not declared before")
                    equal_to = other if part.head == "equal-to" else equal_to
                case "declare-input" | "declare-output":
                    side: Side = "input" if part.head == "declare-input" else "output"
                    tensor = self._tensor(part)
                    if side in declared:
                        raise self._unsupported(part, f"a second {side} tensor is not read here: one input and one output each")
                    declared[side] = tensor
                    self.tensors[tensor.name] = (number, side, tensor)
                case "declare-hidden":
                    raise self._unsupported(part, "hidden variables are not read here, only inputs and outputs")
                case other:
                    raise self._error(part, f"{other or 'this'} is no part of declare-network")
        if len(declared) != 2:
            raise self._error(tree, f"network {name} needs a declare-input and a declare-output")
        self.networks.append(DeclaredNetwork(name=name, equal_to=equal_to, input=declared["input"], output=declared["output"]))
        self._check_size(tree)

    def _tensor(self, tree: SExpression) -> DeclaredTensor:
        words = [item.text if isinstance(item, Word) else "(" for item in tree.items[1:]]
        if len(words) < 4 or words[2] != "[" or "]" not in words:
            raise self._error(tree, f"expected ({tree.head} NAME TYPE [DIMENSIONS])")
        name, kind, end = words[0], words[1], words.index("]")
        dimensions = [word for word in words[3:end] if word != ","]
        if _NAME.fullmatch(name) is None or name in self.tensors or name in [network.name for network in self.networks]:
            raise self._error(tree, f"{name!r} is no name, or taken; every variable needs one of its own")
        if not all(map(_WHOLE.fullmatch, dimensions)) or len(dimensions) > MAX_DIMENSIONS:
            raise self._error(
                tree, f"dimensions of {name}: {' '.join(dimensions)[:200]}, expected at most {MAX_DIMENSIONS} whole numbers"
            )
        if kind.lower() not in FLOATS:
            raise self._unsupported(tree, f"{name} is of type {kind}; expected {' or '.join(FLOATS)}")
        rest = words[end + 1 :]
        if len(rest) > 1 or (rest and not rest[0].startswith('"')):
            raise self._error(tree, f"after the dimensions of {name} only the ONNX name may follow, in quotation marks")
        return DeclaredTensor(
            name=name, type=kind.lower(), shape=tuple(map(int, dimensions)), onnx=rest[0].strip('"') if rest else None
        )

    def _constant(self, tree: SExpression) -> None:
        words = [item.text for item in tree.items[1:] if isinstance(item, Word)]
        match = _OLD.fullmatch(words[0]) if words else None
        if match is None or len(words[0]) > 12:
            raise self._unsupported(tree, "expected a variable called X_<number> (an input) or Y_<number> (an output)")
        if words[1:] != ["Real"]:
            raise self._unsupported(tree, f"{words[0]} is not of type Real")
        side: Side = "input" if match[1] == "X" else "output"
        if int(match[2]) in self.old[side]:
            raise self._error(tree, f"{words[0]} is declared twice")
        self.old[side].add(int(match[2]))

    def _old_network(self, commands: list[SExpression]) -> None:
        sizes = {}
        for side, letter in (("input", "X"), ("output", "Y")):
            indices = self.old[side]  # type: ignore[index]
            if not indices:
                raise VnnlibError(self.path, None, f"declares no {letter}_0; 1.0 calls inputs X_0, X_1 ... and outputs Y_0 ...")
            if indices != set(range(len(indices))):
                missing = next(i for i in range(len(indices)) if i not in indices)
                raise VnnlibError(self.path, None, f"{letter}_{missing} is not declared, a later one is")
            sizes[side] = DeclaredTensor(name=letter, type="real", shape=(len(indices),), onnx=None)
        self.networks.append(DeclaredNetwork(name="", equal_to=None, input=sizes["input"], output=sizes["output"]))
        self._check_size(commands[0])

    def _check_size(self, tree: SExpression) -> None:
        size = sum(network.input.size + network.output.size for network in self.networks)
        if size > MAX_SIZE:
            raise self._unsupported(tree, f"{size} variables are more than {MAX_SIZE}")

    # Formulas

    def _formula(self, tree: Word | SExpression) -> Formula:
        if isinstance(tree, Word):
            raise self._error(tree, f"{tree.text!r} is no formula; expected a comparison, (and ...) or (or ...)")
        match tree.head:
            case "and" | "or":
                if len(tree.items) < 2:
                    raise self._error(tree, f"({tree.head}) joins nothing")
                parts = tuple(self._formula(part) for part in tree.items[1:])
                return Formula(kind="and" if tree.head == "and" else "or", parts=parts)
            case "<=" | "<" | ">=" | ">" | "==" | "=" | "!=":
                return self._comparison(tree)
            case other:
                raise self._unsupported(tree, f"{other or 'this'} is not read here; formulas are and, or, <=, <, >=, >, ==, !=")

    def _comparison(self, tree: SExpression) -> Formula:
        operands = self._operands(tree.items[1:], tree)
        if len(operands) != 2:
            raise self._error(tree, f"{tree.head} compares two terms, here are {len(operands)}")
        left, right = operands
        swapped = tree.head in (">=", ">")
        difference = added(right, negated(left)) if swapped else added(left, negated(right))

        def atom(sign: Literal["le", "lt", "eq"], form: Linear) -> Formula:
            return Formula(kind="atom", atom=Atom(terms=tuple(form[0].items()), constant=form[1], sign=sign, line=tree.line))

        if tree.head == "!=":
            return Formula(kind="or", parts=(atom("lt", difference), atom("lt", negated(difference))))
        return atom("eq" if tree.head in ("==", "=") else "le" if tree.head in ("<=", ">=") else "lt", difference)

    def _operands(self, items: tuple[Word | SExpression, ...], tree: SExpression) -> list[Linear]:
        """Return terms of a list: a variable of 2.0 is a name and its indices in brackets, several words in a row."""
        terms: list[Linear] = []
        texts = [item.text if isinstance(item, Word) else "(...)" for item in items]
        position = 0
        while position < len(items):
            item, text = items[position], texts[position]
            position += 1
            if isinstance(item, SExpression):
                terms.append(self._term(item))
            elif text in self.tensors:
                indices: list[str] = []
                if texts[position : position + 1] == ["["]:
                    if "]" not in texts[position:]:
                        raise self._error(item, f"the brackets after {text} are never closed")
                    end = texts.index("]", position)
                    indices = texts[position + 1 : end]
                    if any(comma != "," for comma in indices[1::2]) or (indices and len(indices) % 2 == 0):
                        raise self._error(item, f"the indices of {text} have no commas between them, or more than one")
                    position = end + 1
                terms.append(({self._element(item, indices[::2]): _ONE}, _ZERO))
            elif (number := self._number(item)) is not None:
                terms.append(({}, number))
            else:
                terms.append(({self._old_variable(item): _ONE}, _ZERO))
        if not terms:
            raise self._error(tree, f"{tree.head} has no operands")
        return terms

    def _term(self, tree: SExpression) -> Linear:
        operands = self._operands(tree.items[1:], tree)
        match tree.head:
            case "+":
                return added(*operands)
            case "-":
                first, *rest = operands
                return added(first, *map(negated, rest)) if rest else negated(first)
            case "*":
                product: Linear = ({}, Fraction(1))
                for operand in operands:
                    if product[0] and operand[0]:
                        raise self._unsupported(tree, "a product of two variables is not linear")
                    product = scaled(operand, product[1]) if not product[0] else scaled(product, operand[1])
                    if any(abs(part.numerator).bit_length() > MAX_BITS for part in (product[1], *product[0].values())):
                        raise self._unsupported(tree, "this product has too many digits")
                return product
            case other:
                raise self._unsupported(tree, f"{other or 'this'} is not read here; terms are +, -, * with one variable")

    def _number(self, word: Word) -> Fraction | None:
        """Return a word as an exact number, each computed once; None if it is no number."""
        cached = self.numbers.get(word.text)
        if cached is not None:
            return cached
        match = _NUMBER.fullmatch(word.text)
        if match is None:
            return None
        exponent = match[3] or "0"
        if len(word.text) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent)) > MAX_EXPONENT:
            raise self._unsupported(word, f"a number of {len(word.text)} characters, exponent {exponent[:8]}, is not read here")
        number = self.numbers[word.text] = Fraction(word.text)
        return number

    def _element(self, word: Word, indices: list[str]) -> Variable:
        network, side, tensor = self.tensors[word.text]
        if not all(map(_WHOLE.fullmatch, indices)) or len(indices) != len(tensor.shape):
            dimensions = f"{word.text} has {len(tensor.shape)} dimensions, one whole number for each"
            raise self._error(word, f"{word.text}[{','.join(indices)}]: {dimensions}")
        flat = 0
        for size, index in zip(tensor.shape, indices, strict=True):
            if int(index) >= size:
                raise self._error(word, f"{word.text}[{','.join(indices)}] is outside its shape {list(tensor.shape)}")
            flat = flat * size + int(index)
        return Variable(network, side, flat)

    def _old_variable(self, word: Word) -> Variable:
        match = _OLD.fullmatch(word.text) if len(word.text) <= 12 else None
        side: Side = "input" if match is not None and match[1] == "X" else "output"
        if match is None or int(match[2]) not in self.old[side]:
            raise self._error(word, f"{word.text[:40]!r} is neither a number nor a declared variable")
        return Variable(0, side, int(match[2]))

    def _name(self, item: Word | SExpression) -> str:
        if not isinstance(item, Word) or _NAME.fullmatch(item.text) is None:
            raise self._error(item, "expected a name: a letter, then letters, digits and underscores")
        return item.text

    def _error(self, item: Word | SExpression, problem: str) -> VnnlibError:
        return VnnlibError(self.path, item.line, problem)

    def _unsupported(self, item: Word | SExpression, problem: str) -> VnnlibError:
        return VnnlibUnsupported(self.path, item.line, problem)
