"""Answers to one goal of one question, as arrays: evidence, replay in float32, and errors for contradictory answers.

When two engines contradict each other, nothing is answered: the question is saved and `Disagreement` is raised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Integers
from encoders.decision import Favoured
from encoders.evaluate import pair, seems_unmet
from encoders.onnx.runtime import decisions, runtime_logits
from encoders.problem import TwinProblem
from solvers.outcome import Outcome
from verifair.checker.certificates.certificate import Claim
from verifair.checker.certificates.tree import Tree
from verifair.engine.verdict import Reason, Status
from verifair.errors import Disagreement

HUGE = float(np.finfo(np.float32).max)
"""Replaces an infinite logit of the runtime: it keeps the sign, and its product with a weight of 0 is 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GoalAnswer:
    """The answer to one goal of one question, still in arrays.

    tree: the proof's boxes, None for a solver's claim.   witness: (V,) raw x.   margins: g(x), g(x') there.
    margin: for a proof by a tree, a lower bound of its only row (None: it has several, or nothing is known).
    float32: True if a proof is certified for float32.
    lower, upper: bounds on the goal's best row.   agrees: True if float32 onnxruntime shows the violation too (None: no file).
    """

    status: Status
    reason: Reason | None
    lower: float
    upper: float
    tree: Tree | None
    witness: Array | None
    margins: tuple[float, float] | None
    agrees: bool | None
    engine: str
    outcomes: tuple[Outcome, ...]
    nodes: int
    float32: bool = False
    margin: float | None = None

    @classmethod
    def blank(cls, engine: str, reason: Reason) -> GoalAnswer:
        """Return an answer with no bound and no evidence."""
        return cls(
            status=Status.UNKNOWN, reason=reason, lower=-np.inf, upper=np.inf, tree=None, witness=None, margins=None, agrees=None,
            engine=engine, outcomes=(), nodes=0,
        )

    @property
    def claim(self) -> Claim:
        """The claim of the last solver that was asked."""
        last = self.outcomes[-1]
        return Claim(backend=last.backend, version=last.version, tolerance=last.tolerance)

    @property
    def evidence(self) -> Tree | Claim:
        """The evidence of a proof: its tree, or else a solver's claim."""
        return self.claim if self.tree is None else self.tree


def engines(answers: Iterable[GoalAnswer]) -> str:
    """Return the names of the methods that decided, or tried to; moot answers are left out."""
    return "+".join(sorted({answer.engine for answer in answers if answer.reason is not Reason.MOOT}))


def replayed(problem: TwinProblem, answers: list[list[GoalAnswer]]) -> list[list[GoalAnswer]]:
    """Replay every witness in float32 onnxruntime, all in one batch, and note whether it shows the violation too."""
    positions = [(q, g) for q, row in enumerate(answers) for g, answer in enumerate(row) if answer.witness is not None]
    if problem.network.source is None or not positions:
        return answers
    question, goal = np.array(positions).T
    raw = np.array([answers[q][g].witness for q, g in positions])
    for (q, g), agrees in zip(positions, runtime_agrees(problem, question, goal, raw), strict=True):
        answers[q][g] = replace(answers[q][g], agrees=bool(agrees == 1))
    return answers


def runtime_agrees(problem: TwinProblem, question: Integers, goal: Integers, raw: Array) -> npt.NDArray[np.int8]:
    """Return (W,) 1 where float32 onnxruntime shows that a goal fails at raw points (W, V) too, 0 where not, -1 without a file.

    For flips between any two of several classes, where a goal is about one threshold: 1 if it gives the two rows different classes.
    """
    network = problem.network
    if network.source is None or not len(raw):
        return np.full(len(raw), -1, dtype=np.int8)
    copies = [copy.astype(np.float32) for copy in pair(problem, question, raw)]
    if isinstance(network.decision, Favoured) and len(network.decision.groups) > 1:
        first, second = (decisions(runtime_logits(network.whole, copy)) for copy in copies)
        return np.asarray(first != second, dtype=np.int8)
    logits = [np.clip(runtime_logits(network, copy).astype(np.float64), -HUGE, HUGE) for copy in copies]
    margins = np.stack([logit @ problem.margin for logit in logits], axis=1)
    unmet = seems_unmet(problem, margins, np.zeros(len(raw)))[np.arange(len(raw)), goal]
    return np.asarray(unmet & ~np.isnan(margins).any(axis=1), dtype=np.int8)


def disagree(problem: TwinProblem, question: int, row: Array, answers: Mapping[str, object]) -> Disagreement:
    """Return the error to raise, its reproducer written to disagreement-HASH.json in the working folder.

    answers: the answer of each engine, by its name. The file holds the raw box, the protected values, margin and row, and the
    sha256 of the network, so that the question can be asked again.
    """
    content = {**reproducer(problem, question, row), "answers": {name: str(answer) for name, answer in answers.items()}}
    text = json.dumps(content, indent=2)
    path = Path(f"disagreement-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json")
    path.write_text(text + "\n", encoding="utf-8")
    summary = "; ".join(f"{name}: {answer}" for name, answer in content["answers"].items())
    return Disagreement(f"two engines contradict each other ({summary}); saved as {path.resolve()}, please report it")


def reproducer(problem: TwinProblem, question: int, row: Array) -> dict[str, Any]:
    """Return the data needed to ask one question again, with the sha256 of its network. row: (2,) or (R, 2)."""
    batch = problem.batch
    return {
        "network": problem.network.source,
        "network_sha256": problem.network.source_sha256,
        "lower": batch.lower[question].tolist(),
        "upper": batch.upper[question].tolist(),
        "prime": batch.prime[question].tolist(),
        "protected": batch.protected.tolist(),
        "margin": problem.margin.tolist(),
        "row": row.tolist(),
    }
