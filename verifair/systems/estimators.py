"""Base of the estimators: scikit-learn's conventions for tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator


class TableEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose X is a DataFrame with the schema's columns, of words and numbers.

    Its tags say that scikit-learn's checks with arrays of numbers do not apply.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string, tags.input_tags.categorical = False, True, True
        return tags

    def _note_columns(self, X: pd.DataFrame) -> None:
        """Set feature_names_in_ and n_features_in_."""
        self.feature_names_in_, self.n_features_in_ = np.asarray(X.columns, dtype=object), X.shape[1]
