"""Loops over trees, compiled by numba if it is installed (`pip install verifair[fast]`), else run by Python.

The functions are the same. Compiled loops work on arrays; in Python they run several times faster on lists, so numbers are kept in
arrays or lists: `held` makes inputs; `whole`, `narrow`, `real`, `room` make storage that the loops fill. All are flat: of one axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    numba = None

COMPILED = numba is not None and not numba.config.DISABLE_JIT

if COMPILED:

    def compiled(function: F, signature: str | None = None) -> F:
        """Compile a function, at its first call where no signature is given; what comes out is kept for later processes, where a
        folder can be written."""
        try:
            return numba.njit(signature, cache=True, nogil=True)(function)  # type: ignore[no-any-return]
        except (RuntimeError, OSError):     # an installation that is read-only, for somebody who has no folder for caches
            return numba.njit(signature, nogil=True)(function)  # type: ignore[no-any-return]

    def held(values: Any) -> Any:
        """Return numbers (N,) as the loops take them: int64 or float64."""
        array = np.ascontiguousarray(values).reshape(-1)
        return array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)

    def whole(count: int) -> Any:
        """Return room for whole numbers."""
        return np.zeros(count, dtype=np.int64)

    def narrow(count: int) -> Any:
        """Room for whole numbers below 2^31: nodes, of which there are millions."""
        return np.zeros(count, dtype=np.int32)

    def real(count: int) -> Any:
        """Return room for float64 numbers."""
        return np.zeros(count, dtype=np.float64)

    # Without a signature numba compiles them once more for every literal count.
    whole, narrow, real = (
        compiled(one, f"{kind}[::1](int64)") for one, kind in ((whole, "int64"), (narrow, "int32"), (real, "float64"))
    )

    @compiled
    def room(values: Any, count: int) -> Any:
        """Return these numbers, with room for `count` at least behind them."""
        if count <= len(values):
            return values
        found = np.zeros(max(count, 2 * len(values)), dtype=values.dtype)
        for k in range(len(values)):    # a slice would take numba seconds to compile
            found[k] = values[k]
        return found

else:

    def compiled(function: F, signature: str | None = None) -> F:
        """Leave a function as it is: there is no numba."""
        return function

    def held(values: Any) -> Any:
        """Return numbers (N,) as the loops take them: a list."""
        return np.asarray(values).reshape(-1).tolist()

    def whole(count: int) -> Any:
        """Return room for whole numbers."""
        return [0] * count

    narrow = whole

    def real(count: int) -> Any:
        """Return room for float64 numbers."""
        return [0.0] * count

    def room(values: Any, count: int) -> Any:
        """Return these numbers, with room for `count` at least behind them."""
        return values if count <= len(values) else values + [0 * values[0]] * (max(count, 2 * len(values)) - len(values))
