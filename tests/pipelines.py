"""scikit-learn pipelines on tables of raw columns, as their users build them, and as skl2onnx exports them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline


def pipeline(frame: pd.DataFrame, model: Any, *, numbers: Any, categories: Any) -> Pipeline:
    """One transformer for the columns of numbers, one for those of words, and a model behind both."""
    words = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    rest = [name for name in frame.columns if name not in words]
    columns = ColumnTransformer([("numbers", numbers, rest), ("categories", categories, words)])
    return Pipeline([("columns", columns), ("model", model)])


def export(fitted: Any, frame: pd.DataFrame, path: Path, **options: Any) -> Path:
    """An ONNX file with one typed input for each column of the table. options: of skl2onnx for the last step."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    kinds = {"i": Int64TensorType, "f": FloatTensorType}
    types = [(str(name), kinds.get(frame[name].dtype.kind, StringTensorType)([None, 1])) for name in frame.columns]
    given = {id(fitted.steps[-1][1] if isinstance(fitted, Pipeline) else fitted): options} if options else None
    path.write_bytes(to_onnx(fitted, initial_types=types, options=given).SerializeToString())
    return path


def fed(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The table as onnxruntime takes it."""
    typed = {"i": np.int64, "f": np.float32}
    return {str(name): frame[[name]].to_numpy(dtype=typed.get(frame[name].dtype.kind, object)) for name in frame.columns}
