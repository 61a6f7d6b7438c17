"""Two baselines for equalized odds that fairlearn computes; imports it.

Post-processing: Hardt, Price and Srebro (NeurIPS 2016), by its ThresholdOptimizer.
Reductions: Agarwal, Beygelzimer, Dudik, Langford, Wallach (ICML 2018), by its ExponentiatedGradient.
The reduction's answer is a distribution over networks, each trained on labels and weights set by the multipliers; a decision draws
one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

from encoders.arrays import Array, Integers
from encoders.network import Network
from verifair.engine.questions import decisions
from verifair.systems.cec.audit import probability
from verifair.systems.cec.people import People
from verifair.systems.cec.training.decider import Rule, constant, mixture

ROUNDS = 5
"""Rounds of exponentiated gradient, each of three trainings; fairlearn's own 50 would be hours of neural networks."""
ALLOWED = 0.01
"""Violation of equalized odds, and 1 / the largest sum of multipliers."""
TIGHT = 1e-6
"""The duality gap at which rounds end early. Near it, fairlearn trains six more networks a round to measure it; so few rounds as
ours never get there, and the answer is the mixture with the least gap so far."""
Train = Callable[[Array, Integers, Array], Network]
"""(x (N, n_0), labels (N,), weights (N,) of mean 1) -> a trained network."""


class _Prefit(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network as fairlearn takes a fitted classifier."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.classes_ = np.array([0, 1])

    def fit(self, x: Array, y: Integers) -> _Prefit:
        """Return itself, since the network is already trained."""
        return self

    def predict_proba(self, x: Array) -> Array:
        positive = probability(self.network, x)
        return np.column_stack([1 - positive, positive])


def equalized_odds_rule(network: Network, people: People) -> Rule:
    """Fit group-dependent, randomised thresholds on the network's probability, with least error at equal TPR and FPR.

    Every group needs people of both labels.   Attributions of the result are the network's own: thresholds do not explain.
    """
    optimizer = ThresholdOptimizer(
        estimator=_Prefit(network), constraints="equalized_odds", objective="accuracy_score", prefit=True,
        predict_method="predict_proba",
    )
    optimizer.fit(people.x, people.labels, sensitive_features=people.groups)

    def rule(x: Array, groups: Integers) -> Array:
        return np.asarray(optimizer._pmf_predict(x, sensitive_features=groups)[:, 1])

    return rule


class _Trained(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A training of a network as fairlearn takes a classifier with sample weights."""

    def __init__(self, train: Train) -> None:
        self.train = train

    def fit(self, x: Array, y: Integers, sample_weight: Array) -> _Trained:
        self.network_ = self.train(np.asarray(x), np.array(y, dtype=np.int64), np.array(sample_weight))  # pandas' own are read-only
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, x: Array) -> Integers:
        return decisions(self.network_, np.asarray(x))


@dataclass(frozen=True, kw_only=True, eq=False)
class Randomised:
    """Networks and their probabilities (T,).   trainings: number of networks that were trained to find them."""

    networks: tuple[Network, ...]
    probabilities: Array
    trainings: int

    @property
    def expected(self) -> Network:
        """The network whose logits are the expected ones: its attributions are the expected attributions."""
        return mixture(self.networks, self.probabilities)

    def rule(self) -> Rule:
        """The probability that the drawn network decides positively."""

        def positive(x: Array, groups: Integers) -> Array:
            return np.asarray(self.probabilities @ np.stack([decisions(network, x) for network in self.networks]))

        return positive


def reduce(people: People, train: Train) -> Randomised:
    """Run the reduction.

    Every group needs people of both labels. A round whose answer is one label for everybody yields a constant network.
    """
    result = ExponentiatedGradient(_Trained(train), EqualizedOdds(difference_bound=ALLOWED), eps=ALLOWED, max_iter=ROUNDS, nu=TIGHT)
    with warnings.catch_warnings():  # fairlearn 0.15 extends Series by .at, which pandas 3 deprecates
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="fairlearn")
        result.fit(people.x, people.labels, sensitive_features=people.groups)
    probabilities = result.weights_.reindex(result.predictors_.index).to_numpy(dtype=float)
    used = np.flatnonzero(probabilities > 0)
    members = [result.predictors_.iloc[t] for t in used]
    shape = next(model.network_ for model in result.predictors_ if isinstance(model, _Trained))
    networks = tuple(
        constant(shape, bool(model.constant)) if isinstance(model, DummyClassifier) else model.network_ for model in members
    )
    chosen = probabilities[used]
    return Randomised(networks=networks, probabilities=chosen / chosen.sum(), trainings=result.n_oracle_calls_)
