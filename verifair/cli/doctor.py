"""verifair doctor: installed packages that work, versions and limits; and a network as it is read, with its float32 rounding."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table as Grid

from verifair import _packages
from verifair._siblings import SIBLINGS
from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.screen import Screen
from verifair.systems.results.result import Answer, Shape
from verifair.systems.settings import Option, Settings
from verifair.systems.system import System

if TYPE_CHECKING:
    from encoders.model import Model

CORE = (
    "numpy", "scipy", "pandas", "scikit-learn", "onnx", "onnxruntime", "networkx", "python-flint", "pydantic", "typer", "rich",
    "jinja2", "joblib", "filelock", "threadpoolctl",
)
"""Packages of the base that are no backends."""
OPTIONAL = {
    "matplotlib": ("plots", "figures, the pages of audits"),
    "pyarrow": ("parquet", "tables in Parquet"),
    "torch": ("torch", "verifair train, retraining, baselines"),
    "skl2onnx": ("convert", "models of scikit-learn in vf.read and vf.audit"),
    "onnxmltools": ("convert", "models of XGBoost and LightGBM in vf.read and vf.audit"),
    "xgboost": ("trees", "models of XGBoost"),
    "lightgbm": ("trees", "models of LightGBM"),
    "catboost": ("trees", "models of CatBoost"),
    "interpret-core": ("trees", "explainable boosting machines of InterpretML"),
    "numba": ("fast", "a faster search for tree ensembles"),
    "ipywidgets": ("notebook", "progress bars in notebooks"),
    "captum": ("torch", "only tests of attributions (cec)"),
    "fairlearn": ("fairlearn", "baselines of CEC: Hardt, Agarwal"),
    "distributed": ("distributed", "--cluster"),
    "maraboupy": ("peers", "Marabou as a peer in verifair bench"),
    "dowhy": ("causal", "causal models of dowhy.gcm"),
}
"""Package -> its extra, and what needs it."""
MODULES = {"scikit-learn": "sklearn", "python-flint": "flint", "interpret-core": "interpret"}
"""Package -> what is imported, where that is another name."""


class BackendShape(Shape):
    name: str
    available: bool
    version: str | None
    methods: list[str]
    """What it can be named for with --solver: lp, milp and smt of `pba`, `certify` and `bench`, mip of `fgce` and `bench`."""


class ImportShape(Shape):
    """A model as it was read.   points: those of the import check."""

    file: str
    inputs: int
    built: str
    """Its parts: layers, or trees."""
    hidden: list[int]
    """Widths of the hidden layers; of trees none."""
    outputs: int
    rounded: list[str]
    """ONNX nodes whose folded constants were rounded."""
    error: float
    """The largest difference of a logit, onnxruntime's float32 against the real-valued function, at the points."""
    bound: float | None
    """The bound of that difference for any order of the sums, at the same point; null: no proof can be certified for float32."""


class DoctorSettings(Settings):
    """The settings of `verifair doctor`: optionally a model to examine."""

    model: Annotated[Path | None, Option()] = None
    """A model (ONNX): read it, compare it with onnxruntime, and show how far float32 rounds it."""


class DoctorAnswer(Answer):
    """`verifair doctor`: installed packages, and a model as it is read."""

    backends: list[BackendShape]
    packages: dict[str, str | None]
    """Package -> version; null: not installed."""
    broken: dict[str, str]
    """Package that is installed and cannot be imported -> what Python says."""
    foreign: list[str]
    """Installed packages of others that bring modules of our names."""
    clash: str | None
    """Packages that cannot share a process."""
    network: ImportShape | None
    """Null: none was named."""


def run(system: System, arguments: dict[str, Any]) -> None:
    """Print installed and missing packages."""
    from solvers import registry
    from verifair.cli.output import save_answer

    _, settings, files = parse_options(system, arguments)
    console = Screen()
    console.print(f"verifair {version('verifair')}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    grid = Grid("backend", "installed", "version", "for --method", "limit", title="Solvers", title_justify="left")
    backends = []
    missing: dict[str, list[str]] = {}  # extra -> what comes with it
    for backend in registry.backends():
        available = backend.is_available()
        limit = f"{backend.max_columns:,} columns and {backend.max_rows:,} rows" if backend.max_columns else ""
        methods = [name for name, needed in registry.METHODS.items() if backend.capabilities.issuperset(needed)]
        number = backend.version() if available else None
        grid.add_row(backend.name, "yes" if available else "no", number, ", ".join(methods), limit)
        if not available and backend.extra:
            missing[backend.extra] = [*missing.get(backend.extra, []), backend.name]
        backends.append(BackendShape(name=backend.name, available=available, version=number, methods=methods))
    console.print(grid)
    packages = {name: _version(name) for name in (*CORE, *OPTIONAL)}
    console.print("; ".join(f"{name} {packages[name]}" for name in CORE))
    extras = Grid("package", "version", "needed for", title="Optional", title_justify="left")
    for name, (extra, purpose) in OPTIONAL.items():
        extras.add_row(name, packages[name] or "no", purpose)
        if packages[name] is None:
            missing[extra] = [*missing.get(extra, []), name]
    console.print(extras)
    for extra, names in missing.items():
        console.print(f'missing: {", ".join(names)}: pip install "verifair[{extra}]"', soft_wrap=True)
    modules = {name: MODULES.get(name, name) for name, available in packages.items() if available}
    modules |= {backend.distribution: backend.package for backend in registry.backends() if backend.is_available()}
    broken = _packages.broken(modules)
    for name, reason in broken.items():
        console.print(_packages.line(name, modules[name], reason), soft_wrap=True, style="red")
    foreign = sorted({
        package for name in SIBLINGS for package in packages_distributions().get(name, ()) if package.lower() != "verifair"
    })  # fmt: skip
    for name in foreign:
        remedy = f"pip uninstall {name}, then install verifair anew"
        console.print(f"foreign: the package {name} puts modules of its own in the place of ours; {remedy}", soft_wrap=True)
    clash = _highspy_clash()
    if clash is not None:
        console.print(f"clash: {clash}")
    network = None if settings.model is None else _imported(settings.model)
    if network is not None:
        shape = f"{network.inputs:,} input columns, {network.built}, {network.outputs:,} output{'s' * (network.outputs > 1)}"
        console.print(f"{network.file}: read, {shape}; it reproduces onnxruntime", soft_wrap=True)
        bound = "nothing bounds it" if network.bound is None else f"at most {network.bound:.2g} in any order of the sums"
        message = f"float32: at {POINTS} points onnxruntime's logits are off by up to {network.error:.2g} ({bound})"
        console.print(message, soft_wrap=True)
    save_answer(files.json_file, DoctorAnswer(
        backends=backends, packages=packages, broken=broken, foreign=foreign, clash=clash, network=network,
    ))


POINTS = 64
"""Number of points, as in the import check."""


def _imported(path: Path) -> ImportShape:
    """Return a model as it was read, with the largest float32 error at the points and its bound there."""
    import numpy as np

    from encoders.onnx.feed import make_legal
    from encoders.onnx.reader import read_model
    from encoders.onnx.runtime import comparison_points

    network = read_model(path, check_points=POINTS)
    random = np.random.default_rng(0)
    x = comparison_points(path, network.inputs, POINTS, random, None)
    for feed in network.feeds:
        make_legal(feed, x, random)
    error, bound = _rounding(network, x)
    return ImportShape(
        file=str(path), inputs=network.inputs, built=network.built, hidden=list(network.hidden), outputs=network.outputs,
        rounded=list(network.rounded), error=error, bound=bound,
    )


def _rounding(network: Model, x: Any) -> tuple[float, float | None]:
    """Return the largest float32 error of a logit at points x (B, n), and its bound there (None without one)."""
    import numpy as np

    from encoders.bounds.float32 import float32_error
    from encoders.exact.dyadic import exact
    from encoders.onnx.runtime import runtime_logits

    points, runtime = x.astype(np.float64), runtime_logits(network, x)
    if network.piecewise_linear:
        true = network.forward(exact(points))
        difference = np.abs((true - exact(runtime)).to_float())
    else:
        difference = np.abs(network.forward(points) - runtime)
    point, logit = np.unravel_index(difference.argmax(), difference.shape)
    rule = float32_error(network, np.eye(network.outputs)[logit])
    bound = np.inf if rule is None else rule.within(points[point : point + 1], points[point : point + 1])[0]
    return float(difference[point, logit]), float(bound) if np.isfinite(bound) else None


SYSTEM = System(verb="doctor", help=HELPS["doctor"], settings=DoctorSettings, inputs=Settings, run=("json_file",))
app = app_of(SYSTEM, run)


def _highspy_clash() -> str | None:
    """Return a warning if both are installed: highspy 1.14 and ortools clash in one process (google/or-tools issue 5246)."""
    highspy, ortools = _version("highspy"), _version("ortools")
    if highspy and ortools and tuple(map(int, highspy.split(".")[:2])) >= (1, 14):
        return f"highspy {highspy} and ortools {ortools} cannot share a process; pip install 'highspy<1.14'"
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
