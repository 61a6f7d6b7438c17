"""Contradictions between competitors: one proves what another refutes, or their bounds exclude each other.

Three tests, the same slack as between engine and solver in `verify` (`by_solver.compare`), far beyond any solver's tolerance:

    proved against violated        one question, any two competitors, whatever their trust; also a sat whose counterexample is wrong
    lower above upper              one question, or questions about one subject: a bound below and a value met of the same number
    optimum against optimum        k-centers: costs are given numbers, so two optima are equal or one of them is wrong

The LP's optimum lies below the exact minimum, so its lower bounds are compared for the whole subject, its upper ones among LPs
only.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from encoders.model import Model
from verifair.bench.questions import CenterQuestion, FileQuestion, Question
from verifair.bench.records import DISAGREEMENT, WRONG_WITNESS, BenchRecord
from verifair.engine.answer import reproducer
from verifair.systems.results.files import save_json

SLACK = 1e-4
EXACT = 1e-9
"""Costs of a k-center that differ by more are different."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two answers that cannot both be true.   what: in words.   first, second: the answers (the same one twice if the engine
    noticed it itself)."""

    what: str
    first: BenchRecord
    second: BenchRecord

    @property
    def name(self) -> str:
        sides = f"{self.first.case} {self.first.competitor} {self.second.case} {self.second.competitor} {self.what}"
        return f"disagreement-{hashlib.sha256(sides.encode()).hexdigest()[:12]}.json"

    def to_dict(self) -> dict[str, Any]:
        return {"what": self.what, "answers": [self.first.to_dict(), self.second.to_dict()]}


def contradictions(records: Iterable[BenchRecord]) -> list[Contradiction]:
    """Return all contradictions, at most one of a kind for each question and pair of competitors."""
    by_question: dict[str, list[BenchRecord]] = defaultdict(list)
    by_subject: dict[str, list[BenchRecord]] = defaultdict(list)
    result = []
    for record in records:
        if record.reason == DISAGREEMENT:
            result.append(Contradiction(what=record.note, first=record, second=record))
        by_question[record.question].append(record)
        by_subject[record.subject].append(record)
    for group in by_question.values():
        result += _statuses(group)
        result += _bounds(group, group)
    for group in by_subject.values():
        relaxed = [record for record in group if record.kind == "relaxation"]
        exact = [record for record in group if record.kind != "relaxation"]
        result += _bounds(relaxed, exact)
        result += [conflict for conflict in _bounds(exact, exact) if conflict.first.question != conflict.second.question]
    return _unique(result)


def save(conflicts: Sequence[Contradiction], folder: Path, questions: Mapping[str, Question]) -> list[Path]:
    """Write both answers of each, and the full questions, to folder/disagreement-HASH.json.   questions: by their cases' names."""
    paths = []
    for conflict in conflicts:
        path = folder / conflict.name
        cases = {case: asked_again(questions[case]) for case in dict.fromkeys((conflict.first.case, conflict.second.case))}
        save_json(path, {**conflict.to_dict(), "cases": cases})
        paths.append(path)
    return paths


def asked_again(question: Question) -> dict[str, Any]:
    """Return a question as `save_json` takes it."""
    if isinstance(question, CenterQuestion):
        return {"kind": "k-center", "k": question.k, "coverage": question.coverage, "costs": question.instance.costs()}
    if isinstance(question, FileQuestion):
        return {"kind": "file", "query": question.text(), "networks": {name: str(path) for name, path in question.networks}}
    problem = question.problem
    boxes = [reproducer(problem, q, problem.rows) for q in range(len(problem.batch))]
    return {
        "kind": type(question).__name__.removesuffix("Question").lower(), "boxes": boxes, "constants": problem.constants.tolist(),
        **({} if problem.network.source else _in_full(problem.network)),
    }


def _in_full(model: Model) -> dict[str, Any]:
    """Return the numbers of a model without a file."""
    if not model.of_trees:
        layers = model.layered("a reproducer without a file").layers
        return {"layers": [[layer.weight.tolist(), layer.bias.tolist()] for layer in layers]}
    parts = {field.name: getattr(model.whole, field.name) for field in fields(model.whole)}
    trees = {name: part.tolist() for name, part in parts.items() if isinstance(part, np.ndarray)}
    return {"trees": trees, "decision": None if model.decision is None else asdict(model.decision)}


def _statuses(group: Sequence[BenchRecord]) -> list[Contradiction]:
    proved = [record for record in group if record.status == "proved"]
    violated = [record for record in group if record.status == "violated"]
    wrong = [record for record in group if record.reason == WRONG_WITNESS]
    result = [Contradiction(what="proved against violated", first=a, second=b) for a in proved for b in violated]
    description = "proved against sat with a wrong counterexample"
    return [*result, *(Contradiction(what=description, first=a, second=b) for a in proved for b in wrong)]


def _bounds(lowers: Sequence[BenchRecord], uppers: Sequence[BenchRecord]) -> list[Contradiction]:
    """Return the lower bounds of one group that exclude upper bounds of the other."""
    return [
        Contradiction(what=f"at least {a.lower!r} against at most {b.upper!r}", first=a, second=b)
        for a in lowers
        for b in uppers
        if a.comparable and b.comparable and a.lower > b.upper + _slack(a, b)
    ]


def _slack(a: BenchRecord, b: BenchRecord) -> float:
    if a.kind == "center":
        return EXACT
    return SLACK * (1 + min(abs(a.lower), abs(b.upper)))


def _unique(conflicts: Sequence[Contradiction]) -> list[Contradiction]:
    """Keep the first contradiction of each kind: repeats of one measurement contradict in the same way."""
    unique: dict[tuple[str, ...], Contradiction] = {}
    for c in conflicts:
        key = (c.first.case, c.first.competitor, c.second.case, c.second.competitor, c.what.split()[0])
        unique.setdefault(key, c)
    return list(unique.values())
