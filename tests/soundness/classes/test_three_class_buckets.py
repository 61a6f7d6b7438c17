"""Outcome buckets of three classes against brute force: decisions by exact rationals, probabilities by softmax to 80 digits."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

import verifair as vf
from encoders.arrays import Array
from encoders.buckets import softmax_bucket
from encoders.exact.balls import precision
from tests.builders import categorical, integer, schema_of
from tests.soundness.classes.test_outcomes import alone, largest, outputs_of
from tests.soundness.classes.whole_weights import ROWS, made
from tests.soundness.random_twins import BITS, logits, smoothed
from verifair.systems.hyfair.guard.effects import score

RULES = {"class = 2": [2], "class = 1": [1], "class >= 1": [1, 2], "class <= 0": [0], "class in [0, 2]": [0, 2]}
FEATURES = (integer("a", 0, 3, unit=1.0), integer("b", 0, 2, unit=1.0), categorical("sex", "F", "M", protected=True))
GROUPS = (integer("a", 0, 3, unit=1.0), integer("b", 0, 2, unit=1.0, protected=True), FEATURES[2])


def by_digits(row: Sequence[Fraction], favoured: Sequence[int], buckets: int) -> int:
    """How many borders k / B lie below the probability of the favoured classes; the same number to 60 digits is a tie."""
    with localcontext() as context:
        context.prec = 80
        powers = [(Decimal(f.numerator) / Decimal(f.denominator)).exp() for f in row]
        share, whole = sum(powers[c] for c in favoured), sum(powers)
        return sum(buckets * share - k * whole > whole * Decimal(10) ** -60 for k in range(1, buckets))


def bucket_of(row: list[Fraction], rule: str, buckets: int, *, trees: bool = False) -> int:
    """Decision 1 stands for what is not favourable where that is decided by classes up to one. Of trees, argmax decides."""
    if buckets == 2 and not trees:
        ahead = alone(row) if rule == "class = 1" else None
        if rule == "class in [0, 2]":
            return int(max(row[0], row[2]) > row[1])  # a tie with another class is not favourable
        return int(ahead if ahead is not None else largest(row) in RULES[rule]) ^ (rule == "class <= 0")
    if buckets == 2:
        return int(largest(row) in RULES[rule]) ^ (rule == "class <= 0")
    return by_digits(row, [1, 2] if rule == "class <= 0" else RULES[rule], buckets)


def people(rows: Array, protected: list[int]) -> list[list[int]]:
    """The rows of one person each: they share what is not protected."""
    shared = [tuple(row) for row in np.delete(rows, protected, axis=1)]
    return [[n for n, one in enumerate(shared) if one == person] for person in sorted(set(shared))]


@pytest.mark.parametrize("buckets", [2, 3, 4, 7, 20])
@pytest.mark.parametrize("rule", RULES)
def test_the_largest_k_is_that_of_brute_force(rule: str, buckets: int) -> None:
    seen = set()
    for seed in range(4):
        for described, protected in ((schema_of(*FEATURES, positive=rule), [2]), (schema_of(*GROUPS, positive=rule), [1, 2])):
            network = made(seed, 3)
            found = [bucket_of(row, rule, buckets) for row in outputs_of(network, ROWS)]
            truth = max(len({found[n] for n in one}) for one in people(ROWS, protected))
            asked = vf.KDiscrimination(model=network, schema=described, protected=described.protected_names, buckets=buckets)
            verdict = vf.verify(asked, budget=vf.Budget(seconds=20))
            assert verdict.lower == truth == verdict.upper, (seed, protected)
            assert verdict.float32_agrees in (True, None)
            assert vf.check(verdict.certificate, model=network, schema=described).accepted
            forged = replace(verdict.certificate, upper=truth - 1)
            assert not vf.check(forged, model=network, schema=described).accepted
            seen.add(truth)
    assert len(seen) > 1


@pytest.mark.parametrize("buckets", [2, 3, 20])
@pytest.mark.parametrize("rule", RULES)
def test_the_largest_k_of_smooth_networks_is_that_of_brute_force(rule: str, buckets: int) -> None:
    seen, described = set(), schema_of(*GROUPS, positive=rule)
    for seed, mix in enumerate(("mixed", "falls", "squares", "convex")):
        network = smoothed(made(seed, 3), np.random.default_rng(seed), mix)
        with precision(BITS):
            found = [bucket_of([middle(f) for f in logits(network, row)], rule, buckets) for row in described.encode(ROWS)]
        truth = max(len({found[n] for n in one}) for one in people(ROWS, [1, 2]))
        asked = vf.KDiscrimination(model=network, schema=described, protected=["b", "sex"], buckets=buckets)
        verdict = vf.verify(asked, budget=vf.Budget(seconds=20))
        assert verdict.lower == truth == verdict.upper, seed
        assert vf.check(verdict.certificate, model=network, schema=described).accepted
        forged = replace(verdict.certificate, upper=truth - 1)
        assert not vf.check(forged, model=network, schema=described).accepted
        seen.add(truth)
    assert len(seen) > 1 or buckets == 2


def middle(value: arb) -> Fraction:
    """The middle of a ball, to 200 digits its value."""
    mantissa, exponent = value.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


@pytest.mark.parametrize("rule", ["logit > 2", "logit >= 2", "logit < 1", "logit <= -1", "logit > 0", "logit <= 0"])
def test_two_buckets_of_a_threshold_are_the_decisions(rule: str) -> None:
    """Not whether the probability is above 1/2."""
    seen, described = set(), schema_of(*FEATURES, positive=rule)
    for seed in range(12):
        network = made(seed, 1)
        logits = [row[0] for row in outputs_of(network, ROWS)]
        favoured = [described.outcome.reached(np.array(value)) for value in logits]
        truth = max(len({bool(favoured[n]) for n in one}) for one in people(ROWS, [2]))
        asked = vf.KDiscrimination(model=network, schema=described, protected=["sex"], buckets=2)
        verdict = vf.verify(asked)
        assert verdict.lower == truth == verdict.upper
        report = vf.check(verdict.certificate, model=network, schema=described)
        assert report.accepted
        assert described.outcome.plain or f"(favourable means {rule})" in report.statement
        forged = replace(verdict.certificate, upper=truth - 1)
        assert not vf.check(forged, model=network, schema=described).accepted
        seen.add(truth)
    assert seen == {1, 2}


def test_a_proof_about_one_class_or_about_decisions_is_none_about_another() -> None:
    """Found by search among small networks: no decision for class 2 moves, while that for class 1, and its probability, do."""
    for seed in range(40):
        network = made(seed, 3)
        kept, other = (schema_of(*FEATURES, positive=f"class = {k}") for k in (2, 1))
        one = vf.verify(vf.KDiscrimination(model=network, schema=kept, protected=["sex"], buckets=2))
        two = vf.verify(vf.KDiscrimination(model=network, schema=other, protected=["sex"], buckets=2))
        many = vf.verify(vf.KDiscrimination(model=network, schema=kept, protected=["sex"], buckets=20))
        if (one.upper, two.lower, many.lower) == (1, 2, 2):
            break
    else:
        raise AssertionError("no such network")
    moved = replace(one.certificate, schema_sha256=other.sha256)
    assert not vf.check(moved, model=network, schema=other).accepted
    finer = replace(one.certificate, query=replace(one.certificate.query, buckets=20))
    assert not vf.check(finer, model=network, schema=kept).accepted
    assert "favourable means class = 2" in vf.check(one.certificate, model=network, schema=kept).statement
    assert "the probability that class = 2" in vf.check(many.certificate, model=network, schema=kept).statement


def test_borders_are_met_exactly() -> None:
    zero, one = Fraction(0), Fraction(1)
    assert softmax_bucket([zero] * 3, [1], 3) == 0  # P = 1/3 exactly: the lower of the two buckets
    assert softmax_bucket([zero] * 3, [1, 2], 3) == 1
    assert softmax_bucket([zero, zero, Fraction(1, 10**25)], [2], 3) == 1  # above it, though float64 does not show it
    assert softmax_bucket([zero, zero, Fraction(-1, 10**25)], [2], 3) == 0
    assert softmax_bucket([one, zero, zero, one], [0, 1], 4) == 1  # P = 1/2 of two pairs of equal logits
    assert softmax_bucket([Fraction(10**9), zero, zero], [0], 1000) == 999
    assert softmax_bucket([Fraction(-(10**9)), zero, zero], [0], 1000) == 0
    rng = np.random.default_rng(0)
    for _ in range(300):
        row = [Fraction(int(n), 4) for n in rng.integers(-6, 7, 4)]
        favoured, buckets = sorted(rng.choice(4, int(rng.integers(1, 4)), replace=False).tolist()), int(rng.integers(3, 40))
        assert softmax_bucket(row, favoured, buckets) == by_digits(row, favoured, buckets)


def test_a_guardrail_is_scored_by_the_classes_that_the_model_decides() -> None:
    network, described = made(1, 3), schema_of(*FEATURES, positive="class = 2")
    decided = np.array([largest(row) for row in outputs_of(network, ROWS)])
    labels = np.where(np.arange(len(ROWS)) % 3 == 0, (decided + 1) % 3, decided)
    for buckets in (2, 20):
        asked = vf.KDiscrimination(model=network, schema=described, protected=["sex"], buckets=buckets)
        assert score(asked.model, described, (), ROWS, labels) == (pytest.approx(2 / 3), 0.0)
