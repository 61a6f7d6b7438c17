"""Exact counterexamples: two legal rows that differ in protected features only, and what the network makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Witness:
    """x, x_prime: rows in the schema's words.   outputs: the margins g(x), g(x').   probabilities: sigma(g), of the
    positive class in fairness queries, of the row's own class against the other one in PBA.

    margin: the value that should have been positive, shown as float64; its sign was decided in exact arithmetic.
    float32_agrees: whether onnxruntime, in float32, shows the same violation (None: the model file was not at hand).
    """

    x: dict[str, Any]
    x_prime: dict[str, Any]
    outputs: tuple[float, float]
    probabilities: tuple[float, float]
    margin: float
    float32_agrees: bool | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "x": self.x,
            "x_prime": self.x_prime,
            "outputs": list(self.outputs),
            "probabilities": list(self.probabilities),
            "margin": self.margin,
            "float32_agrees": self.float32_agrees,
        }
