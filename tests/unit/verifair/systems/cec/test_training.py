"""CEC training: the loss terms at their edges, the objective beside its parts, and what it is for."""

import json
from dataclasses import asdict, replace

import numpy as np
import onnx
import pytest
from sklearn.metrics import roc_auc_score

torch = pytest.importorskip("torch", reason='training needs torch: pip install "verifair[torch]"')


from encoders.onnx.reader import read_onnx  # noqa: E402
from verifair import datasets  # noqa: E402
from verifair.datasets import Dataset  # noqa: E402
from verifair.errors import DataError, SchemaError, TrainingError  # noqa: E402
from verifair.systems.cec.audit import audit, control, probability  # noqa: E402
from verifair.systems.cec.matching import Reference, match, match_within  # noqa: E402
from verifair.systems.cec.people import People, merit_columns, people_of  # noqa: E402
from verifair.systems.cec.settings import CecSettings  # noqa: E402
from verifair.systems.cec.training import (  # noqa: E402
    CEC_LOOP,
    EXCESS_TERMS,
    ConsistencyReport,
    ConsistencyTerms,
    Consistent,
    train,
)
from verifair.systems.cec.training.floors import fit_above_floors, set_apart  # noqa: E402
from verifair.systems.cec.training.loss import CecObjective, equalized_odds, explanation_gap  # noqa: E402
from verifair.systems.cec.training.settings import CecTrainingSettings  # noqa: E402
from verifair.training.fit import fit  # noqa: E402
from verifair.training.measure import forward, network_of  # noqa: E402
from verifair.training.objectives import CrossEntropy, Objective  # noqa: E402
from verifair.training.onnx_writer import Weights  # noqa: E402
from verifair.training.perceptron import Perceptron  # noqa: E402

QUICK = replace(CEC_LOOP, hidden=(16, 8), epochs=2)


@pytest.fixture(scope="module")
def german() -> Dataset:
    return datasets.load("german")


@pytest.fixture(scope="module")
def reference(german: Dataset) -> Reference:
    return Reference.of(people_of(german.schema, german.train, "sex"), merit_columns(german.schema))


def cec(reference: Reference, **given: float) -> CecObjective:
    consistency = ConsistencyTerms(**given)  # type: ignore[arg-type]
    matches = match(reference, reference.people, tau=consistency.tau)
    return CecObjective(CrossEntropy(reference.people.labels), reference, matches, consistency)


def inputs(reference: Reference) -> np.ndarray:
    return reference.people.x.astype(np.float32)


# Equalized odds


def test_equalized_odds_are_squared_gaps_of_soft_rates() -> None:
    z = torch.tensor([[0.0, 1.0], [0.5, 0.0], [0.0, -1.0], [2.0, 0.0], [0.0, 3.0]], dtype=torch.float64, requires_grad=True)
    labels, groups = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([0, 0, 1, 0, 1])
    p = 1 / (1 + np.exp(-np.array([1.0, -0.5, -1.0, -2.0, 3.0])))
    expected = ((p[0] + p[1]) / 2 - p[2]) ** 2 + (p[3] - p[4]) ** 2
    assert equalized_odds(z, labels, groups, 2).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda z: equalized_odds(z, labels, groups, 2), (z,))


@pytest.mark.parametrize(("labels", "groups"), [([1, 1], [0, 0]), ([0, 1], [0, 1]), ([], [])])
def test_equalized_odds_of_empty_cells_are_zero_with_gradient_zero(labels: list[int], groups: list[int]) -> None:
    z = torch.randn((len(labels), 2), generator=torch.Generator().manual_seed(0)).requires_grad_()
    gap = equalized_odds(z, torch.tensor(labels, dtype=torch.int64), torch.tensor(groups, dtype=torch.int64), 2)
    gap.backward()
    assert gap.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_equalized_odds_of_three_groups_average_over_pairs_that_are_there() -> None:
    z = torch.tensor([[0.0, 1.0], [0.0, -1.0], [0.0, 2.0], [0.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    labels, groups = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([0, 1, 2, 0, 2])
    p = z[:, 1].sigmoid().numpy()
    pairs = [(p[0] - p[1]) ** 2, (p[0] - p[2]) ** 2, (p[1] - p[2]) ** 2]
    assert equalized_odds(z, labels, groups, 3).item() == pytest.approx(np.mean(pairs) + (p[3] - p[4]) ** 2)


# The squared score


def test_explanation_gap_is_the_squared_sine_of_half_the_angle() -> None:
    angle = torch.tensor([0.0, 0.4, 2.0, np.pi], dtype=torch.float64)
    g = torch.stack((torch.tensor([1.0, 0.0], dtype=torch.float64).expand(4, 2), torch.stack((angle.cos(), angle.sin()), 1) * 7))
    assert explanation_gap(g).item() == pytest.approx(float((angle / 2).sin().square().mean()))
    moved = (g + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(explanation_gap, (moved,))


@pytest.mark.parametrize("zero", [(0,), (1,), (0, 1)])
def test_attributions_of_zero_have_a_finite_gradient(zero: tuple[int, ...]) -> None:
    g = torch.ones((2, 3, 4))
    for side in zero:
        g[side, 1] = 0
    g.requires_grad_()
    gap = explanation_gap(g)
    gap.backward()
    assert 0 <= gap.item() <= 1
    assert bool(g.grad.isfinite().all())


def test_the_gap_of_no_pairs_is_zero() -> None:
    g = torch.zeros((2, 0, 4), requires_grad=True)
    assert explanation_gap(g).item() == 0


def test_a_dead_network_has_score_zero_and_no_gradient(reference: Reference) -> None:
    objective = cec(reference, lambda_eo=0)
    network = Perceptron.drawn(reference.people.x.shape[1], (5, 4), torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.layers[0][1].fill_(-100.0)
    score = objective.score(network, torch.arange(64))
    score.backward()
    assert score.item() == 0
    for weight, _ in network.layers:
        assert weight.grad is None or torch.equal(weight.grad, torch.zeros_like(weight))


# The objective


def test_the_score_in_training_is_that_of_the_audit(reference: Reference) -> None:
    weights, _ = fit(inputs(reference), QUICK, CrossEntropy(reference.people.labels))
    network = Perceptron.of(weights, torch.Generator())
    trained = cec(reference).score(network, torch.arange(len(reference.people))).item()
    measured = audit(network_of(weights), reference, reference.people, CecSettings(steps=32))
    assert trained == pytest.approx(float((measured.score**2).mean()), abs=1e-5)
    assert trained > 0.1


def test_same_seed_same_weights(reference: Reference) -> None:
    torch.manual_seed(1)
    (first, losses), (again, _) = (fit(inputs(reference), QUICK, cec(reference)) for _ in range(2))
    other, _ = fit(inputs(reference), replace(QUICK, seed=5), cec(reference))
    assert all(np.array_equal(one, two) for a, b in zip(first, again, strict=True) for one, two in zip(a, b, strict=True))
    assert not np.array_equal(first[0][0], other[0][0])
    assert len(losses) == 2


def test_weights_of_zero_are_plain_training_with_the_same_dropout(reference: Reference) -> None:
    plain, _ = fit(inputs(reference), QUICK, CrossEntropy(reference.people.labels))
    fair, _ = fit(inputs(reference), QUICK, cec(reference, lambda_eo=0, lambda_cec=0))
    without, _ = fit(inputs(reference), replace(QUICK, dropout=0.0), CrossEntropy(reference.people.labels))
    assert all(np.array_equal(one, two) for a, b in zip(plain, fair, strict=True) for one, two in zip(a, b, strict=True))
    assert not np.array_equal(plain[0][0], without[0][0])


def test_dropout_keeps_the_mean_of_what_a_layer_hands_on() -> None:
    network = Perceptron.drawn(3, (4000,), torch.Generator().manual_seed(0))
    x = torch.ones((50, 3))
    kept = torch.stack([network(x, 0.2) for _ in range(20)]).mean(dim=(0, 1))
    assert torch.allclose(kept, network(x)[0], atol=0.05)
    assert not torch.equal(network(x, 0.2), network(x))


@pytest.mark.parametrize("hidden", [(8,), (8, 4), (8, 4, 3)])
def test_who_has_no_counterpart_takes_no_part(reference: Reference, hidden: tuple[int, ...]) -> None:
    far, near = cec(reference), cec(reference, tau=0.5)
    network = Perceptron.drawn(reference.people.x.shape[1], hidden, torch.Generator().manual_seed(0))
    unmatched = torch.nonzero(near.partner < 0)[:, 0]
    matched = torch.nonzero(near.partner >= 0)[:, 0]
    assert len(unmatched) > 50
    nobody = near.score(network, unmatched)
    nobody.backward()
    assert nobody.item() == 0
    both = torch.cat((matched, unmatched))
    assert near.score(network, both).item() == pytest.approx(far.score(network, matched).item(), rel=1e-5)


def test_of_several_groups_each_epoch_draws_one() -> None:
    generator = np.random.default_rng(0)
    x, groups = generator.random((60, 2)), np.arange(60) % 3
    people = People(values=x, labels=np.arange(60) // 30, groups=groups, names=("a", "b", "c"))
    objective = cec(Reference.of(people, np.array([0])))
    draws = torch.Generator().manual_seed(0)
    seen = []
    for _ in range(40):
        objective.epoch(draws)
        partner = objective.partner.numpy()
        assert (groups[partner] != groups).all()
        assert (people.labels[partner] == people.labels).all()
        seen.append(groups[partner])
    share = np.mean(np.array(seen)[:, groups == 0] == 1)
    assert 0.4 < share < 0.6


def test_cec_training_lowers_the_score_on_its_rows_by_a_lot(reference: Reference) -> None:
    loop = replace(CEC_LOOP, hidden=(32, 16), epochs=30, learning_rate=1e-3)
    plain, _ = fit(inputs(reference), loop, CrossEntropy(reference.people.labels))
    fair, _ = fit(inputs(reference), loop, cec(reference))
    before, after = (float(audit(network_of(w), reference, reference.people).score.mean()) for w in (plain, fair))
    assert before > 0.5
    assert after < 0.6 * before
    z = forward(fair, inputs(reference))
    assert (z[:, 1] - z[:, 0]).std() > 0.1, "the network still tells people apart"


# Weighted rows


def test_rows_of_weight_zero_are_as_good_as_gone(german: Dataset, reference: Reference) -> None:
    labels = reference.people.labels
    kept = (np.arange(len(labels)) % 2 == 0).astype(float)
    network = Perceptron.drawn(reference.people.x.shape[1], (8,), torch.Generator().manual_seed(0))
    x, rows = torch.from_numpy(inputs(reference)), torch.arange(len(labels))
    weighted: Objective = CrossEntropy(labels, weights=kept)
    plain: Objective = CrossEntropy(labels[::2])
    expected = plain(network, network(x[::2]), rows[: len(labels[::2])]).item()
    assert weighted(network, network(x), rows).item() == pytest.approx(expected)


@pytest.mark.parametrize("weights", [np.ones(3), -np.ones(800), np.zeros(800), np.full(800, np.nan)])
def test_weights_that_cannot_be_used(reference: Reference, weights: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected one each, at least 0"):
        CrossEntropy(reference.people.labels, weights=weights)


# The excess, and floors


def test_the_excess_is_the_audits_of_squared_scores(reference: Reference) -> None:
    people = reference.people
    within = match_within(reference, people)
    objective = CecObjective(
        CrossEntropy(people.labels), reference, match(reference, people), ConsistencyTerms(steps=64, lambda_excess=1.0), within,
    )
    network = Perceptron.drawn(people.x.shape[1], (16, 8), torch.Generator().manual_seed(1))
    rows = torch.arange(len(people))
    score, excess = objective.scores(network, objective.x, objective.cell, objective.partner, objective.neighbour)
    across = audit(network_of(network.weights()), reference, people)
    inner = control(network_of(network.weights()), reference, across)
    assert score.item() == pytest.approx(float((across.score**2).mean()), abs=1e-4)
    assert excess.item() == pytest.approx(float((across.score**2).mean() - (inner.score**2).mean()), abs=1e-4)
    objective.excess = 1.0  # far above 0: pulled down with the whole weight
    assert objective.explained(network, rows).item() == pytest.approx(score.item() + excess.item(), abs=1e-5)
    objective.excess = -1.0
    assert objective.explained(network, rows).item() == pytest.approx(score.item() - excess.item(), abs=1e-5)


def test_one_step_in_so_many_explains_with_so_many_times_the_weight(reference: Reference) -> None:
    every, always = cec(reference, every=3), cec(reference)
    network = Perceptron.drawn(reference.people.x.shape[1], (8,), torch.Generator().manual_seed(0))
    rows = torch.arange(64)
    z = network(always.x[rows])
    whole = always(network, z, rows).item()
    rest = whole - always.score(network, rows).item()
    found = [every(network, z, rows).item() for _ in range(6)]
    assert found == pytest.approx([rest, rest, rest + 3 * (whole - rest)] * 2, abs=1e-5)


def test_floors_keep_a_network_that_decides(reference: Reference) -> None:
    people, loop = reference.people, replace(CEC_LOOP, hidden=(16, 8), epochs=12, learning_rate=3e-3)
    apart = set_apart(people, 0)
    for label in (0, 1):
        for group in (0, 1):
            own = (people.labels == label) & (people.groups == group)
            assert apart[own].sum() == own.sum() // 5
    terms = replace(EXCESS_TERMS, lambda_cec=20.0, auc_loss=0.03)
    weights, losses = fit_above_floors(people, reference.columns, loop, terms)
    assert len(losses) == loop.epochs
    learning = people.take(np.flatnonzero(~apart))
    plain, _ = fit(learning.x.astype(np.float32), loop, CrossEntropy(learning.labels))
    asked = people.take(np.flatnonzero(apart))
    (auc, spread), (plain_auc, plain_spread) = (decided(w, asked) for w in (weights, plain))
    assert auc >= plain_auc - 0.03
    assert spread >= 0.5 * plain_spread
    score, before = (float(audit(network_of(w), reference, people).score.mean()) for w in (weights, plain))
    assert score < before
    strict, _ = fit_above_floors(people, reference.columns, loop, replace(terms, auc_loss=0.0, variance_share=1.0, lambda_cec=1e4))
    assert decided(strict, asked)[0] >= plain_auc


def decided(weights: Weights, people: People) -> tuple[float, float]:
    p = probability(network_of(weights), people.x)
    return roc_auc_score(people.labels, p), float(p.var())


def test_floors_need_people_of_both_labels_apart(reference: Reference) -> None:
    rows = np.concatenate([np.flatnonzero(reference.people.labels == 1), np.flatnonzero(reference.people.labels == 0)[:3]])
    with pytest.raises(TrainingError, match="too few of one label; pass more rows, or no auc_loss"):
        set_apart(reference.people.take(rows), 0)


# train


def test_train_writes_its_settings_and_measures_the_held_out_rows(german: Dataset) -> None:
    model = train(german, sensitive="sex", hidden=(16, 8), epochs=2, consistency=ConsistencyTerms(lambda_cec=2.0))
    stored = {p.key: p.value for p in onnx.load_from_string(model.onnx_bytes()).metadata_props}
    settings = json.loads(stored["settings"])
    assert (stored["method"], settings["dropout"], settings["batch"], settings["learning_rate"]) == ("cec", 0.2, 64, 3e-4)
    assert settings["consistency"] == asdict(ConsistencyTerms(lambda_cec=2.0))
    assert isinstance(model.report, ConsistencyReport)
    found, plain = model.report.consistency, model.report.plain
    assert found != plain
    assert found.matched == 1
    assert 0 < found.cec < 1
    again = train(german, sensitive="sex", hidden=(16, 8), epochs=2, consistency=ConsistencyTerms(lambda_cec=2.0))
    assert again.onnx_bytes() == model.onnx_bytes()


def test_training_above_floors_is_repeatable(german: Dataset) -> None:
    first, second = (
        train(german, sensitive="sex", hidden=(8,), epochs=2, consistency=replace(EXCESS_TERMS, steps=8)) for _ in range(2)
    )
    assert first.onnx_bytes() == second.onnx_bytes()
    assert isinstance(first.report, ConsistencyReport)
    assert len(first.report.losses) == 2


def test_the_report_is_what_an_audit_of_the_file_finds(german: Dataset, reference: Reference, tmp_path: object) -> None:
    model = train(german, sensitive="sex", hidden=(16, 8), epochs=1)
    network, _ = model.save(f"{tmp_path}/net.onnx")
    held_out = people_of(german.schema, german.test, "sex", names=reference.people.names)
    found = audit(read_onnx(network), reference, held_out)
    assert isinstance(model.report, ConsistencyReport)
    assert model.report.consistency.cec == pytest.approx(float(found.score.mean()), abs=1e-9)


def test_the_sensitive_attribute_need_not_be_an_input(german: Dataset) -> None:
    frame = german.frame.assign(side=np.where(np.arange(len(german.frame)) % 2, "left", "right"))
    model = train(replace(german, frame=frame), sensitive="side", hidden=(8,), epochs=1)
    assert isinstance(model.report, ConsistencyReport)
    assert "side" not in model.report.positive_rate
    assert CecTrainingSettings.of(german.schema, sensitive="side", consistency=ConsistencyTerms()).sensitive == "side"


def test_a_model_that_hardly_decides_is_called_so() -> None:
    figures = {"excess": 0.0, "cec": 0.0, "flips": 0.0, "hidden": 0.0, "matched": 1.0}
    assert "hardly varies" in str(Consistent(**figures, variance=0.0, positive=1.0, auc=0.5, silent=0.0).trivial.hardly_decides)
    assert "100.0% of the people alike" in str(
        Consistent(**figures, variance=0.1, positive=0.0, auc=0.7, silent=0.0).trivial.hardly_decides
    )
    assert "AUC is 0.550" in str(Consistent(**figures, variance=0.1, positive=0.5, auc=0.55, silent=0.0).trivial.hardly_decides)
    assert Consistent(**figures, variance=0.1, positive=0.5, auc=0.8, silent=0.0).trivial.hardly_decides is None


@pytest.mark.parametrize(("given", "error", "message"), [
    ({"sensitive": "agee"}, DataError, "the table has no such column"),
    ({}, TrainingError, "marks age, sex as protected: pass sensitive"),
    ({"sensitive": "duration"}, DataError, "has no row with the true label .* join groups"),
    ({"sensitive": "sex", "consistency": ConsistencyTerms(tau=1e-9)}, DataError, "nobody has a counterpart that near"),
    ({"sensitive": "sex", "lambda_f": 0.5}, TrainingError, "cec has no lambda_f"),
    ({"sensitive": "sex", "dropout": 1.0}, TrainingError, "dropout = 1.0"),
])
def test_mistakes_are_said_before_the_training(
    german: Dataset, given: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        train(german, **given)  # type: ignore[arg-type]


def test_data_that_cannot_be_compared(german: Dataset) -> None:
    features = tuple(f.model_copy(update={"merit": False}) for f in german.schema.features)
    unmarked = german.schema.model_copy(update={"features": features})
    with pytest.raises(SchemaError, match="no feature has merit = true"):
        train(replace(german, schema=unmarked), sensitive="sex")
    good = german.frame[german.frame["credit"] == "good"].reset_index(drop=True)
    with pytest.raises(DataError, match="expected two classes"):
        train(replace(german, frame=good), sensitive="sex")
    one = german.frame[german.frame["sex"] == german.frame["sex"].iloc[0]].reset_index(drop=True)
    with pytest.raises(DataError, match="only one group"):
        train(replace(german, frame=one), sensitive="sex")


@pytest.mark.parametrize(("given", "message"), [
    ({"lambda_cec": -1.0}, "lambda_cec = -1"),
    ({"lambda_eo": float("nan")}, "lambda_eo = nan"),
    ({"steps": 0}, "steps = 0"),
    ({"tau": 0.0}, "tau = 0"),
])
def test_consistency_that_cannot_be_asked_for(given: dict[str, float], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        ConsistencyTerms(**given)  # type: ignore[arg-type]
