"""`vf.read`: the entry for every kind of model. Functions that take a network accept everything that this does."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from encoders.errors import ModelError
from encoders.model import Model
from encoders.network import Network
from encoders.onnx.reader import read_model
from encoders.onnx.runtime import first_line
from verifair.errors import MissingPackage, QueryError, VerifairError
from verifair.models.columns import names_of
from verifair.models.objects import ANOTHER_WAY, called, check_classes, check_rows, package_of

if TYPE_CHECKING:
    import pandas as pd

CONVERTERS = {
    "torch": "pytorch", "xgboost": "boosting", "lightgbm": "boosting", "catboost": "boosting", "sklearn": "pipelines",
    "interpret": "pipelines",
}
"""Package of an object -> the module among `converters` that converts such objects."""
ACCEPTED = (
    "the path of an .onnx file, its bytes, an onnx.ModelProto, a fitted scikit-learn estimator or pipeline, an XGBoost, LightGBM "
    "or CatBoost model, an explainable boosting machine of InterpretML, or a torch.nn.Module"
)
REMEDIES = {
    "non symmetric trees": "fit it with grow_policy='SymmetricTree'",
    "Unexpected label type": "fit it on labels 0 and 1",
    "does not support floating-point labels": "fit it on whole numbers, or words, for labels",
    "does yet not support categorical features": "fit it behind an encoder, such as OneHotEncoder",
    "missing values are not nan": "fit it with missing=numpy.nan",
    "Unexpected objective": "fit it with the objective 'binary:logistic', or 'multi:softprob'",
    "'str' object cannot be interpreted as an integer": "list columns by their names, and not as a slice of names",
    "objective should be cleaned": "fit it with the objective 'binary', 'multiclass' or 'regression'",
}
"""Part of a converter's message -> the remedy; for other messages the remedy is another conversion."""
Convert = Callable[[Any, int | None], ModelProto]


def read(model: Any, frame: pd.DataFrame | None = None, *, output: str | None = None, columns: int | None = None) -> Model:
    """Return a model of any kind as one that questions can be asked of: a Network, or a tree ensemble.

    Requires: the path of an ONNX file, its bytes, an `onnx.ModelProto`, a fitted scikit-learn estimator or pipeline (converted by
    skl2onnx), an XGBoost, LightGBM or CatBoost model (by onnxmltools, or its own exporter), an explainable boosting machine of
    InterpretML, or a torch Module (by its own exporter); what was read is returned as it is. frame: a table with the model's
    columns, on whose rows the import is compared with the object; without it random points are. output: the tensor that holds the
    logits, as in `read_onnx`. columns: how many input columns there are, of a torch Module whose first layer is not Linear.
    Returns: the converted model; `save_onnx` writes it. Numbers are inputs of type float32, in the order and by the names on which
    the object was fitted. The same object gives the same model, with the same hash.
    Raises QueryError for what is none of these, or was not fitted, or on one class, MissingPackage with the command that installs a
    converter, ModelError for a model that is not supported, or that the conversion does not reproduce. Where the object's own
    predictions on the rows differ from the converted model's, warns of it with ImportDifference. Paths of pickles are refused,
    never loaded.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, (str, os.PathLike)):
        return read_model(Path(model), output=output)
    if isinstance(model, (bytes, ModelProto)):
        return read_model(model, output=output)
    converter = CONVERTERS.get(package_of(model) or "")
    # packages have classes that are no models: tensors, optimizers, tables of their own
    predicts = {"pytorch": "modules", "boosting": "predict"}.get(converter or "", "__class__")
    if converter is None or isinstance(model, type) or not hasattr(type(model), predicts):
        description = f"the class {model.__name__}" if isinstance(model, type) else called(model)
        raise QueryError(f"model: found {description}; expected {ACCEPTED}")
    check_classes(model)
    if "" in names_of(model):
        raise ModelError(called(model), "was fitted on a column without a name; name it, and fit it again")
    if frame is not None:
        check_rows(frame)
    try:
        convert = import_module(f"verifair.models.converters.{converter}").convert
        network = read_model(converted(model, convert, columns), output=output, name=called(model))
    except ModelError as error:
        better_error = import_module("verifair.models.refused").better(model, error)
        if better_error is error:
            raise
        raise better_error from error
    from verifair.models.compare import compare

    compare(model, network, frame)
    return network


def read_network(model: Any, what: str) -> Network:
    """Return the result of `read` if it is a network. Raises ModelError saying that `what` takes no other, and as `read` does."""
    return read(model).layered(what)


def converted(model: Any, convert: Convert, columns: int | None) -> ModelProto:
    """Return an object as ONNX. Raises ModelError if the converter raises any error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # converters' warnings about future versions
            return convert(model, columns)
    except (VerifairError, ModelError):
        raise
    except ImportError as error:
        package = str(error.name or error).partition(".")[0]
        reason = f"{called(model)}: its conversion to ONNX needs {package}, which is not installed"
        raise MissingPackage(f"{reason}: pip install {package}") from error
    except Exception as error:  # converters may raise anything
        message = first_line(error)
        remedy = next((text for part, text in REMEDIES.items() if part in message), ANOTHER_WAY)
        raise ModelError(called(model), f"cannot be converted to ONNX ({message[:300]}); {remedy}") from error
