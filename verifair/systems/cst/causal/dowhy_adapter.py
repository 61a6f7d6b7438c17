"""A causal model built and fitted in DoWhy (dowhy.gcm), as a causal model of ours.

Reference: Bloebaum et al. 2024, DoWhy-GCM; `dowhy.gcm.counterfactual_samples` gives the same counterfactuals, one column at a time.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array
from verifair.errors import MissingPackage, SchemaError
from verifair.systems.cst.causal.mechanisms import Additive
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node


def from_dowhy(model: Any) -> CausalModel:
    """Return a causal model with the same graph and the same fitted mechanisms.

    model: dowhy.gcm.InvertibleStructuralCausalModel after gcm.fit, whose nodes with parents have an AdditiveNoiseModel (or
    DiscreteAdditiveNoiseModel); any distribution will do for a root.   `fit` of the result keeps DoWhy's mechanisms as they are.
    Raises MissingPackage without dowhy, SchemaError for another model, for other mechanisms, and for one that is not fitted.
    """
    gcm = _gcm()
    if not isinstance(model, gcm.InvertibleStructuralCausalModel):
        raise SchemaError(
            f"dowhy model: found {type(model).__name__}, expected gcm.InvertibleStructuralCausalModel: only such a model can "
            "tell the noise of a row; build it with that class and fit it again"
        )
    return CausalModel(nodes=tuple(_node(gcm, model, name) for name in model.graph.nodes))


def _gcm() -> Any:
    try:
        return importlib.import_module("dowhy.gcm")
    except ImportError as error:
        raise MissingPackage('dowhy is not installed: python -m pip install "dowhy>=0.12"') from error


def _node(gcm: Any, model: Any, name: Any) -> Node:
    parents = tuple(sorted(model.graph.predecessors(name)))  # the order that DoWhy fits them in
    if not parents:
        return Node(name=name)
    try:
        mechanism = model.causal_mechanism(name)
    except (KeyError, ValueError) as error:
        raise SchemaError(f"node {name!r}: has no mechanism; assign one with set_causal_mechanism, and call gcm.fit") from error
    if not isinstance(mechanism, gcm.AdditiveNoiseModel):
        raise SchemaError(
            f"node {name!r}: has a {type(mechanism).__name__}, expected gcm.AdditiveNoiseModel: assign that one and fit again, or "
            'describe the node in our own terms, with mechanism = "log-linear" or "categorical"'
        )
    if model.graph.nodes[name].get("parents_during_fit") != list(parents):
        raise SchemaError(f"node {name!r}: its mechanism is not fitted to these parents; call gcm.fit with a table first")
    return Node(
        name=name, parents=parents, mechanism=Additive(function=partial(_predicted, mechanism), described=_words(mechanism))
    )


def _predicted(mechanism: Any, parents: pd.DataFrame) -> Array:
    """(N,) prediction without noise."""
    return np.asarray(mechanism.evaluate(parents.to_numpy(), np.zeros((len(parents), 1))), dtype=np.float64).reshape(-1)


def _words(mechanism: Any) -> str:
    """The regression's name, such as LinearRegression."""
    regression = mechanism.prediction_model
    return type(getattr(regression, "sklearn_model", regression)).__name__
