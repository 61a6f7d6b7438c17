"""VNN-LIB queries, damaged, and proofs of theirs, forged; answers are held against points, by a reading of the text of its own."""

import copy
import gzip
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from encoders.vnnlib.cases import cases
from encoders.vnnlib.reader import VnnlibQuery, read_vnnlib
from solvers.outcome import Budget
from tests.builders import random_network
from tests.fuzz import mutate
from tests.fuzz.certificate_target import CertificateTarget, sealed
from tests.fuzz.target import Untrue
from verifair.interop.certificate import VnnlibCertificate, file_sha256, rejections
from verifair.interop.decide import VnnlibStatus, check_types, decide, networks_of
from verifair.interop.witness import written
from verifair.training.onnx_writer import onnx_model

INPUTS, OUTPUTS = 3, 2
POINTS, LARGEST = 40, 1 << 17
"""Drawn against each unsat, but not of a query of so many bytes."""
LONGEST = 1 << 21
"""Bytes of a query: a second's reading."""


@cache
def network_file() -> Path:
    layers = random_network(np.random.default_rng(5), (INPUTS, 6, 4, OUTPUTS)).layers
    path = Path(tempfile.mkdtemp()) / "small.onnx"
    weights = [(layer.weight.astype(np.float32), layer.bias.astype(np.float32)) for layer in layers]
    path.write_bytes(onnx_model(weights, {}).SerializeToString())
    return path


def networks(query: VnnlibQuery) -> tuple[Network, ...]:
    """The same small network under every name."""
    return networks_of(query, {one.name: network_file() for one in query.networks if one.equal_to is None})


@cache
def network() -> Network:
    return read_onnx(network_file())


def outputs(inputs: list[Fraction]) -> list[Fraction]:
    return list(np.asarray(network().forward(np.array([inputs], dtype=object)))[0])


# Queries


class VnnlibTarget:
    """All that `verifair verify` does with a query, and what it answers in half a second."""

    name = "vnnlib"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        found = {name: text.encode() for name, text in QUERIES.items()}
        return {**found, "packed.vnnlib.gz": gzip.compress(found["old.vnnlib"], mtime=0)}

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        if name.endswith(".gz"):
            if rng.random() < 0.05:
                bit = rng.choice((b"(", b"()", b"(a b)", b" ", b"x", b"1"))
                return gzip.compress(bit * (1 << 22), 1, mtime=0) * rng.choice((2, 20))
            if rng.random() < 0.5:
                return mutate.bytes_mutant(rng, data)
            return gzip.compress(self.mutate(rng, "", gzip.decompress(data)), 1, mtime=0)
        if rng.random() < 0.25:
            return mutate.bytes_mutant(rng, data)
        commands = parsed(data.decode())
        try:
            for _ in range(rng.choice((1, 1, 2, 3))):
                _change(rng, commands)
        except RecursionError:
            pass  # as deep as it is
        return shown(commands).encode("utf-8", "surrogatepass")[:LONGEST]

    def read(self, path: Path) -> str:
        query = read_vnnlib(path)
        check_types(query, as_real=True)
        given = networks(query)
        found = decide(query, given, budget=Budget(seconds=0.5, nodes=100), method="bnb")
        if found.answer is VnnlibStatus.SAT:
            assert found.assignment is not None
            values = _values(query, [list(one) for one in found.assignment.inputs])
            if not _met(parsed(_text(path)), values):
                raise Untrue(f"sat, but not at {values}")
            written(query, found.assignment).encode()
        if found.answer is VnnlibStatus.UNSAT:
            commands = parsed(_text(path))
            for values in _points(query) if path.stat().st_size < LARGEST else ():
                if _met(commands, values):
                    raise Untrue(f"unsat, but met at {values}")
            assert found.certificate is not None
            proof = path.with_name("proof.json")
            found.certificate.save(proof)
            wrong = rejections(VnnlibCertificate.load(proof), query, given)
            return f"unsat, proof {'rejected' if wrong else 'accepted'}"
        return found.answer.value


def _text(path: Path) -> str:
    return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()


def _points(query: VnnlibQuery) -> Iterator[dict[str, Fraction]]:
    """Assignments within the boxes of the first cases, and anywhere near: the corners, and some drawn."""
    rng = random.Random(0)
    for number, case in enumerate(cases(query)):
        if number == 5:
            break
        for k in range(POINTS):
            u = [low + (high - low) * (k if k < 2 else Fraction(rng.randrange(65), 64)) for low, high in case.bounds]
            inputs = [[u[case.place[j, i][0]] + case.place[j, i][1] for i in range(INPUTS)] for j in range(len(query.networks))]
            yield _values(query, inputs)
    for _ in range(POINTS):
        x = [Fraction(rng.randrange(-8, 17), 8) for _ in range(INPUTS)]
        yield _values(query, [x for _ in query.networks])


def _values(query: VnnlibQuery, inputs: list[list[Fraction]]) -> dict[str, Fraction]:
    """Every variable as the text has it: X_3, or X[0,3]."""
    found = {}
    for declared, x in zip(query.networks, inputs, strict=True):
        for tensor, numbers in ((declared.input, x), (declared.output, outputs(x))):
            for k, value in enumerate(numbers):
                place = ",".join(map(str, np.unravel_index(k, tensor.shape))) if tensor.shape else ""
                name = f"{tensor.name}_{k}" if query.version == "1.0" else f"{tensor.name}[{place}]" if place else tensor.name
                found[name] = value
    return found


def _met(commands: list[Any], values: dict[str, Fraction]) -> bool:
    """Whether all assertions hold: SMT-LIB read once more, by other code than the one under test."""
    return all(_holds(tree[1], values) for tree in commands if isinstance(tree, list) and tree[:1] == ["assert"])


def _holds(tree: Any, values: dict[str, Fraction]) -> bool:
    if tree[0] in ("and", "or"):
        return (all if tree[0] == "and" else any)(_holds(one, values) for one in tree[1:])
    left, right = _terms(tree[1:], values)
    return {
        "<=": left <= right, "<": left < right, ">=": left >= right, ">": left > right, "==": left == right, "=": left == right,
        "!=": left != right,
    }[tree[0]]


def _terms(items: list[Any], values: dict[str, Fraction]) -> list[Fraction]:
    found, k = [], 0
    while k < len(items):
        item, k = items[k], k + 1
        if isinstance(item, list):
            terms = _terms(item[1:], values)
            if item[0] == "*":
                found.append(Fraction(np.prod(np.array(terms, dtype=object))))
            else:
                found.append(sum(terms) if item[0] == "+" else terms[0] - sum(terms[1:]) if len(terms) > 1 else -terms[0])  # type: ignore[arg-type]
            continue
        if k < len(items) and items[k] == "[":
            end = items.index("]", k)
            item, k = f"{item}[{','.join(str(int(one)) for one in items[k + 1 : end] if one != ',')}]", end + 1
        elif re.fullmatch(r"[XY]_\d+", item):
            item = f"{item[0]}_{int(item[2:])}"
        found.append(values[item] if item in values else Fraction(item))
    return found


def parsed(text: str) -> list[Any]:
    """Nested lists of words; what is never closed, or was never opened, is closed or left out."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"""[()\[\],]|"[^"\n]*"|[^\s()\[\],;"]+""", re.sub(r";[^\n]*", "", text)):
        if word == "(":
            stack.append([])
            stack[-2].append(stack[-1])
        elif word == ")" and len(stack) > 1:
            stack.pop()
        elif word != ")":
            stack[-1].append(word)
    return stack[0]


def shown(commands: list[Any]) -> str:
    """Nested lists as text, built without recursion, up to LONGEST letters: many copies of what holds many are never done."""
    out, size = list[str](), 0
    todo: list[Any] = [one for command in reversed(commands) for one in ("\n", command)]
    while todo and size < LONGEST:
        one = todo.pop()
        if isinstance(one, list):
            out.append("(")
            todo += [")", *reversed(one)]
        else:
            out.append(str(one))
        size += len(out[-1]) + 1
    return " ".join(out)


WORDS = (
    "0", "1", "-1", "0.5", "1.0", "1e3", "1E-3", "-1e400", "1e-400", "1e39", "5.", ".5", "+5", "-0.0", "1/3", "NaN", "inf", "0x10",
    "1_0", "१२", "9" * 1999, "9" * 5000, "1." + "3" * 300, "1e99999999", "1e-999", "3.4028235e38", "1e38", "0.1", "1e-45", "2", "3",
    "X_0", "X_1", "X_2", "X_3", "Y_0", "Y_1", "Y_00", "X_01", "X_99999999", "X_f", "Y_f", "X_g", "f", "g", "[", "]", ",", "", "é",
    "\x00", '"a"', '"', ";", "<2.0>", "<2.9>", "<1.0>", "real", "float32", "int8", "Real", "and", "or", "not", "+", "-", "*", "/",
    "<=", "<", ">=", ">", "==", "=", "!=", "=>", "ite", "let", "assert", "declare-const", "declare-fun", "declare-network",
    "declare-input", "declare-output", "declare-hidden", "equal-to", "isomorphic-to", "vnnlib-version", "check-sat", "x" * 70_000,
    "9999999", "0000001",
)


def _change(rng: random.Random, commands: list[Any]) -> None:
    """One change of a list anywhere: words, parts and whole commands."""
    lists = [commands]
    for one in lists:
        lists += [part for part in one if isinstance(part, list)]
    place = rng.choice([one for one in lists if one] or [commands])
    k = rng.randrange(len(place)) if place else 0
    match rng.randrange(16):
        case 0 | 1 | 2 if place:
            place[k] = rng.choice(WORDS)
        case 3 | 4 if place:  # a number near
            numbers = [n for n, word in enumerate(place) if isinstance(word, str) and re.fullmatch(r"-?\d+\.?\d*", word)]
            for n in numbers[:1]:
                place[n] = rng.choice((f"-{place[n]}".replace("--", ""), f"{place[n]}5", str(float(place[n]) + rng.uniform(-1, 1))))
        case 5 if place:
            del place[k]
        case 6:
            place.insert(k, rng.choice(WORDS))
        case 7 | 8:
            place.insert(k, copy.deepcopy(rng.choice(rng.choice(lists) or ["0"])))
        case 9 if place:
            other = rng.choice(lists)
            if other:
                place[k] = copy.deepcopy(rng.choice(other))
        case 10 if place:
            place[k] = [rng.choice(WORDS), place[k]]
        case 11 if place:
            head = rng.choice(("and", "or", "+", "-", "*"))
            for _ in range(rng.choice((3, 50, 99, 150))):
                place[k] = [head, place[k]]
        case 12:  # many
            count = rng.choice((10, 14, 300, 5_000))
            bit = ["or", ["<=", "X_0", "0.5"], [">=", "X_0", rng.choice(("0.5", "0.7"))]]
            place = rng.choice((commands, place))
            place += [["assert", rng.choice((bit, ["<=", "Y_0", "0.5"], ["!=", "X_1", "0.25"], ["<=", "X_0", "1"]))]] * count
        case 13:
            place[k:k] = ["[", *[",", "9999999"] * rng.choice((1, 2, 700)), "]"]
        case 14 if place and len(place) > 1:
            rng.shuffle(place)
        case _:
            place += [["+", *["X_0", "Y_0"] * rng.choice((1, 5000))]]


# Proofs


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Queries in files, with whether there is a point that meets them."""

    path: Path
    query: VnnlibQuery
    networks: tuple[Network, ...]
    met: bool


@cache
def asked() -> dict[str, Asked]:
    """sha256 -> query: for each that is unsat, its neighbours that are met at a point."""
    folder, found = Path(tempfile.mkdtemp()), {}
    for name, text in SURE.items():
        for met, bound in ((False, "-9.5"), (True, "9.5")):
            path = folder / f"{name}-{'met' if met else 'unsat'}.vnnlib"
            path.write_text(text.replace("BOUND", bound))
            query = read_vnnlib(path)
            if met != any(_met(parsed(text.replace("BOUND", bound)), values) for values in _points(query)):
                raise AssertionError(f"{path.name} is not what it is meant to be")
            found[file_sha256(path)] = Asked(path=path, query=query, networks=networks(query), met=met)
    return found


class ProofTarget(CertificateTarget):
    """What `verifair verify --check` does with a proof, about the query whose hash it names."""

    name = "proof"

    def seeds(self, folder: Path) -> dict[str, bytes]:
        found = {}
        for one in asked().values():
            if not one.met:
                proof = decide(one.query, one.networks, budget=Budget(seconds=60), method="bnb").certificate
                assert proof is not None, one.path
                for name in (f"{one.path.stem}.json", f"{one.path.stem}.json.gz"):
                    proof.save(folder / name)
                    found[name] = (folder / name).read_bytes()
        return found

    def forged(self, rng: random.Random, content: dict[str, Any]) -> bytes:
        own = content["query_sha256"]
        content = mutate.tree_mutant(rng, content, gentle=0.7) if rng.random() < 0.7 else content
        if isinstance(content, dict) and rng.random() < 0.6:
            hashes = list(asked())
            content["query_sha256"] = hashes[hashes.index(own) + 1] if rng.random() < 0.7 else rng.choice(hashes)
        return sealed(rng, content)

    def read(self, path: Path) -> str:
        proof = VnnlibCertificate.load(path)
        one = asked().get(proof.query_sha256) or next(iter(asked().values()))
        wrong = rejections(proof, one.query, one.networks)
        "; ".join(wrong).encode()
        if wrong:
            return "rejected: " + re.sub(r"\d+", "N", wrong[0])[:80]
        if one.met:
            raise Untrue(f"{one.path.name} was accepted as unsat")
        return "accepted and true"


BOX = """
(assert (and (>= X_0 0.0) (<= X_0 1.0)))
(assert (>= X_1 -0.5))
(assert (<= X_1 0.25))
(assert (= X_2 0.125))
"""
OLD = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "X_2", "Y_0", "Y_1"))
TWIN = """; two people
(vnnlib-version <2.0>)
(declare-network f (declare-input X_f real [1,3]) (declare-output Y_f real [1,2]))
(declare-network g (equal-to f) (declare-input X_g real [1,3]) (declare-output Y_g real [1,2]))
(assert (and (>= X_f[0,0] 0.0) (<= X_f[0,0] 1.0)))
(assert (and (>= X_f[0,1] -0.5) (<= X_f[0,1] 0.5)))
(assert (== X_g[0,0] X_f[0,0]))
(assert (== X_g[0,1] (+ X_f[0,1] 0.0)))
(assert (== X_f[0,2] 0.0))
(assert (== X_g[0,2] 1.0))
"""
SURE = {
    "box": OLD + BOX + "(assert (<= Y_0 BOUND))\n",
    "either": OLD + BOX + "(assert (or (<= (+ Y_0 (* 0.5 Y_1)) BOUND) (and (<= X_0 0.5) (<= Y_1 BOUND))))\n",
    "point": OLD + BOX + "(assert (= X_0 0.5))\n(assert (= X_1 0.25))\n(assert (<= Y_1 BOUND))\n",
    "twin": TWIN + "(assert (<= (- Y_f[0,1] Y_g[0,1]) BOUND))\n(assert (<= (+ Y_f[0,0] X_f[0,0]) BOUND))\n",
}
QUERIES = {
    "old.vnnlib": OLD + BOX + "(assert (<= Y_0 (+ Y_1 -0.75)))\n",
    "or.vnnlib": OLD + BOX + "(assert (or (and (<= Y_0 -2.0) (>= Y_1 0.5)) (and (> Y_1 4.0)) (!= X_1 (- X_0 1.5))))\n",
    "twin.vnnlib": TWIN + "(assert (> (- Y_f[0,1] Y_f[0,0]) 0.1))\n(assert (< (- Y_g[0,1] Y_g[0,0]) -0.1))\n",
    "two.vnnlib": TWIN.replace("(equal-to f) ", "") + "(assert (>= (* 2.0 Y_f[0,1]) (+ Y_g[0,0] X_f[0,1] 3.0)))\n",
}
