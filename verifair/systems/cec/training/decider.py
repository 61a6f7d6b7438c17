r"""A trained method: its decisions about people, and the network whose attributions explain them.

The expected margin of a randomised choice among networks is one network: block-diagonal, with weighted outputs.

    z(x) = \sum_t p_t z_t(x):   W_1 = [W_1^1; ...; W_1^T],   W_k = diag(W_k^1, ..., W_k^T),   W_N = [p_1 W_N^1, ..., p_T W_N^T].

Integrated gradients are linear in the function, so those of z are the expected attributions of the randomised classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from encoders.arrays import Array, Integers
from encoders.model import Link
from encoders.network import Layer, Network
from verifair.engine.questions import decisions
from verifair.systems.cec.audit import ComparedPairs, Explanations, probability, scored
from verifair.systems.cec.explanations import explanations
from verifair.systems.cec.matching import Matches, Reference, match
from verifair.systems.cec.people import People
from verifair.systems.cec.training.repair import Repair

Rule = Callable[[Array, Integers], Array]
"""(network inputs (N, n_0), groups (N,)) -> probability (N,) of deciding positively, for a randomised decider."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedDecider:
    """network: the differentiable part, whose margin is explained.   repair: changes people before the network sees them.
    rule: the decision, where it is randomised; None: the network's larger logit.   notes: remarks of the training."""

    method: str
    network: Network
    repair: Repair | None = None
    rule: Rule | None = None
    notes: tuple[str, ...] = ()

    def seen(self, people: People) -> People:
        """Return the people as the network sees them."""
        return people if self.repair is None else self.repair.apply(people)

    def score(self, people: People) -> Array:
        """Return (N,) in [0, 1]: the network's probability of class 1, or of a positive decision where that is drawn."""
        x = self.seen(people).x
        return probability(self.network, x) if self.rule is None else self.rule(x, people.groups)

    def decide(self, people: People, seed: int = 0) -> Integers:
        """Return (N,) decisions, 1 positive; drawn with the seed where the decider is randomised."""
        if self.rule is None:
            return decisions(self.network, self.seen(people).x)
        draws = np.random.default_rng(seed).random(len(people))
        return np.asarray(draws < self.score(people), dtype=np.int64)


def audit_decider(
    decider: TrainedDecider, reference: Reference, people: People, *, matches: Matches | None = None
) -> ComparedPairs:
    """Audit any decider as `verifair.systems.cec.audit` does. Matching uses the people as they are; explanations use what the
    network sees of them, from label-group means of the reference as the network sees it."""
    if matches is None:
        matches = match(reference, people)
    person, counterpart = matches.individual[matches.matched], matches.row[matches.matched]
    seen, pool = decider.seen(people), decider.seen(reference.people)
    baseline = Reference.of(pool, reference.columns).baseline(seen)[person]
    own, other = (
        Explanations(
            g=explanations(decider.network, inputs.x[rows], baseline), decision=decider.decide(side, seed)[rows],
            probability=decider.score(side)[rows],
        )
        for inputs, side, rows, seed in ((seen, people, person, 0), (pool, reference.people, counterpart, 1))
    )
    return scored(people, matches, [(slice(None), own, other)], method=decider.method, seed=None if decider.rule is None else 0)


def mixture(networks: Sequence[Network], weights: Array) -> Network:
    """Return the network of sum_t weights_t logits_t, for networks of the same depth, inputs and outputs.

    Raises ValueError for networks that do not fit. Its logits are the weighted sum up to the rounding of float64.
    """
    first = networks[0]
    if any((n.inputs, n.outputs, len(n.layers)) != (first.inputs, first.outputs, len(first.layers)) for n in networks):
        raise ValueError("a mixture needs networks of the same depth with the same inputs and outputs")
    layers = []
    for k in range(len(first.layers)):
        parts = [network.layers[k] for network in networks]
        is_last = k == len(first.layers) - 1
        matrices = [p * part.weight if is_last else part.weight for p, part in zip(weights, parts, strict=True)]
        if is_last and k > 0:
            weight = np.hstack(matrices)
        elif k == 0:
            weight = np.sum(matrices, axis=0) if is_last else np.vstack(matrices)
        else:
            weight = block_diag(*matrices)
        bias = np.tensordot(weights, [part.bias for part in parts], 1) if is_last else np.concatenate([part.bias for part in parts])
        slope = np.ones(len(bias)) if is_last else np.concatenate([part.slope for part in parts])
        layers.append(Layer(weight=weight, bias=bias, slope=slope))
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="")


def constant(like: Network, positive: bool) -> Network:
    """Return a network of the same shape that decides everybody alike: logits (0, 1) or (1, 0), nothing depends on the input."""
    layers = [Layer(weight=0 * layer.weight, bias=0 * layer.bias, slope=layer.slope) for layer in like.layers]
    last = layers[-1]
    bias = np.zeros(like.outputs)
    bias[int(positive)] = 1.0
    return Network(
        layers=(*layers[:-1], Layer(weight=last.weight, bias=bias, slope=last.slope)), link=Link.IDENTITY, source_sha256=""
    )
