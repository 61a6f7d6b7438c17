"""verifair: proofs, exact counterexamples and bounds for the fairness of trained neural networks.

    import verifair as vf
    network = vf.read_onnx("german.onnx")
    schema = vf.Schema.load("german.toml")
    verdict = vf.verify(vf.IndividualFairness(network=network, schema=schema, protected=["sex"], box={"age": (30, 40)}))
"""

from ast import ImportFrom, parse
from importlib import import_module
from pathlib import Path

from verifair._siblings import check_siblings

check_siblings()

STUB = Path(__file__).with_suffix(".pyi")
HOMES = {
    one.name: str(line.module)
    for line in parse(STUB.read_text(encoding="utf-8")).body
    if isinstance(line, ImportFrom)
    for one in line.names
}
"""Public name -> its module, as the stub says. A module is loaded when a name of it is asked for."""

__version__ = "0.1.0"
__all__ = list(HOMES)


def __dir__() -> list[str]:
    return sorted(HOMES)


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
