"""Arrays of many rows lie on the disk, and in memory where that has no room."""

from __future__ import annotations

import errno
import sys
import tracemalloc

import numpy as np
import pytest

from verifair import aside
from verifair.aside import stacked


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's files")
@pytest.mark.parametrize("shape", [(0,), (0, 3)])
@pytest.mark.parametrize("room", [0, 1, 2, 99])
def test_parts_make_one_array_whatever_room_the_disk_has(
    room: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    real = aside.posix_fallocate

    def allocate(*args: int) -> None:
        taken.append(args)
        if len(taken) > room:
            raise OSError(errno.ENOSPC, "no space left on device")
        real(*args)

    parts = [np.random.default_rng(n).integers(0, 100, (size, *shape[1:])) for n, size in enumerate([2000, 0, 3000, 1, 4000, 5])]
    monkeypatch.setattr(aside, "posix_fallocate", allocate)
    monkeypatch.setattr(aside, "ASIDE", 8 * 2500)
    tracemalloc.start()
    found = stacked(iter(parts))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, np.concatenate(parts))
    assert found.dtype == parts[0].dtype
    assert (held < found.nbytes / 2) == (room > 2)


def test_a_small_array_is_held_in_memory() -> None:
    found = stacked([np.arange(3.0), np.arange(2.0)])
    assert found.tolist() == [0, 1, 2, 0, 1]
    assert found.base is None
