"""When two engines contradict each other, nothing is answered: the question is saved and `Disagreement` is raised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from encoders.problem import TwinProblem
from verifair.errors import Disagreement


def disagree(problem: TwinProblem, question: int, row: np.ndarray, answers: Mapping[str, object]) -> Disagreement:
    """The error to raise, its reproducer written to disagreement-HASH.json in the working folder.

    answers: what each engine says, by its name. The file holds the raw box, the protected values, margin and row, so that the
    question can be asked again of the network whose sha256 it names.
    """
    content = {**reproducer(problem, question, row), "answers": {name: str(answer) for name, answer in answers.items()}}
    text = json.dumps(content, indent=2)
    path = Path(f"disagreement-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json")
    path.write_text(text + "\n", encoding="utf-8")
    said = "; ".join(f"{name}: {answer}" for name, answer in content["answers"].items())
    return Disagreement(f"two engines contradict each other ({said}); saved as {path.resolve()}, please report it")


def reproducer(problem: TwinProblem, question: int, row: np.ndarray) -> dict[str, Any]:
    """What is needed to ask one question again, of the network whose sha256 it names. row: (2,) or (R, 2)."""
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
