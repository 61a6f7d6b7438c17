"""Post-processing for equalized odds: Hardt, Price and Srebro (NeurIPS 2016), by fairlearn's ThresholdOptimizer."""

from __future__ import annotations

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.base import BaseEstimator, ClassifierMixin

from encoders.network import Array, Integers, Network
from verifair.systems.cec.audit import probability
from verifair.systems.cec.people import People
from verifair.training.baselines.decider import Rule


class _Prefit(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network as fairlearn takes a fitted classifier."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.classes_ = np.array([0, 1])

    def fit(self, x: Array, y: Integers) -> _Prefit:
        """Nothing to do: the network is trained."""
        return self

    def predict_proba(self, x: Array) -> Array:
        positive = probability(self.network, x)
        return np.column_stack([1 - positive, positive])


def equalized_odds_rule(network: Network, people: People) -> Rule:
    """Group-dependent, randomised thresholds on the network's probability, of least error under equal TPR and FPR on these people.

    Every group needs people of both labels.   Attributions of the result are the network's own: thresholds do not explain.
    """
    optimizer = ThresholdOptimizer(
        estimator=_Prefit(network), constraints="equalized_odds", objective="accuracy_score", prefit=True,
        predict_method="predict_proba",
    )  # fmt: skip
    optimizer.fit(people.x, people.labels, sensitive_features=people.groups)

    def rule(x: Array, groups: Integers) -> Array:
        return np.asarray(optimizer._pmf_predict(x, sensitive_features=groups)[:, 1])

    return rule
