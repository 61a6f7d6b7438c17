"""Loss terms of the three training methods. The only arithmetic here is torch's; every term is a scalar tensor.

z: logits (B, 2), class 1 is the positive one.
"""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def classification(z: Tensor, labels: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of the softmax; with class_weight (2,), the weighted mean."""
    return cross_entropy(z, labels, weight=class_weight)


def counterfactual_gap(z: Tensor, z_flipped: Tensor) -> Tensor:
    """CertiFair's local penalty: mean over the batch of |p(1 | x) - p(1 | x')|, within [0, 1].

    x' is x with another sensitive value and everything else the same. The gradient is 0 where both predictions are
    equal, and an empty batch gives 0. Reference: Khedr & Shoukry, CertiFair (AAAI 2023), as used in PBA, A.3.
    """
    if not len(z):
        return z.sum()
    return (z.softmax(dim=1)[:, 1] - z_flipped.softmax(dim=1)[:, 1]).abs().mean()


def margin_gap(z: Tensor, groups: Tensor) -> Tensor:
    """Fair-N's penalty: mean over pairs of groups of |mean margin of one - mean margin of the other|, margin = |z_1 -
    z_0|.

    groups: (B,) group numbers. Groups without rows in the batch are left out; with fewer than two left, it is 0
    (gradient 0). With two groups it is the paper's term; averaging over pairs keeps lambda_f comparable when there are
    more. Reference: Sharma et al., Fair-N (AIES 2021), as used in PBA, A.3.
    """
    margin = (z[:, 1] - z[:, 0]).abs()
    means = [margin[groups == group].mean() for group in groups.unique()]
    gaps = [(one - other).abs() for one, other in combinations(means, 2)]
    return torch.stack(gaps).mean() if gaps else margin.sum() * 0.0
