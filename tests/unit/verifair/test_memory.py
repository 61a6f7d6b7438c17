"""Freed memory is kept: what a batch frees, the next one takes without asking the system."""

import os
import subprocess
import sys
from itertools import product

import pytest

BATCHES = """
import resource, sys
import numpy as np
from verifair.memory import keep_freed
if sys.argv[1] == "keep":
    keep_freed()
for _ in range(50):
    batch = [np.ones(1 << 20) for _ in range(4)]
    del batch
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not hasattr(os, "confstr") or "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="of glibc's malloc")
def test_batches_cost_no_new_pages_unless_the_user_has_chosen() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    faults = {}
    for how, chosen in product(("keep", "leave"), (False, True)):
        environment = clean | ({"MALLOC_TRIM_THRESHOLD_": "131072"} if chosen else {})
        done = subprocess.run([sys.executable, "-c", BATCHES, how], capture_output=True, text=True, check=True, env=environment)
        faults[how, chosen] = int(done.stdout)
    assert 3 * faults["keep", False] < faults["leave", False]
    assert faults["keep", True] > faults["leave", True] / 2
