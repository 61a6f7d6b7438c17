"""Counterexamples of fairness queries in the schema's words: two rows with their decisions and probabilities (or values)."""

from __future__ import annotations

import numpy as np

from encoders.arrays import Array
from encoders.decision import Favoured
from encoders.model import Model
from encoders.probability.shares import probabilities
from encoders.trees.ensemble import BY_TIE
from verifair.engine.questions import decisions, margin
from verifair.engine.verdict import Witness
from verifair.schema.schema import Schema


def witness_at(
    schema: Schema, network: Model, rows: Array, margins: tuple[float, float], *, margin: float, agrees: bool | None,
    any_two: bool = False,
) -> Witness:
    """Return the witness of two raw rows x, x' (2, V).

    network: the model of which `margins` are g(x), g(x'); that of a tie is 0.   margin: the value that had to be positive.
    agrees: `float32_agrees`.   any_two: the decisions are classes of the model, not favourable or unfavourable. Decisions are
    computed exactly.
    """
    by_tie = isinstance(network.decision, Favoured) and network.decision.lowest
    first, second, margin = (0.0 if by_tie and abs(value) == BY_TIE else value for value in (*margins, margin))
    whole = network.whole
    any_two = any_two and whole.outputs > 2
    valued = schema.outcome.of == "value"
    if not valued and schema.outcome.judged(whole, odds=False) is None:
        decided = [int(first > 0), int(second > 0)]
        p, p_prime = probabilities(whole, np.array(margins)).tolist()
        shown = (p, p_prime)
    else:
        encoded = schema.encode(rows)
        decided = decisions(whole if any_two else schema.judges(whole), encoded).tolist()
        low, high = _shown(schema, whole, encoded)
        shown = (low, high)
    class_names = schema.class_names if not any_two else schema.classes or [f"class {k}" for k in range(whole.outputs)]
    first_word, second_word = (class_names[k] for k in decided)
    return Witness(
        x=schema.decode(rows[0]), x_prime=schema.decode(rows[1]), outputs=(first, second), decisions=(first_word, second_word),
        probabilities=None if valued else shown, values=shown if valued else None, margin=margin, float32_agrees=agrees,
        missing=schema.missing,
    )


def _shown(schema: Schema, whole: Model, encoded: Array) -> list[float]:
    """Return the outputs of a model for network inputs (B, n): its values, or the probabilities of decision 1."""
    if schema.outcome.of == "value":
        return list(map(float, whole.forward(encoded)[:, 0]))
    odds = schema.judges(whole, odds=True)
    return list(map(float, probabilities(odds, odds.forward(encoded) @ margin(odds, 1, 0))))
