"""verifair: proofs, exact counterexamples and bounds for the fairness of trained models.

    import verifair as vf
    network = vf.read_onnx("german.onnx")
    schema = vf.Schema.load("german.toml")
    verdict = vf.verify(vf.IndividualFairness(model=network, schema=schema, protected=["sex"], box={"age": (30, 40)}))
"""

from verifair._siblings import check_siblings

check_siblings()

__version__ = "0.1.0"
HOMES: dict[str, str] = {}
"""Public name -> its module, as the stub says; `_homes` reads it when a name is asked for. The program starts without."""


def _homes() -> dict[str, str]:
    from ast import ImportFrom, parse

    if not HOMES:
        with open(__file__.removesuffix("py") + "pyi", encoding="utf-8") as stub:
            lines = [line for line in parse(stub.read()).body if isinstance(line, ImportFrom)]
        HOMES.update({alias.name: str(line.module) for line in lines for alias in line.names})
    return HOMES


def __dir__() -> list[str]:
    return sorted(_homes())


def __getattr__(name: str) -> object:
    """Load the module of a name when it is asked for."""
    if name == "__all__":
        return list(_homes())
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_homes()[name]), name)
