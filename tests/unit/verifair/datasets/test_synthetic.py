"""The synthetic applicants: what the CEC paper's recipe promises."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from verifair import datasets
from verifair.datasets.synthetic_table import NOISE, SHIFT, TAU, WEIGHTS
from verifair.errors import DataError

DATA = datasets.synthetic(n=40_000, seed=3)
MERITS, PROXIES, NOISES = ([f"{kind}-{k}" for k in range(1, n + 1)] for kind, n in (("merit", 10), ("proxy", 5), ("noise", 5)))


def test_twenty_features_and_a_group_that_is_none() -> None:
    schema = datasets.load("synthetic").schema
    assert [feature.name for feature in schema.features] == [*MERITS, *PROXIES, *NOISES]
    assert [feature.name for feature in schema.features if feature.merit] == MERITS
    assert schema.domain.columns == 20
    assert set(datasets.load("synthetic").frame.columns) == {*MERITS, *PROXIES, *NOISES, "group", "approved"}
    assert len(datasets.load("synthetic").frame) == 10_000


def test_only_proxies_tell_the_group() -> None:
    group = (DATA.frame["group"] == "1").to_numpy()
    shift = DATA.frame.loc[group, [*MERITS, *PROXIES, *NOISES]].mean() - DATA.frame.loc[~group, [*MERITS, *PROXIES, *NOISES]].mean()
    assert np.abs(shift[PROXIES] - SHIFT).max() < 0.05  # 0.5 standard deviations, five times the sampling error
    assert np.abs(shift[[*MERITS, *NOISES]]).max() < 0.05
    within = DATA.frame.loc[group, [*MERITS, *PROXIES, *NOISES]].std()
    assert np.abs(within - 1).max() < 0.03


def test_merit_alone_decides() -> None:
    labels = DATA.schema.labels(DATA.frame)
    score = DATA.frame[MERITS].to_numpy() @ WEIGHTS
    assert ((score > TAU) == labels).mean() > 0.9
    assert (labels[score > TAU + 5 * NOISE] == 1).all()
    assert 0.48 < labels.mean() < 0.52
    fitted = LogisticRegression().fit(DATA.frame[[*MERITS, *PROXIES, *NOISES]], labels).coef_[0]
    assert np.abs(fitted[10:]).max() < 0.05 * fitted[0]  # neither proxies nor noise
    assert np.allclose(fitted[:10] / fitted[0], WEIGHTS, atol=0.05)


def test_the_seed_is_the_data() -> None:
    assert datasets.synthetic(n=50, seed=1).frame.equals(datasets.synthetic(n=50, seed=1).frame)
    assert not datasets.synthetic(n=50, seed=1).frame.equals(datasets.synthetic(n=50, seed=2).frame)


def test_every_draw_is_legal() -> None:
    assert DATA.schema.raw(DATA.frame).shape == (40_000, 20)  # raises for a row outside the declared range


def test_nobody() -> None:
    with pytest.raises(DataError, match="synthetic: n = 0, expected at least one person"):
        datasets.synthetic(n=0)
