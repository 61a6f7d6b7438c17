"""The whole test of an intervention against loops written from the paper's definitions, on random tables full of ties."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from tests.cst_in_loops import authors_counts, people_tested, wald
from verifair.systems.cst.neighbours import Ties
from verifair.systems.cst.testing import Situations, Terms, situation_test

ATTRIBUTES = ("age", "income", "job", "region")
K = (1, 2, 5, 9)
WORDS = {"job": ["clerk", "cook", "nurse"], "region": ["north", "south"]}


def people(seed: int, *, n: int = 130) -> pd.DataFrame:
    """Numbers of a few levels, so that rows repeat and lie equally far; one column of a single value now and then; three groups."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "race": draw.choice(["a", "b", "c"], n), "sex": draw.choice(["f", "m"], n),
        "age": draw.integers(0, 5, n) * 10, "income": draw.integers(0, 9, n) / 8 if seed % 3 else np.full(n, 2.5),
        "job": draw.choice(WORDS["job"], n), "region": draw.choice(WORDS["region"], n, p=[0.9, 0.1]),
    })  # fmt: skip
    twice = draw.integers(0, n, n // 5)
    frame.loc[twice, list(ATTRIBUTES)] = frame.loc[draw.permutation(twice), list(ATTRIBUTES)].to_numpy()
    return frame.astype({"age": float, "income": float})


def counterfactuals(frame: pd.DataFrame, do: dict[str, str], seed: int) -> pd.DataFrame:
    """Any rows will do; some beyond the ranges of the table."""
    draw = np.random.default_rng(seed + 1000)
    tilde = frame[(frame[list(do)] != pd.Series(do)).all(axis=1)].copy()
    tilde["age"] += draw.integers(-2, 3, len(tilde)) * 10
    tilde["income"] = tilde["income"] + draw.integers(0, 3, len(tilde)) / 4
    tilde["job"] = draw.choice(WORDS["job"], len(tilde))
    return tilde.assign(**do)


def audited(frame: pd.DataFrame, tilde: pd.DataFrame, do: dict[str, str], negative: Any, **rest: Any) -> Situations:
    return situation_test(frame, tilde, do=do, attributes=ATTRIBUTES, decisions=~negative, k=K, **rest)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ties", get_args(Ties))
@pytest.mark.parametrize("do", [{"sex": "m"}, {"race": "b"}, {"race": "a", "sex": "m"}])
def test_every_group_of_every_complainant(do: dict[str, str], ties: Ties, seed: int) -> None:
    frame = people(seed)
    tilde, negative = counterfactuals(frame, do, seed), np.random.default_rng(seed).random(len(frame)) < 0.4
    found = audited(frame, tilde, do, negative, ties=ties)
    expected = people_tested(frame, tilde, do, ATTRIBUTES, negative.tolist(), K, ties)
    assert found.complainants.tolist() == [one.row for one in expected]
    for name in ("control", "standard", "counterfactual"):
        ours, theirs = getattr(found, name), np.array([getattr(one, name) for one in expected]).T
        assert ours == pytest.approx(theirs, abs=1e-9), name


def test_the_order_of_rows_does_not_matter_with_shared_ties() -> None:
    frame = people(2)
    do, order = {"sex": "m"}, np.random.default_rng(0).permutation(len(frame))
    tilde, negative = counterfactuals(frame, do, 2), np.random.default_rng(2).random(len(frame)) < 0.4
    found = audited(frame, tilde, do, negative)
    mixed = frame.iloc[order]
    again = audited(mixed, tilde.loc[[i for i in mixed.index if i in tilde.index]], do, negative[order])
    place = {int(order[row]): n for n, row in enumerate(again.complainants)}
    back = [place[int(row)] for row in found.complainants]
    for name in ("control", "standard", "counterfactual"):
        assert getattr(again, name)[:, back] == pytest.approx(getattr(found, name), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_authors_procedure(seed: int) -> None:
    """Scales of its own for each table, one-sided Wald limits, three decimals; numbers without ties: full groups."""
    draw = np.random.default_rng(seed)
    n = 260
    group = draw.random(n) < 0.4
    x = draw.normal(size=(n, 2)) * [20.0, 3.0] + group[:, None] * [-12.0, -1.0]
    y = x + group[:, None] * [12.0, 1.0]
    scores = np.array([1.0, 4.0])
    negative, tilde_negative = x @ scores < 0, y @ scores < 0
    frame = pd.DataFrame({"woman": group.astype(int), "u": x[:, 0], "v": x[:, 1]})
    tilde = frame.assign(u=y[:, 0], v=y[:, 1], woman=0)[group]
    found = situation_test(
        frame, tilde, do={"woman": 0}, attributes=("u", "v"), decisions=~negative, counterfactual_decisions=~tilde_negative[group],
        k=(5, 20), terms=Terms(interval="wald", sides=1, decimals=3), distance="standardised", own_scale=True, ties="first",
    )  # fmt: skip
    names = {"ST": "ST", "CSTwo": "CST w/o", "CSTwi": "CST", "CF": "CF"}
    for k in found.k:
        expected = authors_counts(x, y, group, negative, tilde_negative, k)
        ours = {short: found.claims(method, k) for short, method in names.items()}  # type: ignore[arg-type]
        for short, claims in ours.items():
            assert claims.positive.sum() == expected[short], (short, k)
            assert claims.significant.sum() == expected[f"{short}_sig"], (short, k)
        assert expected["CSTwo"] != expected["ST"]  # there is something to be told apart
        low, high = wald(float(ours["CSTwi"].p_control[0]), k + 1, float(ours["CSTwi"].p_test[0]), k + 1, 1.6448536)
        assert (ours["CSTwi"].low[0], ours["CSTwi"].high[0]) == pytest.approx((low, high), abs=1e-6)
