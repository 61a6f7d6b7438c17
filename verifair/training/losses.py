"""Loss terms of the training methods. The only arithmetic here is torch's; every term is a scalar tensor.

z: logits (B, 2), class 1 is the positive one.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot


def classification(z: Tensor, labels: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of the softmax; with class_weight (2,), the weighted mean."""
    return cross_entropy(z, labels, weight=class_weight)


def weighted_classification(z: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Mean over the batch of weight (B,) times cross-entropy: rows of weight 0 count as rows without a loss."""
    return (cross_entropy(z, labels, reduction="none") * weights).mean()


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


def equalized_odds(z: Tensor, labels: Tensor, groups: Tensor, count: int) -> Tensor:
    """CEC's outcome term: (TPR_0 - TPR_1)^2 + (FPR_0 - FPR_1)^2 with soft rates, a group's mean p(1 | x) under a label.

    labels, groups: (B,); count: number G of groups. With more than two groups, each square is the mean over the pairs of
    groups that have rows with that label in the batch; a label without such a pair contributes 0 (gradient 0).
    Reference: CEC, "Training Objective".
    """
    cell = one_hot(labels * count + groups, 2 * count).to(z.dtype)
    rows = cell.sum(dim=0)
    rate = (((z[:, 1] - z[:, 0]).sigmoid() @ cell) / rows.clamp(min=1)).view(2, count)
    between = _differences(count).to(z.dtype)
    both = ((rows > 0).to(z.dtype).view(2, count) @ between.abs() == 2).to(z.dtype)
    return ((rate @ between).square() * (both / both.sum(dim=1, keepdim=True).clamp(min=1))).sum()


@cache
def _differences(count: int) -> Tensor:
    """(G, pairs): a row vector of G values times it is their differences, one for each pair."""
    one, other = torch.triu_indices(count, count, 1)
    return torch.eye(count)[:, one] - torch.eye(count)[:, other]


def explanation_gap(g: Tensor, eps: float = 1e-8) -> Tensor:
    """CEC's procedural term: mean over pairs of || g / (|g| + eps) - g~ / (|g~| + eps) ||^2 / 4, within [0, 1].

    g: (2, P, n) attributions of the persons, and of their counterparts. The square is summed as it is, as a root has no
    gradient at 0; the norm of an attribution of 0 has gradient 0, so that the attribution's own is 1 / eps at most. No
    pairs give 0. Reference: CEC, definition 3 and "Training Objective".
    """
    unit = g / (torch.linalg.vector_norm(g, dim=2, keepdim=True) + eps)
    return (unit[0] - unit[1]).square().sum() / (4 * max(1, g.shape[1]))
