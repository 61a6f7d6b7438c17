"""A sample of Adult with the size and balance that fit the PBA paper's numbers. Inferred: the paper does not describe it.

The percentages of its table 1 are fractions of 302 women and 658 men, of 186 Black and 774 White people, nobody else; the
true-positive rates of women are fractions of 143, those of Black people of 79, and about half have a high income. Five times as
many rows with these counts are drawn here, so that the 20 % held out are as many as the paper's. (Its rates of men fit no number.)
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from encoders.arrays import Array, Integers

SAMPLE_SIZE = 4800
WOMEN = {"<=50K": 795, ">50K": 715}
BLACK = {"<=50K": 535, ">50K": 395}
"""Numbers of Black people among 2,400 people of each label."""


def balanced_frame(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Draw the sample from Adult's rows, in their order, numbered anew."""
    rng = np.random.default_rng(seed)
    samples = []
    for label in WOMEN:
        rows = frame[(frame["income"] == label) & frame["race"].isin(["Black", "White"])]
        cells = rows.groupby(["sex", "race"]).size().unstack()  # Female, Male by Black, White
        women, black, people = WOMEN[label], BLACK[label], SAMPLE_SIZE // 2
        counts = _margins(
            cells.to_numpy(dtype=np.float64), np.array([women, people - women]), np.array([black, people - black])
        )
        samples += [
            rows[(rows["sex"] == sex) & (rows["race"] == race)].sample(int(counts[i, j]), random_state=rng)
            for i, sex in enumerate(cells.index) for j, race in enumerate(cells.columns)
        ]
    return pd.concat(samples).sort_index().reset_index(drop=True)


def _margins(cells: Array, rows: Integers, columns: Integers) -> Integers:
    """Return (2, 2) whole numbers with these sums of rows and columns, and about the odds ratio of `cells` (iterated fitting).

    Of the first cell no more than there are: Adult has 126 Black women with a high income.
    """
    fitted = cells.copy()
    for _ in range(100):
        fitted *= (rows / fitted.sum(axis=1))[:, None]
        fitted *= columns / fitted.sum(axis=0)
    corner = min(round(float(fitted[0, 0])), int(cells[0, 0]))
    return np.array([[corner, rows[0] - corner], [columns[0] - corner, rows[1] - (columns[0] - corner)]])
