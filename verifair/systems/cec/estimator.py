"""ExplanationConsistency: fit on the people to compare with, then audit these or others. scikit-learn's conventions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from encoders.model import Model
from verifair.checker.report import Progress
from verifair.errors import QueryError
from verifair.models.read import read
from verifair.schema.schema import Schema
from verifair.systems.arguments import check_number, check_settings
from verifair.systems.cec.attributions import Attribution
from verifair.systems.cec.audit import ComparedPairs, audit, control
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import merit_columns, people_of
from verifair.systems.cec.settings import DEFAULTS, CecSettings, Ties
from verifair.systems.estimators import TableEstimator
from verifair.systems.stores import Parts


class ExplanationConsistency(TableEstimator):
    """Measure whether comparable people of different groups get the same decision for similar reasons.  (CEC)

    model: a model, or anything that `verifair.read` takes.   schema: of its columns; merit = true marks the features of merit.
    tau: largest distance of a counterpart, in standard deviations of merit (None: no limit).
    threshold: scores above it count as different reasons.   steps: None for exact integrals, T for a Riemann sum (the paper: 32).
    ties, seed: the choice among equally near people.   threads: for the attributions.
    attribution: a function that explains the model: takes model inputs x (B, n) and reference rows (R, n), the people of the same
    group and true class, and returns (B, n) numbers. None: integrated gradients of networks, interventional Shapley values of tree
    ensembles.
    Sound? Complete? neither: a measurement (`Finding`), never a proof.
    Reference: CEC (Counterfactual Explanation Consistency), definitions 2 and 3.
    """

    def __init__(
        self, model: Any, schema: Schema, *, tau: float | None = DEFAULTS.tau, threshold: float = DEFAULTS.threshold,
        steps: int | None = None, ties: Ties = DEFAULTS.ties, seed: int = 0, threads: int = 2,
        attribution: Attribution | None = None,
    ) -> None:
        self.model, self.schema, self.tau, self.threshold, self.steps = model, schema, tau, threshold, steps
        self.ties, self.seed, self.threads, self.attribution = ties, seed, threads, attribution

    def fit(self, X: pd.DataFrame, y: Any = None, *, sensitive_features: Any) -> ExplanationConsistency:
        """Take counterparts and baselines from the rows of X.

        y: (N,) true classes (default: the schema's label column).   sensitive_features: a column's name, several names (groups are
        their combinations), an array or Series (N,), or a DataFrame.   Sets reference_.
        Raises SchemaError without merit features, DataError for one group or label only, or a group without one of the labels.
        """
        _, schema = self._check()
        people = people_of(schema, X, _named(sensitive_features), y)
        self.reference_ = Reference.of(people, merit_columns(self.schema))
        self._note_columns(X)
        return self

    def audit(
        self, X: pd.DataFrame, y: Any = None, *, sensitive_features: Any, progress: Progress | None = None,
        store: str | Path | None = None, resume: bool = False,
    ) -> ComparedPairs:
        """Compare the rows of X, which may be those of `fit`, with their counterparts; returns `ComparedPairs`.

        store: SQLite file that keeps partial results.   resume: use the partial results for these rows that the store holds.
        Raises DataError where a group is unknown to `fit`, or where nobody has a counterpart within tau.
        """
        network, schema = self._check()
        check_is_fitted(self)
        people = people_of(schema, X, _named(sensitive_features), y, names=self.reference_.people.names)
        with self._kept(store, resume) as parts:
            return audit(
                network, self.reference_, people, self._settings(), attribution=self.attribution, seed=self.seed,
                threads=self.threads, progress=progress, parts=parts,
            )

    def control(
        self, found: ComparedPairs, *, progress: Progress | None = None, store: str | Path | None = None, resume: bool = False
    ) -> ComparedPairs:
        """Compare each person of an audit with the nearest other one of the same group (`audit.control`, `measures.excess`).

        store, resume: as in `audit`; it may be the same file.
        """
        check_is_fitted(self)
        network, _ = self._check()
        with self._kept(store, resume) as parts:
            return control(
                network, self.reference_, found, self._settings(), attribution=self.attribution, seed=self.seed,
                threads=self.threads, progress=progress, parts=parts,
            )

    def _kept(self, store: str | Path | None, resume: bool) -> AbstractContextManager[Parts]:
        if store is not None and self.attribution is not None:
            raise QueryError("store: what an attribution of your own gives cannot be told from another one's; leave the store out")
        return Parts.kept(store, resume=resume)

    def score_samples(self, X: pd.DataFrame, y: Any = None, *, sensitive_features: Any) -> np.ndarray:
        """Return (N,) each person's CEC score: the mean over the other groups that have a counterpart, NaN if none has."""
        pairs = self.audit(X, y, sensitive_features=sensitive_features)
        count = np.bincount(pairs.individual, minlength=len(pairs.people))
        total = np.bincount(pairs.individual, weights=pairs.score, minlength=len(pairs.people))
        return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))

    def _check(self) -> tuple[Model, Schema]:
        """Return the model with one margin and the schema settled for it. Raises QueryError, SchemaError."""
        if not isinstance(self.schema, Schema):
            raise QueryError(f"schema: found {type(self.schema).__name__}; expected a Schema (Schema.load)")
        found, described = self.schema.settled(read(self.model))
        self._settings()
        for name, least in (("seed", 0), ("threads", 1)):
            value = getattr(self, name)
            check_number(name, value, whole=True)
            if value < least:
                raise QueryError(f"{name} = {value}: expected {least} or more")
        return described.judges(found), described

    def _settings(self) -> CecSettings:
        """Return the parameters as settings. Raises QueryError."""
        return check_settings(CecSettings, self.get_params(deep=False))


def _named(sensitive_features: Any) -> Any:
    if sensitive_features is None:
        raise QueryError("sensitive_features: found None; name the column of the groups, or pass a value for each row")
    return sensitive_features
