"""Every system's result type is whole after its module is imported alone: nothing that it holds waits for another module."""

import subprocess
import sys

import pytest

from verifair.systems.system import SYSTEMS, system


@pytest.mark.parametrize("verb", SYSTEMS)
def test_the_result_of_a_system_is_complete(verb: str) -> None:
    module = system(verb).part("solve", "solve").__module__.rpartition(".")[0] + ".result"
    code = (
        f"import {module} as m\nfor one in m.ANSWERS.values(): one.model_rebuild()\n"
        "print([name for name, one in m.ANSWERS.items() if not one.__pydantic_complete__])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
