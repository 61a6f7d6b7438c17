"""The answer to one goal of one question, still in arrays, and its replay in float32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from encoders.evaluate import pair, seems_unmet
from encoders.network import Array, Integers
from encoders.onnx.runtime import runtime_logits
from encoders.problem import TwinProblem
from solvers.outcome import Outcome
from verifair.checker.tree import PhaseTree, Tree
from verifair.engine.verdict import Reason, Status


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The answer to one goal of one question, still in arrays.

    tree: the proof's boxes, None for a solver's claim.   witness: (V,) raw x.   margins: g(x), g(x') there.
    lower, upper: bounds on the goal's best row.   agrees: whether float32 onnxruntime shows the violation (None: no file).
    """

    status: Status
    reason: Reason | None
    lower: float
    upper: float
    tree: Tree | PhaseTree | None
    witness: Array | None
    margins: tuple[float, float] | None
    agrees: bool | None
    engine: str
    outcomes: tuple[Outcome, ...]
    nodes: int


def replayed(problem: TwinProblem, answers: list[list[Answer]]) -> list[list[Answer]]:
    """Replay every witness in float32 onnxruntime, all in one batch, and note whether it shows the violation too."""
    at = [(q, g) for q, row in enumerate(answers) for g, answer in enumerate(row) if answer.witness is not None]
    if problem.network.source is None or not at:
        return answers
    question, goal = np.array(at).T
    raw = np.array([answers[q][g].witness for q, g in at])
    for (q, g), agrees in zip(at, runtime_agrees(problem, question, goal, raw), strict=True):
        answers[q][g] = replace(answers[q][g], agrees=bool(agrees == 1))
    return answers


def runtime_agrees(problem: TwinProblem, question: Integers, goal: Integers, raw: Array) -> npt.NDArray[np.int8]:
    """(W,) 1 where float32 onnxruntime shows that a goal fails at raw points (W, V) too, 0 where not, -1 without a file."""
    if problem.network.source is None or not len(raw):
        return np.full(len(raw), -1, dtype=np.int8)
    x, x_prime = pair(problem, question, raw)
    margins = np.stack([runtime_logits(problem.network, copy.astype(np.float32)) @ problem.margin for copy in (x, x_prime)], axis=1)
    unmet = seems_unmet(problem, margins, np.zeros(len(raw)))
    return unmet[np.arange(len(raw)), goal].astype(np.int8)
