"""A person's explanation: integrated gradients of the network's margin in favour of the positive class."""

from __future__ import annotations

from encoders.gradients import integrated_gradients
from encoders.network import Array, Network
from verifair.engine.questions import margin
from verifair.errors import QueryError

MOST_STEPS = 10_000
"""Steps beyond these cost memory and time for nothing: the exact integral is at hand."""


def positive_margin(network: Network) -> Array:
    """Weights (n_N,) of f = logit_1 - logit_0, or of the only logit. Raises QueryError for more than two classes."""
    if network.outputs > 2:
        raise QueryError(
            f"the network has {network.outputs} classes; explanation consistency is about one score f, the margin of class 1: "
            "pass a network with one or two outputs"
        )
    return margin(network, 1, 0)


def explanations(network: Network, x: Array, baseline: Array, steps: int | None = None, *, threads: int = 2) -> Array:
    """IG(x; b) (B, n_0) of f for network inputs x and baselines (B, n_0).

    steps: None for the exact path integral (the network is piecewise linear), T for the paper's Riemann sum.
    Raises QueryError for steps outside 1 .. MOST_STEPS, or more than two classes.
    Reference: CEC, "Integrated Gradients Background".
    """
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise QueryError(f"steps = {steps}: expected 1 to {MOST_STEPS}, the paper's 32, or none for the exact integral")
    return integrated_gradients(network, positive_margin(network), x, baseline, steps, threads=threads)
