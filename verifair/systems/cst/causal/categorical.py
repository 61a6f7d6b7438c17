"""Categorical nodes: a classifier gives the probabilities of the categories, and Gumbel noise picks the one that a row has.

child = argmax over c of log p(c | parents) + G(c), with independent Gumbel noises G. Abduction draws the noises that a row may
have had, given its category: the largest sum has a Gumbel distribution whatever the category, and the other sums are Gumbels cut
off at it ("top-down" sampling). A counterfactual with these noises keeps the category wherever its odds do not fall against every
other (counterfactual stability).
Reference: Oberst and Sontag 2019, section 3; Maddison et al. 2014, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from encoders.arrays import Array
from verifair.errors import DataError, SchemaError
from verifair.systems.cst.causal.design import Design, shown
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.mechanisms import Mechanism, is_estimator, seeded
from verifair.systems.groups import blocks, identities

LARGEST = 200
"""More categories than this are taken for a number that was meant to be fitted."""
TINY = np.finfo(np.float64).tiny
"""A classifier may give an observed category the probability 0; its noise is then that of this probability."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CategoricalMechanism(Mechanism):
    """design: of the parents.   classifier: fitted to it.   classes: (C,) as the column writes them, in the classifier's order."""

    design: Design
    classifier: Any
    classes: npt.NDArray[Any]

    def noise(self, parents: pd.DataFrame, child: pd.Series, draws: Draws) -> Array:
        """(N, C) Gumbel noises, drawn given the category that each row has."""
        category = self._places(child)
        probability = np.maximum(self._probabilities(parents), TINY)
        exponential = -np.log(draws.uniform(len(self.classes) + 1))
        largest, others = exponential[:, -1:], exponential[:, :-1]  # exp(-largest sum), and p exp(-the others' sums) before the cut
        noise = -np.log(others + probability * largest)
        rows = np.arange(len(category))
        noise[rows, category] = -np.log(largest[:, 0]) - np.log(probability[rows, category])
        return np.asarray(noise)

    def value(self, parents: pd.DataFrame, noise: Array) -> npt.NDArray[Any]:
        with np.errstate(divide="ignore"):  # a category of probability 0 is never the largest
            sums = np.log(self._probabilities(parents)) + noise
        return np.asarray(self.classes[sums.argmax(axis=1)])

    def transitions(self, parents: pd.DataFrame, child: pd.Series, counterfactual: pd.DataFrame) -> Array:
        """(N, C) probability of each category under other parents, (N, P) as `counterfactual`, given the category that the row has.

        With E = exp(-largest sum), which has rate 1, and E + X_i for the other sums, X_i of rate p_i (`noise`), category i wins at
        the least of (E + X_j) p_j / p'_j. A row keeps its category k with 1 / (1 + sum over j of p_j (w_j - 1)+), where
        w_j = (p'_j / p_j) / (p'_k / p_k); the others win by integrals of 1 / (A + B s)^2 between the points where the sum bends.
        """
        rows, category = np.arange(len(parents)), self._places(child)
        before, after = (np.maximum(self._probabilities(table), TINY) for table in (parents, counterfactual))
        ratio = before / after  # s, the least that E may be multiplied by for a category to win
        order = np.argsort(ratio, axis=1, kind="stable")
        stop = ratio[rows, category]
        probability, constant, slope = np.zeros_like(before), np.ones(len(rows)), np.zeros(len(rows))
        rates = np.zeros_like(before)  # of the categories that may win by now
        for k in range(before.shape[1]):
            current = order[:, k]
            start = np.minimum(ratio[rows, current], stop)
            end = np.minimum(ratio[rows, order[:, k + 1]], stop) if k + 1 < before.shape[1] else stop
            active = ratio[rows, current] < stop
            rates[rows[active], current[active]] = after[rows, current][active]
            constant = constant - np.where(active, before[rows, current], 0.0)
            slope = slope + np.where(active, after[rows, current], 0.0)
            piece = (end - start) / (constant + slope * start) / (constant + slope * end)
            probability += rates * np.where(active, piece, 0.0)[:, None]
        probability[rows, category] = 1 / (constant + slope * stop)
        return probability

    def equation(self, node: str) -> str:
        parents = ", ".join(self.design.parents)
        return f"{node} = argmax over {len(self.classes)} categories of log p(category | {parents}) + Gumbel noise"

    def _probabilities(self, parents: pd.DataFrame) -> Array:
        return np.asarray(self.classifier.predict_proba(self.design.matrix(parents)), dtype=np.float64)

    def _places(self, child: pd.Series) -> npt.NDArray[np.intp]:
        """(N,) positions of the rows' categories among the classes."""
        codes, values = pd.factorize(child)
        classes = self.classes.tolist()
        unknown = [value for value in values.tolist() if value not in classes]
        if unknown:
            raise DataError(
                f"node {child.name!r}: category {shown(unknown[0])} is not among those the model was fitted on, "
                f"{', '.join(map(str, classes[:12]))}; fit it on rows that have it, or leave such rows out"
            )
        return np.asarray(np.array([classes.index(value) for value in values.tolist()], dtype=np.intp)[codes])


@dataclass(frozen=True, kw_only=True, eq=False)
class Categorical:
    """classifier: any scikit-learn classifier with predict_proba, cloned and fitted to the parents' design (words as indicators).

    None: logistic regression on standardised columns, of the distinct rows with their numbers as weights.
    """

    classifier: Any | None = None

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> CategoricalMechanism:
        """Raises SchemaError for a classifier without probabilities, DataError for a column of one category or of very many."""
        base = self.classifier
        if base is not None and not (is_estimator(base) and hasattr(base, "predict_proba")):
            raise SchemaError(f"node {child.name!r}: classifier is {base!r}; pass a scikit-learn classifier with predict_proba")
        try:
            codes, values = pd.factorize(child, sort=True)
        except TypeError as error:
            raise DataError(f"node {child.name!r}: a value is no category ({error}); correct the data, or drop the node") from None
        if not 2 <= len(values) <= LARGEST:
            remedy = "drop its parents" if len(values) < 2 else 'a number needs mechanism = "linear"'
            raise DataError(f"node {child.name!r}: {len(values)} different values; a categorical node has 2 to {LARGEST}: {remedy}")
        design = Design.of(parents, node=str(child.name))
        fitted = _logistic(design, parents, codes, seed) if base is None else seeded(base, seed).fit(design.matrix(parents), codes)
        return CategoricalMechanism(design=design, classifier=fitted, classes=_values(values))


def _logistic(design: Design, parents: pd.DataFrame, codes: npt.NDArray[np.intp], seed: int) -> Pipeline:
    """Fit a logistic regression to the distinct rows. Of a million rows the design is large: one copy of it is held."""
    parents, codes, count = _distinct(parents, codes)
    scaler, x = StandardScaler(copy=False), np.empty((len(codes), len(design.terms)))
    for part in blocks(len(codes)):
        scaler.partial_fit(design.matrix(parents.iloc[part]), sample_weight=count[part])
    for part in blocks(len(codes)):
        x[part] = scaler.transform(design.matrix(parents.iloc[part]))
    logistic = LogisticRegression(max_iter=1000, random_state=seed).fit(x, codes, sample_weight=count)
    return make_pipeline(scaler, logistic)


def _distinct(
    parents: pd.DataFrame, codes: npt.NDArray[np.intp]
) -> tuple[pd.DataFrame, npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Return the distinct rows of parents and categories in the table's order, and how many there are of each."""
    columns = [*(pd.factorize(parents[name])[0].astype(np.int32) for name in parents), codes.astype(np.int32)]
    identity = identities(np.column_stack(columns))
    _, first, count = np.unique(identity, return_index=True, return_counts=True)
    order = np.argsort(first)
    return parents.iloc[first[order]], codes[first[order]], count[order]


def _values(values: Any) -> npt.NDArray[Any]:
    """Categories (C,) in their own type: numbers stay numbers, words are objects."""
    array = np.asarray(values)
    return array if array.dtype.kind in "biuf" else np.array(list(values), dtype=object)
