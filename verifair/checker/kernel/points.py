"""Single points of smooth networks for the checker: does a goal hold there? Decided by balls, or not at all.

Sound? Yes: both answers rest on enclosures (`encoders.exact.balls`, shared).  Complete? No: what is 0 is undecided.
"""

from __future__ import annotations

import numpy as np
from flint import arb

from encoders.exact.balls import PRECISIONS, Balls, ball, precision, same_start, sigmoid
from encoders.network import Array, Network
from verifair.checker.kernel.leaves import Asked


def holds_at(network: Network, asked: Asked, margin: Array, target: float, x: Array, x_prime: Array) -> bool | None:
    """Whether some row p g + q g' + c of what is asked holds at network inputs x, x' (n,), with at least `target`; None: undecided.

    A gap is decided by the probabilities themselves, whatever the target.
    """
    same = bool(same_start(network, x[None], x_prime[None])[0])
    for bits in PRECISIONS:
        with precision(bits):
            g, g_prime = _margins(network, margin, x, x_prime)
            if asked.gap is not None:
                difference = ball(0.0) if same else sigmoid(g) - sigmoid(g_prime)
                values = [ball(asked.gap.epsilon) - (-difference if asked.gap.rise else difference)]
                met, unmet = values[0] >= 0, values[0] < 0
            else:
                values = [_row(p, q, c, g, g if same else g_prime) for p, q, c in asked.rows]
                enough = [value >= target for value in values]
                met = any((value > 0 if asked.strict else True) and e for value, e in zip(values, enough, strict=True))
                unmet = all(value < target or (asked.strict and value <= 0) for value in values)
        if met or unmet:
            return bool(met)
    return None


def witnessed(network: Network, epsilon: float | None, fall: bool, x: Array, x_prime: Array) -> bool:
    """Whether the probability surely falls (rises) by more than epsilon from x to x', or with none the decision flips."""
    margin = np.array([1.0]) if network.outputs == 1 else np.array([-1.0, 1.0])
    for bits in PRECISIONS:
        with precision(bits):
            g, g_prime = _margins(network, margin, x, x_prime)
            high, low = (g, g_prime) if fall else (g_prime, g)
            if (high > 0 and low < 0) if epsilon is None else sigmoid(high) - sigmoid(low) > ball(epsilon):
                return True
    return False


def _margins(network: Network, margin: Array, x: Array, x_prime: Array) -> list[arb]:
    rows = network.forward(Balls.of(np.stack([x, x_prime]))).rows()
    weights = [ball(float(v)) for v in margin]
    return [sum((w * v for w, v in zip(weights, row, strict=True)), ball(0.0)) for row in rows]


def _row(p: float, q: float, c: float, g: arb, g_prime: arb) -> arb:
    """p g + q g' + c; where both are one ball, (p + q) g + c, so that their difference is 0 and no ball around it."""
    if g is g_prime:
        return (ball(p) + ball(q)) * g + ball(c)
    return ball(p) * g + ball(q) * g_prime + ball(c)
