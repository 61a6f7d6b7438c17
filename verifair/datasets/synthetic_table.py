"""Synthetic applicants with a known truth: merit alone decides, other features reveal the group. (CEC paper, section "Datasets")"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from verifair.errors import DataError
from verifair.schema.schema import Schema

MERITS, PROXIES, NOISES = 10, 5, 5
SHIFT = 0.5
"""How far the proxies' means of the two groups lie apart, in standard deviations."""
WEIGHTS = np.linspace(1.0, 0.1, MERITS)
"""w: 1.0, 0.9, ..., 0.1, so that some merits matter more than others."""
NOISE = 0.5
"""Standard deviation of eps; that of w.x_F is 1.96."""
TAU = 0.0
"""The threshold of w.x_F + eps: half of the people are positive."""
LIMIT = 6.0
"""Draws are clipped to -LIMIT .. LIMIT, so that the schema can declare a range; of a million, none is expected beyond."""
GROUP = "group"


def names() -> tuple[str, ...]:
    """Return the 20 features, merits first."""
    kinds = (("merit", MERITS), ("proxy", PROXIES), ("noise", NOISES))
    return tuple(f"{kind}-{k}" for kind, count in kinds for k in range(1, count + 1))


def synthetic_frame(n: int, seed: int) -> pd.DataFrame:
    """Draw n people: 20 features, `group` "0" or "1" with even odds, and the label `approved`, "yes" or "no".

    x_F ~ N(0, 1) independent of the group A; proxies ~ N((A - 1/2) SHIFT, 1); noise ~ N(0, 1);
    y = 1[w.x_F + eps > tau], eps ~ N(0, NOISE^2). The paper gives n, the three kinds and the shift; w, the variance of eps and
    tau are ours. The group is a column of the table, but not an input of the network: the paper has d = 20.
    """
    if n < 1:
        raise DataError(f"synthetic: n = {n}, expected at least one person")
    draw = np.random.default_rng(seed)
    group = draw.integers(0, 2, size=n)
    x = draw.normal(size=(n, MERITS + PROXIES + NOISES))
    x[:, MERITS : MERITS + PROXIES] += SHIFT * (group[:, None] - 0.5)
    x = x.clip(-LIMIT, LIMIT)
    positive = x[:, :MERITS] @ WEIGHTS + draw.normal(scale=NOISE, size=n) > TAU
    frame = pd.DataFrame(x, columns=list(names()))
    return frame.assign(**{GROUP: group.astype(str)}, approved=np.where(positive, "yes", "no"))


def synthetic_schema() -> Schema:
    """Describe 20 real features as they are (they are standardised), the ten merits marked."""
    features: list[dict[str, Any]] = [
        {"name": name, "kind": "real", "range": [-LIMIT, LIMIT], "unit": 0.1, "merit": name.startswith("merit")} for name in names()
    ]
    return Schema.build({"features": features, "positive": "class = 1", "label": "approved", "positive_label": "yes"})
