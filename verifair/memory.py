"""Keeping freed memory in our own processes.

glibc gives large blocks back to the system as soon as they are freed, and a search over batches asks for the next ones a moment
later: for each page the system fetches and clears another one, which takes a fifth of the search's time, and more where several
processes ask at once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

KEPT, BLOCK = 64 << 20, 16 << 20
"""Bytes at the end of the heap that are kept, and size of a block from which on the system is asked for it separately."""
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Their numbers in glibc's malloc.h."""
SET = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which users set the same, and which stand."""


def keep_freed() -> None:
    """Keep freed memory for the next batch, in our own processes: the command and those that it starts. A program that imports us
    can set the variables MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ for the same effect."""
    if sys.platform != "linux" or any(name in os.environ for name in SET):
        return
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(TRIM_THRESHOLD, KEPT)
        library.mallopt(MMAP_THRESHOLD, BLOCK)
