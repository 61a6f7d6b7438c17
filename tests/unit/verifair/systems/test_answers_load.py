"""Every system's result type is whole after its module is imported alone: nothing that it holds waits for another module."""

import subprocess
import sys

from verifair.systems.system import SYSTEMS, system

ALONE = """
import importlib, os, sys
import networkx, numpy, onnx, pandas, pydantic, rich, scipy.stats, sklearn.linear_model, sklearn.neighbors, typer

for name in sys.argv[1:]:
    if os.fork() == 0:
        answers = importlib.import_module(name).ANSWERS
        for one in answers.values():
            one.model_rebuild()
        print(name, [verb for verb, one in answers.items() if not one.__pydantic_complete__], flush=True)
        os._exit(0)
    os.wait()
"""


def test_the_result_of_a_system_is_complete() -> None:
    modules = [system(verb).part("solve", "solve").__module__.rpartition(".")[0] + ".result" for verb in SYSTEMS]
    found = subprocess.run([sys.executable, "-c", ALONE, *modules], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [f"{name} []" for name in modules]
