"""Bounds of the float32 error of a tree ensemble's logits: only their sums are rounded."""

import numpy as np

from encoders.arrays import Array
from encoders.trees.ensemble import UNIT, TreeEnsemble


def float32_errors(model: TreeEnsemble) -> Array:
    """Return (m,) bounds of the error of any float32 evaluation of a logit, in any order of the sum, for all rows.

    gamma_n times the sum of |values|, gamma_n = n u / (1 - n u), u = 2^-24 (Higham 2002, section 4.2); 2^-120 a term for underflow.
    inf if nothing is known, or if a sum may exceed 2^100: in some order it may overflow.
    """
    n = model.terms
    if n is None or n * UNIT >= 0.5 or model.largest.max() > 2.0**100:
        return np.full(model.outputs, np.inf)
    return np.asarray((n * UNIT / (1 - n * UNIT) * model.largest + n * 2.0**-120) * (1 + 2.0**-30))
