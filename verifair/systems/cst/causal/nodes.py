"""One node of a causal model: its parents, and the form of its mechanism."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from encoders.arrays import Array
from verifair.errors import SchemaError
from verifair.systems.cst.causal.mechanisms import Linear, Spec


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """name: of the table's column.   parents: none for a root, whose mechanism is not used.

    decimals: a predicted value is rounded to so many (half to even), then   range: clipped to (low, high), in the column's units.
    Values that the intervention does not change are neither rounded nor clipped.
    Raises SchemaError for a name that is no text, a mechanism that is none, a parent named twice, and a reversed range.
    """

    name: str
    parents: tuple[str, ...] = ()
    mechanism: Spec = field(default_factory=Linear)
    range: tuple[float, float] | None = None
    decimals: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or isinstance(self.parents, str):
            raise SchemaError(
                f"node {self.name!r}: with parents {self.parents!r}; a name is a text and parents are several: name columns, such "
                'as parents=("sex",)'
            )
        if isinstance(self.mechanism, type) or not hasattr(self.mechanism, "fit"):
            raise SchemaError(
                f"node {self.name!r}: mechanism is {self.mechanism!r}; pass one of Linear(), LogLinear(), Additive(function=...), "
                "Categorical()"
            )
        twice = sorted({parent for parent in self.parents if self.parents.count(parent) > 1})
        if twice:
            raise SchemaError(f"node {self.name!r}: parents name {twice[0]!r} twice; name each once")
        if self.range is not None and not self.range[0] <= self.range[1]:
            raise SchemaError(f"node {self.name!r}: range = [{self.range[0]:g}, {self.range[1]:g}] is reversed; write [low, high]")

    def bounded(self, values: Array) -> Array:
        """Return predicted values (N,), rounded and clipped as the node says."""
        if self.decimals is not None:
            values = np.round(values, self.decimals)
        if self.range is not None:
            values = np.clip(values, *self.range)
        return values

    @property
    def bounds(self) -> str:
        """Return the rounding and clipping of a predicted value in words; empty if there is none."""
        parts = [] if self.decimals is None else [f"rounded to {self.decimals} decimals"]
        if self.range is not None:
            parts.append(f"clipped to [{self.range[0]:g}, {self.range[1]:g}]")
        return ", ".join(parts)
