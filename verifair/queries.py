"""The questions that can be asked of a network, in the schema's names. Each is a frozen dataclass; `verifair.verify` answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from encoders.network import Network
from verifair.errors import QueryError
from verifair.schema import Schema


@dataclass(frozen=True, kw_only=True)
class PersistentBias:
    """Is the network more confident in x than in its counterfactual x', throughout the neighbourhood?  (PBA, eq. 1-8)

        min over |z_num - z~_num| <= delta units of   (f_ci - f_cj)(x) - (f_ci - f_cj)(x')   > 0

    x' is x with `sensitive` set to another value, everything else, perturbation included, the same. *observed* asks it of x
    against x', *flipped* with the roles swapped. delta counts units of each feature (the schema's `unit`).
    """

    network: Network
    schema: Schema
    sensitive: str
    delta: Sequence[float]

    def __post_init__(self) -> None:
        _check(self.network, self.schema, [self.sensitive])
        _check_delta(self.delta)


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """Does the decision on x survive every perturbation of the same neighbourhood?  (robustness bias RB, Nanda et al. 2021)

    With `sensitive`, it is also asked of every counterfactual of x (*flipped*), and the sensitive feature itself never moves.
    """

    network: Network
    schema: Schema
    delta: Sequence[float]
    sensitive: str | None = None

    def __post_init__(self) -> None:
        _check(self.network, self.schema, [self.sensitive] if self.sensitive else [])
        _check_delta(self.delta)


@dataclass(frozen=True, kw_only=True)
class IndividualFairness:
    """Is there no x in the box whose decision flips when protected values change?  (Fairify's property, strict signs)

    protected: attributes that differ between the two copies; with several, all of them differ (Fairify) unless `differ` is
    "any". box: feature -> value or (low, high), raw units or category names; every other feature ranges over its whole domain.
    """

    network: Network
    schema: Schema
    protected: Sequence[str]
    box: Mapping[str, Any] = field(default_factory=dict)
    differ: str = "all"

    def __post_init__(self) -> None:
        if not self.protected:
            raise QueryError("individual fairness needs a protected feature: pass protected=[...] or --protected NAME")
        _check(self.network, self.schema, self.protected)
        if self.network.outputs > 2:
            raise QueryError(
                f"a decision flip is defined here for two classes, the network has {self.network.outputs}; for more, ask "
                "PersistentBias or Robustness, which compare every pair of classes"
            )
        if self.differ not in ("all", "any"):
            raise QueryError(f"differ = {self.differ!r}, expected 'all' or 'any'")


Query = PersistentBias | Robustness | IndividualFairness


def _check(network: Network, schema: Schema, protected: Sequence[str]) -> None:
    schema.check_network(network)
    for name in protected:
        feature = schema.features[schema.index(name)]
        if len(schema.values(name)) < 2:
            raise QueryError(f"feature {name!r} has a single legal value, so nothing can be flipped; widen its range or categories")
        if feature.kind == "real":
            raise QueryError(f"feature {name!r} is real-valued and cannot be flipped; declare it integer, categorical or one-hot")


def _check_delta(delta: Sequence[float]) -> None:
    if not len(delta):
        raise QueryError("delta is empty: pass at least one neighbourhood size in units, e.g. delta=[1, 2, 3]")
    for value in delta:
        if not 0 <= value < float("inf"):
            raise QueryError(f"delta = {value}: expected a finite number of units, 0 or more")
