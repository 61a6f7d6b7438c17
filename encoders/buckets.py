"""Uniform buckets (i / B, (i + 1) / B] of [0, 1], the first one closed, and the exact bucket of a probability.

Probabilities are logistic functions of logits, softmax of several, or shares: an exact logit or share is put into its bucket in
ball arithmetic (Arb, through python-flint), once and rigorously. A probability of 1/2, a logit of 0, is in the lower of two
buckets, as decisions have it. Smooth models have no exact values: if balls around a margin reach two buckets at every precision,
both are returned.
Sound? yes.   Complete? except for margins of smooth models on the border of a bucket, or nearer to it than balls resolve.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np
from flint import arb, fmpq

from encoders.arrays import Array, Integers
from encoders.decision import Favoured
from encoders.exact.balls import PRECISIONS, Balls, ball, precision, sigmoid
from encoders.exact.dyadic import exact
from encoders.model import Model
from encoders.probability.logistic import MAX_PRECISION, PRECISION, exceeds
from encoders.probability.shares import logistic


@lru_cache(maxsize=64)
def borders(buckets: int, *, shares: bool) -> tuple[Array, Array]:
    """Return float64 numbers (B - 1,) not above, and not below, the logits log(i / (B - i)) at which the buckets i = 1 ... B - 1
    begin; of shares, less 1/2, i / B - 1/2."""
    if shares:
        fractions = [Fraction(2 * i - buckets, 2 * buckets) for i in range(1, buckets)]
        nearest = np.array([float(border) for border in fractions])
        is_exact = np.array([Fraction(number) == border for number, border in zip(nearest.tolist(), fractions, strict=True)])
    else:
        with precision(PRECISION):
            balls = [arb(fmpq(i, buckets - i)).log() for i in range(1, buckets)]
            nearest = np.array([float(logarithm.mid()) for logarithm in balls])
        is_exact = 2 * np.arange(1, buckets) == buckets
        nearest[is_exact] = 0.0
    low, high = (np.where(is_exact, nearest, np.nextafter(nearest, end)) for end in (-np.inf, np.inf))
    low.flags.writeable = high.flags.writeable = False
    return low, high


def bucket(a: Fraction, buckets: int) -> int:
    """Return the bucket that holds sigma(a), exactly."""
    for k in range(buckets - 1, 0, -1):
        # sigma(a) > k / B, with equality only where both are 1/2: e^a is irrational for every other rational a.
        if a > 0 if 2 * k == buckets else exceeds(a, Fraction(0), Fraction(k, buckets) - Fraction(1, 2)):
            return k
    return 0


def share_bucket(a: Fraction, buckets: int) -> int:
    """Return the bucket that holds a + 1/2, exactly."""
    return min(max(ceil((a + Fraction(1, 2)) * buckets) - 1, 0), buckets - 1)


def softmax_bucket(logits: Sequence[Fraction], favoured: Collection[int], buckets: int) -> int:
    """Return the bucket that holds the probability of the favoured ones of several classes under softmax, exactly.

    The probability is k / B iff the sum of (B [c is favoured] - k) e^f_c is 0. By Lindemann-Weierstrass it is only where, logit by
    logit, the coefficients of equal logits cancel: a tie, which is in the lower bucket. More precision decides all else.
    Raises OverflowError beyond MAX_PRECISION bits.
    """
    distinct = set(logits)

    def tied(k: int) -> bool:
        return all(sum(buckets * (c in favoured) - k for c, f in enumerate(logits) if f == value) == 0 for value in distinct)

    largest, bits = max(logits), PRECISION
    while bits <= MAX_PRECISION:
        with precision(bits):
            share = buckets * _softmax([ball(f - largest) for f in logits], favoured)
            passed = [k for k in range(1, buckets) if share > k]
            if all(share < k or tied(k) for k in range(len(passed) + 1, buckets)):
                return len(passed)
        bits *= 2
    raise OverflowError(f"the probability of classes {sorted(favoured)} cannot be separated from the border of a bucket")


def buckets_of(model: Model, inputs: Array, buckets: int) -> Integers:
    """Return the least and the largest bucket (B, 2) that the favourable decision's probability can be in, for network inputs
    (B, n) of float32 numbers; they differ where that cannot be decided, of smooth models alone.

    Requires: a model with one margin, or two classes.
    """
    decision = model.decision
    group = decision.groups[0] if isinstance(decision, Favoured) and decision.odds and not decision.votes else None
    judged = model if group is None else model.whole
    if not judged.piecewise_linear:
        return _enclosed(judged, inputs, buckets, group)
    rows = judged.forward(exact(inputs)).to_fractions().tolist()
    if group is not None:
        results = [softmax_bucket(row, group, buckets) for row in rows]
    else:
        low, high = (end.tolist() for end in borders(buckets, shares=not logistic(model)))
        bucket_of = bucket if logistic(model) else share_bucket
        results = []
        for row in rows:
            value = row[-1] if len(row) == 1 else row[1] - row[0]
            first = bisect_left(high, value)  # comparing a fraction with a float is exact
            results.append(first if first == bisect_left(low, value) else bucket_of(value, buckets))
    return np.repeat(np.array(results, dtype=np.int64)[:, None], 2, axis=1)


def _enclosed(model: Model, inputs: Array, buckets: int, group: Collection[int] | None) -> Integers:
    """Return the same for a smooth model. group: if given, its outputs are logits of classes, and these are the favourable ones."""
    results, left = np.tile([0, buckets - 1], (len(inputs), 1)), np.arange(len(inputs))
    for bits in PRECISIONS:
        with precision(bits):
            for n, row in zip(left.tolist(), model.forward(Balls.of(inputs[left])).rows(), strict=True):
                if group is not None:
                    largest = max(row, key=lambda f: float(f.mid()))
                    share = _softmax([f - largest for f in row], group)
                else:
                    margin = row[0] if len(row) == 1 else row[1] - row[0]
                    share = sigmoid(margin) if logistic(model) else margin + ball(Fraction(1, 2))
                share = buckets * share
                results[n, 0] = max(results[n, 0], sum(share > k for k in range(1, buckets)))
                results[n, 1] = min(results[n, 1], buckets - 1 - sum(share <= k for k in range(1, buckets)))
        left = left[results[left, 0] < results[left, 1]]
        if not len(left):
            break
    return results


def _softmax(logits: Sequence[arb], favoured: Collection[int]) -> arb:
    """Return the probability of the favoured ones of several classes. Requires a largest logit near 0."""
    powers = [logit.exp() for logit in logits]
    return sum((powers[c] for c in favoured), arb(0)) / sum(powers, arb(0))
