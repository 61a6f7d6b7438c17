"""Networks of a few small whole weights about three features, and all of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import verifair as vf
from encoders.network import Network
from tests.builders import categorical, integer
from verifair.training.onnx_writer import onnx_model

FEATURES: tuple[dict[str, Any], ...] = (
    integer("a", 0, 3, unit=1.0), integer("b", 0, 2, unit=1.0), categorical("sex", "F", "M", protected=True),
)  # fmt: skip
ROWS = np.array([[a, b, s] for a in range(4) for b in range(3) for s in range(2)], dtype=float)


def made(seed: int, outputs: int) -> Network:
    """Small whole weights: every sum is exact in float32, and many are ties."""
    random = np.random.default_rng(seed)
    whole = [(random.integers(-2, 3, shape), random.integers(-2, 3, shape[0])) for shape in ((4, 3), (outputs, 4))]
    found = vf.read(onnx_model([(weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in whole], {}))
    assert isinstance(found, Network)
    return found
