"""torch Modules as ONNX, by torch's own exporter. A caller with a Module has loaded torch already: nothing here imports it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx

from encoders.onnx.runtime import first_line
from verifair.errors import QueryError
from verifair.models.objects import called


def convert(model: Any, width: int | None = None) -> onnx.ModelProto:
    """Return a Module as ONNX, as it evaluates (without dropout).

    width: its input columns; None: those of its first Linear, unless there is an Embedding.

    Raises QueryError where the width is not known, or rows of that width make the Module fail.
    """
    torch = sys.modules["torch"]
    model = getattr(model, "_orig_mod", model)  # the module in the result of torch.compile, which cannot be exported
    layers = list(model.modules())
    widths = [layer.in_features for layer in layers if isinstance(layer, torch.nn.Linear)]
    if width is None and (not widths or any(isinstance(layer, torch.nn.Embedding) for layer in layers)):
        missing = "an Embedding in front of the" if widths else "no"
        reason = f"{called(model)} has {missing} Linear layer that tells its input columns"
        raise QueryError(f"model: {reason}; pass read(model, columns=...)")
    first = next(model.parameters(), torch.zeros(1))
    example = torch.zeros(1, widths[0] if width is None else width, dtype=first.dtype, device=first.device)
    buffer = io.BytesIO()
    with modes_kept(model):
        _try(model, example, guessed=width is None)
        torch.onnx.export(  # dynamo=False: the other exporter needs one more package
            model, (example,), buffer, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}}
        )
    return onnx.load_model_from_string(buffer.getvalue())


def _try(model: Any, example: Any, *, guessed: bool) -> None:
    """Raise QueryError if a Module fails on an example (1, columns), in the Module's words.   guessed: nobody named the columns."""
    try:
        with sys.modules["torch"].no_grad():
            model.eval()(example)
    except Exception as error:  # Modules raise what they like
        reason = f"{called(model)} fails on a row of {example.shape[1]} columns ({first_line(error)[:300]})"
        remedy = "its first Linear layer has so many: if the model takes another number, pass read(model, columns=...)"
        raise QueryError(
            f"model: {reason}{f'; {remedy}' if guessed else ''}; if it takes "
            "several tensors, wrap it in a Module that takes one tensor of rows and splits it"
        ) from error


@contextmanager
def modes_kept(model: Any) -> Iterator[None]:
    """Context that restores the training mode of a Module and of each part: a part may be frozen in a Module that trains."""
    modes = {part: part.training for part in model.modules()}
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
