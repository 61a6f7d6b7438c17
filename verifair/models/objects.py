"""Whose object is it, and what do messages and exporters call things? Asked of the class alone: no package is imported for it."""

from __future__ import annotations

import re
from typing import Any

from verifair.errors import QueryError

ANOTHER_WAY = "convert it to ONNX in another way, and pass the file"
"""What to do where a conversion fails, or makes another model."""
PACKAGES = ("torch", "xgboost", "lightgbm", "catboost", "sklearn")


def package_of(model: Any) -> str | None:
    """Return which of the known packages an object is of: that of its class, or of the nearest one that this is derived from."""
    return next((root for root in map(_root, type(model).__mro__) if root in PACKAGES), None)


def called(model: Any) -> str:
    """Return what messages call an object."""
    kind = type(model)
    return f"{_root(kind)} {kind.__name__}" if _root(kind) in PACKAGES else kind.__name__


def check_decides(model: Any, positive: Any) -> None:
    """Raise QueryError for an estimator that gives values, where `positive` names no threshold of these."""
    if isinstance(positive, str) and positive.strip().startswith("value"):
        return
    if package_of(model) in (None, "torch") or isinstance(model, type):
        return
    from sklearn.base import is_regressor

    if hasattr(model, "get_params") and is_regressor(model):
        raise QueryError(
            f"model: {called(model)} gives values, and decisions are asked about; say which values are favourable, such as "
            'positive="value >= 600", or fit a classifier'
        )


def check_classes(model: Any) -> None:
    """Raise QueryError for a classifier that was fitted on rows of one class."""
    known = getattr(model, "classes_", None)
    if known is not None and len(known) == 1:
        found = f"{called(model)} was fitted on rows of one class, {known[0]!s}"
        raise QueryError(f"model: {found}: it decides nothing; fit it on rows of two classes or more")


def exported(name: str) -> str:
    """Return a column's name as exporters write it into a model: skl2onnx turns what is no letter, digit or _ into _."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _root(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]
