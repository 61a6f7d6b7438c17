"""Names of the types of arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Numbers = TypeVar("Numbers")
