"""Which bounds the margins of a tree ensemble have."""

from __future__ import annotations

from encoders.domain import Domain
from encoders.network import Model, Network
from encoders.trees.ensemble import TreeEnsemble
from verifair.checker.kernel.trees import TreeBounds


def tree_bounds(network: Model, domain: Domain) -> TreeBounds | None:
    """Return the bounds of a tree ensemble's margins; None for networks. Those of several classes are loaded when asked."""
    if isinstance(network, Network):
        return None
    if isinstance(network, TreeEnsemble):
        return TreeBounds(network, domain)
    from encoders.trees.compared import ComparedTrees
    from verifair.checker.kernel.compared import ComparedBounds

    assert isinstance(network, ComparedTrees)
    return ComparedBounds(network, domain)
