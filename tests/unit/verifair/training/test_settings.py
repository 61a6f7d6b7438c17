"""What works without torch: training's settings and errors, and the shipped networks."""

import subprocess
import sys

import onnx
import pytest

from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.datasets import Dataset
from verifair.errors import MissingPackage, SchemaError, TrainingError
from verifair.training import settings_for, train


@pytest.fixture(scope="module")
def german() -> Dataset:
    return datasets.load("german")


def test_without_torch_training_says_how_to_install_it(german: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackage, match=r'pip install "verifair\[torch\]"') as caught:
        train(german, method="agnostic")
    assert caught.value.exit_code == 4


def test_importing_does_not_import_torch() -> None:
    code = "import sys, verifair, verifair.training; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("dataset", "method", "lambda_f"), [
    ("adult", "certifair", 0.95),
    ("compas", "certifair", 0.9),
    ("german", "certifair", 0.2),
    ("adult", "fair-n", 1.0),
])
def test_the_papers_lambda(german: Dataset, dataset: str, method: str, lambda_f: float) -> None:
    assert settings_for(dataset, german.schema, method=method, sensitive="age").lambda_f == lambda_f


def test_the_only_protected_feature_is_the_sensitive_one(german: Dataset) -> None:
    features = tuple(f.model_copy(update={"protected": f.name == "sex"}) for f in german.schema.features)
    schema = german.schema.model_copy(update={"features": features})
    assert settings_for("german", schema, method="fair-n").sensitive == "sex"


@pytest.mark.parametrize(("given", "message"), [
    ({"method": "magic"}, "method 'magic' is unknown; choose one of agnostic, certifair, fair-n$"),
    ({"method": "agnostic", "sensitive": "age"}, "drop --sensitive"),
    ({"method": "agnostic", "lambda_f": 0.5}, "drop --sensitive and --lambda-f"),
    ({"method": "certifair"}, "marks age, sex as protected: pass sensitive"),
    ({"method": "certifair", "sensitive": "age", "lambda_f": 1.5}, r"--lambda-f 1.5: .* 0 \.\. 1$"),
    ({"method": "fair-n", "sensitive": "age", "lambda_f": float("nan")}, "--lambda-f nan"),
    ({"method": "agnostic", "hidden": ()}, r"hidden = \(\)"),
    ({"method": "agnostic", "hidden": (10, 0)}, r"hidden = \(10, 0\)"),
    ({"method": "agnostic", "epochs": 0}, "epochs = 0"),
    ({"method": "agnostic", "batch": -1}, "batch = -1"),
    ({"method": "agnostic", "threads": 0}, "threads = 0"),
    ({"method": "agnostic", "learning_rate": 0.0}, "learning_rate = 0"),
    ({"method": "agnostic", "seed": -1}, "seed = -1"),
    ({"method": "agnostic", "class_weight": "even"}, "class_weight = 'even'"),
])
def test_settings_that_cannot_be_used(german: Dataset, given: dict[str, object], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        settings_for("german", german.schema, **given)  # type: ignore[arg-type]


def test_certifair_on_other_data_needs_a_lambda(german: Dataset) -> None:
    with pytest.raises(TrainingError, match="no weight lambda_f of certifair for the dataset 'mine'"):
        settings_for("mine", german.schema, method="certifair", sensitive="age")


def test_an_unknown_sensitive_feature_is_named(german: Dataset) -> None:
    with pytest.raises(SchemaError, match=r"there is no feature 'agee' .* did you mean 'age'"):
        settings_for("german", german.schema, method="fair-n", sensitive="agee")


@pytest.mark.parametrize(("name", "least"), [("german", 0.75), ("adult", 0.84)])
def test_the_shipped_network_fits_its_dataset(name: str, least: float) -> None:
    dataset = datasets.load(name)
    path = datasets.network_path(name)
    assert path.stat().st_size < 200_000
    network = read_onnx(path)
    dataset.schema.check_network(network)
    z = network.forward(dataset.schema.encode(dataset.schema.raw(dataset.test)))
    assert ((z[:, 1] > z[:, 0]) == dataset.schema.labels(dataset.test)).mean() > least
    props = {p.key: p.value for p in onnx.load(path).metadata_props}
    assert (props["dataset"], props["method"], props["seed"]) == (name, "agnostic", "0")
