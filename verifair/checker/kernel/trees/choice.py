"""The choice of bounds for a tree ensemble. They are loaded on demand, so that checks of networks need not trust them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoders.domain import Domain
from encoders.model import Model
from encoders.trees.ensemble import TreeEnsemble

if TYPE_CHECKING:
    from verifair.checker.kernel.trees.bounds import TreeBounds
    from verifair.checker.kernel.trees.means import MeanBounds


def tree_bounds(network: Model, domain: Domain) -> TreeBounds | MeanBounds | None:
    """Return the bounds of a tree ensemble's margins; None for networks."""
    if not network.of_trees:
        return None
    if isinstance(network, TreeEnsemble):
        from verifair.checker.kernel.trees.bounds import TreeBounds

        return TreeBounds(network, domain)
    from encoders.trees.mean import MeanOfTrees

    if isinstance(network, MeanOfTrees):
        from verifair.checker.kernel.trees.means import MeanBounds

        return MeanBounds(network, domain)
    from encoders.trees.compared import ComparedTrees
    from verifair.checker.kernel.trees.compared import ComparedBounds

    assert isinstance(network, ComparedTrees)
    return ComparedBounds(network, domain)
