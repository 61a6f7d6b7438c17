"""Training with torch: the losses, reproducibility, the ONNX file, and that each method does what it is for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

torch = pytest.importorskip("torch", reason='training needs torch: pip install "verifair[torch]"')

from encoders.onnx.reader import read_onnx  # noqa: E402
from verifair import datasets  # noqa: E402
from verifair.datasets import Dataset  # noqa: E402
from verifair.errors import DataError, TrainingError  # noqa: E402
from verifair.schema.schema import Schema  # noqa: E402
from verifair.training import TrainedModel, train  # noqa: E402
from verifair.training.measure import forward  # noqa: E402
from verifair.training.objectives import classification, counterfactual_gap, flipped, margin_gap  # noqa: E402
from verifair.training.rows import Flip, flip_of, rows_of  # noqa: E402

SMALL = (20, 10)


@pytest.fixture(scope="module")
def german() -> Dataset:
    return datasets.load("german")


@pytest.fixture(scope="module")
def agnostic(german: Dataset) -> TrainedModel:
    return train(german, method="agnostic", hidden=(100, 50))


def logits(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


# Losses


def test_counterfactual_gap_is_the_mean_difference_of_probabilities() -> None:
    z, other = logits([[0.0, 1.0], [2.0, -1.0]]), logits([[0.5, 0.5], [0.0, 1.0]])
    p = 1 / (1 + np.exp([-1.0, 3.0]))
    q = 1 / (1 + np.exp([0.0, -1.0]))
    assert counterfactual_gap(z, other).item() == pytest.approx(np.abs(p - q).mean())
    assert torch.autograd.gradcheck(counterfactual_gap, (z, other))


def test_counterfactual_gap_of_equal_predictions_has_no_gradient() -> None:
    z = logits([[0.3, 1.0], [2.0, -1.0]])
    gap = counterfactual_gap(z, z.detach().clone())
    gap.backward()
    assert gap.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_margin_gap_averages_over_pairs_of_groups() -> None:
    z = logits([[0.0, 1.0], [3.0, 0.0], [0.0, -2.0], [0.0, 7.0]])
    groups = torch.tensor([0, 0, 1, 4])  # mean margins 2, 2, 7
    assert margin_gap(z, groups).item() == pytest.approx((0 + 5 + 5) / 3)
    assert margin_gap(z[:3], groups[:3]).item() == 0
    nudged = logits([[0.0, 1.0], [3.0, 0.0], [0.0, -2.5], [0.0, 7.0]])
    assert torch.autograd.gradcheck(lambda z: margin_gap(z, groups), (nudged,))


@pytest.mark.parametrize("group", [0, 1])
def test_margin_gap_of_a_batch_with_one_group_is_zero_and_has_no_gradient(group: int) -> None:
    z = logits([[0.0, 1.0], [3.0, 0.0]])
    gap = margin_gap(z, torch.full((2,), group))
    gap.backward()
    assert gap.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_losses_of_an_empty_batch_are_zero() -> None:
    z = torch.zeros((0, 2), requires_grad=True)
    assert counterfactual_gap(z, z).item() == 0
    assert margin_gap(z, torch.zeros(0, dtype=torch.int64)).item() == 0


def test_balanced_weights_make_the_classes_count_alike() -> None:
    z = logits([[0.0, 0.4]] * 3 + [[0.0, -0.2]])
    labels = torch.tensor([0, 0, 0, 1])
    weighted = classification(z, labels, torch.tensor([4 / 6, 4 / 2], dtype=torch.float64))
    assert weighted.item() == pytest.approx((np.log1p(np.exp(0.4)) + np.log1p(np.exp(0.2))) / 2)


# Flipping


def test_flip_changes_the_sensitive_columns_only_and_never_keeps_the_value() -> None:
    adult = datasets.load("adult")
    rows = rows_of(adult.schema, adult.frame.head(2000), ("race",))
    flip = flip_of(adult.schema, "race")
    generator = torch.Generator().manual_seed(1)
    x, groups = torch.from_numpy(rows.x), torch.from_numpy(rows.groups["race"])
    moved = flipped(x, groups, flip, generator).numpy()
    still = np.setdiff1d(np.arange(rows.x.shape[1]), flip.columns)
    assert np.array_equal(moved[:, still], rows.x[:, still])
    block = moved[:, flip.columns]
    assert ((block == 1).sum(axis=1) == 1).all()
    assert ((block == 0).sum(axis=1) == 4).all()
    assert (block.argmax(axis=1) != rows.groups["race"]).all()
    drawn = np.bincount(block[rows.groups["race"] == 4].argmax(axis=1), minlength=5)
    assert drawn[4] == 0
    assert (drawn[:4] > 0.2 * drawn.sum()).all()


def test_flip_of_two_values_swaps_them() -> None:
    flip = Flip(columns=np.array([1]), codes=np.array([[0.0], [1.0]], dtype=np.float32), names=("a", "b"))
    x = torch.tensor([[5.0, 0.0], [6.0, 1.0]])
    swapped = flipped(x, torch.tensor([0, 1]), flip, torch.Generator().manual_seed(0))
    assert torch.equal(swapped, torch.tensor([[5.0, 1.0], [6.0, 0.0]]))
    assert torch.equal(x, torch.tensor([[5.0, 0.0], [6.0, 1.0]]))


# Files


@pytest.mark.parametrize(("method", "sensitive"), [("agnostic", None), ("certifair", "age"), ("fair-n", "age")])
def test_same_seed_gives_the_same_bytes(german: Dataset, method: str, sensitive: str | None) -> None:
    def data(seed: int) -> bytes:
        return train(german, method=method, sensitive=sensitive, hidden=SMALL, epochs=2, seed=seed).onnx_bytes()

    torch.manual_seed(11)
    first = data(3)
    torch.manual_seed(12)
    assert data(3) == first
    assert data(4) != first


def test_training_leaves_torchs_globals_alone(german: Dataset) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    train(german, method="agnostic", hidden=SMALL, epochs=1, threads=threads + 1)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_saved_network_computes_the_trained_logits(german: Dataset, agnostic: TrainedModel, tmp_path: Path) -> None:
    model, schema_file = agnostic.save(tmp_path / "new" / "german.onnx")
    schema = Schema.load(schema_file)
    x = schema.encode(schema.raw(german.test)).astype(np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [v.name for v in session.get_inputs()] == ["x"]
    (found,) = session.run(["logits"], {"x": x})
    value = torch.from_numpy(x)
    for k, (weight, bias) in enumerate(agnostic.weights):
        value = value.relu() if k else value
        value = torch.nn.functional.linear(value, torch.from_numpy(weight), torch.from_numpy(bias))
    assert np.abs(found - value.numpy()).max() <= 1e-5
    assert np.abs(forward(agnostic.weights, x) - found).max() <= 1e-5
    accuracy = float(((found[:, 1] > found[:, 0]) == schema.labels(german.test)).mean())
    assert accuracy == pytest.approx(agnostic.report.test_accuracy)

    network = read_onnx(model)
    schema.check_network(network)
    assert network.hidden == (100, 50)
    assert schema == agnostic.schema
    stored = onnx.load(model)
    props = {p.key: p.value for p in stored.metadata_props}
    assert (props["dataset"], props["method"], props["seed"]) == ("german", "agnostic", "0")
    assert [o.version for o in stored.opset_import] == [17]


def test_save_names_a_wrong_suffix_and_a_place_that_cannot_be_written(agnostic: TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"net\.pt: .* end the name in \.onnx"):
        agnostic.save(tmp_path / "net.pt")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        agnostic.save(tmp_path / "file" / "net.onnx")


# What the methods are for


def test_agnostic_beats_the_base_rate(agnostic: TrainedModel) -> None:
    report = agnostic.report
    assert report.base_rate == pytest.approx(0.7)
    assert report.test_accuracy > report.base_rate + 0.02
    assert report.train_accuracy > report.base_rate + 0.1
    assert report.losses[-1] < report.losses[0]
    assert set(report.positive_rate["age"]) == {"Junior", "Senior"}


def test_certifair_closes_the_gap_to_the_counterfactual(german: Dataset, agnostic: TrainedModel) -> None:
    fair = train(german, method="certifair", sensitive="age", hidden=(100, 50))
    assert fair.settings.lambda_f == 0.2
    assert fair.report.counterfactual_gap["age"] < 0.5 * agnostic.report.counterfactual_gap["age"]
    assert fair.report.test_accuracy > fair.report.base_rate


def test_fair_n_closes_the_margin_gap(german: Dataset, agnostic: TrainedModel) -> None:
    fair = train(german, method="fair-n", sensitive="age", hidden=(100, 50))
    assert fair.settings.lambda_f == 1.0
    assert fair.report.margin_gap["age"] < 0.5 * agnostic.report.margin_gap["age"]
    assert fair.report.test_accuracy >= fair.report.base_rate


def test_lambda_of_zero_is_agnostic_training(german: Dataset) -> None:
    plain = train(german, method="agnostic", hidden=SMALL, epochs=2)
    fair = train(german, method="fair-n", sensitive="sex", hidden=SMALL, epochs=2, lambda_f=0.0)
    for (one, _), (other, _) in zip(plain.weights, fair.weights, strict=True):
        assert np.array_equal(one, other)


def test_balanced_classes_raise_the_rarer_decision(german: Dataset, agnostic: TrainedModel) -> None:
    balanced = train(german, method="agnostic", hidden=(100, 50), class_weight="balanced")
    for group, rate in balanced.report.positive_rate["age"].items():
        assert rate < agnostic.report.positive_rate["age"][group]


def test_progress_counts_epochs(german: Dataset) -> None:
    seen: list[tuple[int, int]] = []
    train(german, method="agnostic", hidden=SMALL, epochs=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


# Mistakes


def test_a_diverging_loss_is_an_error(german: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in epoch 1 at learning rate 1e\+30"):
        train(german, method="agnostic", hidden=SMALL, learning_rate=1e30)


@pytest.mark.parametrize("keep", ["good", "nearly good"])
def test_a_label_without_two_classes_is_an_error(german: Dataset, keep: str) -> None:
    good = german.frame[german.frame["credit"] == "good"]
    frame = good if keep == "good" else pd.concat([good, german.frame[german.frame["credit"] == "bad"].head(2)])
    with pytest.raises(DataError, match=r"label 'credit': .* expected two classes"):
        train(replace(german, frame=frame.reset_index(drop=True)), method="agnostic")
