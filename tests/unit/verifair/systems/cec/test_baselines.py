"""The baselines of the CEC paper: each does what it claims, on people whose bias is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from encoders.network import Network
from tests.builders import random_network
from verifair import datasets
from verifair.engine.questions import decisions
from verifair.errors import DataError, TrainingError
from verifair.systems.cec.audit import audit, probability
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People
from verifair.systems.cec.training import CEC_LOOP, METHODS, ColumnRoles, TrainedDecider, audit_decider, train_decider
from verifair.systems.cec.training.decider import constant, mixture
from verifair.systems.cec.training.repair import Repair

COLUMNS = ColumnRoles(merit=np.array([0]), numbers=np.array([0, 1]), sensitive=np.array([2]))
LOOP = replace(CEC_LOOP, epochs=10)


def biased(n: int = 1200, seed: int = 0) -> People:
    """Columns: merit, a proxy of the group, the group itself. The label follows merit, but group 1 needs less of it."""
    draw = np.random.default_rng(seed)
    groups = draw.integers(0, 2, size=n)
    merit, proxy = draw.normal(size=n), draw.normal(loc=1.5 * groups, scale=1.0 + groups)
    labels = (merit + 1.6 * (groups - 0.5) + draw.normal(size=n) > 0).astype(np.int64)
    x = np.column_stack([merit, proxy, groups])
    return People(values=x, labels=labels, groups=groups, names=("old", "young"))


def eo_gap(decision: np.ndarray, people: People) -> float:
    rates = [[decision[(people.labels == y) & (people.groups == a)].mean() for a in (0, 1)] for y in (0, 1)]
    return float(np.abs(np.diff(rates, axis=1)).max())


PEOPLE, OTHERS = biased(), biased(seed=1)


@pytest.fixture(scope="module")
def trained() -> dict[str, TrainedDecider]:
    pytest.importorskip("torch")
    pytest.importorskip("fairlearn")
    return {method: train_decider(method, PEOPLE, COLUMNS, loop=LOOP) for method in METHODS}


# Disparate Impact Remover


def test_full_repair_makes_the_groups_alike() -> None:
    repaired = Repair.of(PEOPLE, COLUMNS.numbers, COLUMNS.sensitive).apply(PEOPLE)
    old, young = (repaired.x[PEOPLE.groups == g] for g in (0, 1))
    quantiles = np.linspace(0.02, 0.98, 49)
    for column in COLUMNS.numbers:
        assert ks_2samp(PEOPLE.x[PEOPLE.groups == 0, 1], PEOPLE.x[PEOPLE.groups == 1, 1]).pvalue < 1e-9
        assert ks_2samp(old[:, column], young[:, column]).statistic < 0.01
        assert np.abs(np.quantile(old[:, column], quantiles) - np.quantile(young[:, column], quantiles)).max() < 0.05
    middle = [np.quantile(PEOPLE.x[PEOPLE.groups == g, 1], quantiles) for g in (0, 1)]
    # of two groups the median is the mean
    assert np.allclose(np.quantile(old[:, 1], quantiles), np.mean(middle, axis=0), atol=0.05)
    assert np.ptp(repaired.x[:, 2]) == 0  # the group itself is hidden


def test_repair_keeps_the_order_within_a_group_and_unseen_people_fit() -> None:
    repair = Repair.of(PEOPLE, COLUMNS.numbers, COLUMNS.sensitive)
    others = repair.apply(OTHERS)
    for group in (0, 1):
        rows = OTHERS.groups == group
        order = np.argsort(OTHERS.x[rows, 1])
        assert (np.diff(others.x[rows, 1][order]) >= 0).all()
    assert ks_2samp(others.x[OTHERS.groups == 0, 1], others.x[OTHERS.groups == 1, 1]).pvalue > 0.01
    assert others.x[:, 1].max() <= PEOPLE.x[:, 1].max()  # nobody is repaired beyond the values that were seen


def test_partial_repair_goes_a_share_of_the_way() -> None:
    none, half, full = (Repair.of(PEOPLE, COLUMNS.numbers, COLUMNS.sensitive, level).apply(PEOPLE).x for level in (0.0, 0.5, 1.0))
    assert np.array_equal(none[:, :2], PEOPLE.x[:, :2])
    assert np.allclose(half, (none + full) / 2)


def test_repair_of_levels_and_of_one_group() -> None:
    """A value that everybody shares stays, and with equal groups nothing changes, not even coarse values."""
    levels = np.repeat([1.0, 2.0, 3.0, 4.0], [5, 30, 10, 5])
    x = np.column_stack([np.tile(levels, 2), np.ones(100)])
    alike = People(values=x, labels=np.tile([0, 1], 50), groups=np.repeat([0, 1], 50), names=("a", "b"))
    none = np.zeros(0, dtype=np.int64)
    assert np.array_equal(Repair.of(alike, np.array([0, 1]), none).apply(alike).x, alike.x)


@pytest.mark.parametrize("level", [-0.1, 1.1, float("nan")])
def test_no_such_level(level: float) -> None:
    with pytest.raises(TrainingError, match=r"repair level = .*, expected a number in 0 \.\. 1"):
        Repair.of(PEOPLE, COLUMNS.numbers, COLUMNS.sensitive, level)


def test_repair_needs_every_group() -> None:
    with pytest.raises(DataError, match="group 'young' has no rows to fit the repair on"):
        Repair.of(PEOPLE.take(np.flatnonzero(PEOPLE.groups == 0)), COLUMNS.numbers, COLUMNS.sensitive)


# The mixture of networks


def drawn(seed: int, hidden: tuple[int, ...] = (7, 5)) -> Network:
    return random_network(np.random.default_rng(seed), (3, *hidden, 2))


@pytest.mark.parametrize("hidden", [(), (6,), (7, 5), (4, 4, 4)])
def test_the_mixture_is_the_weighted_sum(hidden: tuple[int, ...]) -> None:
    networks, weights = [drawn(seed, hidden) for seed in range(3)], np.array([0.5, 0.3, 0.2])
    expected = sum(p * network.forward(PEOPLE.x) for p, network in zip(weights, networks, strict=True))
    mixed = mixture(networks, weights)
    assert mixed.hidden == tuple(3 * width for width in hidden)
    assert np.allclose(mixed.forward(PEOPLE.x), expected, rtol=0, atol=1e-12)


def test_attributions_of_the_mixture_are_the_expected_ones() -> None:
    networks, weights = [drawn(seed) for seed in range(2)], np.array([0.7, 0.3])
    reference = Reference.of(PEOPLE, COLUMNS.merit)
    parts = [audit(network, reference, OTHERS).g for network in networks]
    assert np.allclose(audit(mixture(networks, weights), reference, OTHERS).g, 0.7 * parts[0] + 0.3 * parts[1], atol=1e-9)


def test_a_constant_member_explains_nothing() -> None:
    network = drawn(0)
    always = constant(network, positive=True)
    assert decisions(always, OTHERS.x).all()
    assert not decisions(constant(network, positive=False), OTHERS.x).any()
    mixed = mixture([network, always], np.array([0.5, 0.5]))
    assert np.allclose(mixed.forward(OTHERS.x), network.forward(OTHERS.x) / 2 + [0, 0.5])


def test_different_networks_do_not_mix() -> None:
    with pytest.raises(ValueError, match="the same depth"):
        mixture([drawn(0), drawn(0, (7,))], np.array([0.5, 0.5]))


# Every method


def test_all_learn_and_nobody_is_constant(trained: dict[str, TrainedDecider]) -> None:
    for method, decider in trained.items():
        decision, score = decider.decide(OTHERS), decider.score(OTHERS)
        assert (decision == OTHERS.labels).mean() > 0.7, method
        assert set(decision) == {0, 1}, method
        assert ((score >= 0) & (score <= 1)).all(), method
        assert score.var() > 0.01, method


def test_equalized_odds_methods_halve_the_gap(trained: dict[str, TrainedDecider]) -> None:
    before = eo_gap(trained["unconstrained"].decide(PEOPLE), PEOPLE)
    assert before > 0.2
    for method in ("hardt", "agarwal", "adversarial", "lagrangian"):
        assert eo_gap(trained[method].decide(PEOPLE), PEOPLE) < before / 2, method


def test_repair_lowers_disparate_impact_and_cec_training_inconsistency(trained: dict[str, TrainedDecider]) -> None:
    """What these two are for, instead of equalized odds."""
    impact = {m: np.ptp([trained[m].decide(OTHERS)[OTHERS.groups == g].mean() for g in (0, 1)]) for m in ("unconstrained", "dir")}
    assert impact["dir"] < 0.1 < 0.3 < impact["unconstrained"]
    reference = Reference.of(PEOPLE, COLUMNS.merit)
    score = {m: audit_decider(trained[m], reference, OTHERS).score.mean() for m in ("unconstrained", "cec")}
    assert score["cec"] < score["unconstrained"] / 2


def test_hardt_equalises_expected_rates_and_keeps_the_network(trained: dict[str, TrainedDecider]) -> None:
    hardt, plain = trained["hardt"], trained["unconstrained"]
    assert eo_gap(hardt.score(PEOPLE), PEOPLE) < 0.01  # in expectation over its draws, on the rows it was fitted on
    for ours, theirs in zip(hardt.network.layers, plain.network.layers, strict=True):
        assert np.array_equal(ours.weight, theirs.weight)
    assert np.array_equal(hardt.decide(OTHERS, seed=4), hardt.decide(OTHERS, seed=4))
    assert not np.array_equal(hardt.decide(OTHERS, seed=4), hardt.decide(OTHERS, seed=5))


def test_agarwal_draws_among_its_networks(trained: dict[str, TrainedDecider]) -> None:
    agarwal = trained["agarwal"]
    assert agarwal.network.hidden[0] % 128 == 0
    assert agarwal.network.hidden[0] // 128 == int(agarwal.notes[0].split()[0])
    assert np.mean([agarwal.decide(OTHERS, seed=s) for s in range(200)], axis=0) == pytest.approx(agarwal.score(OTHERS), abs=0.2)


def test_merit_only_explains_with_merit_alone(trained: dict[str, TrainedDecider]) -> None:
    found = audit_decider(trained["merit-only"], Reference.of(PEOPLE, COLUMNS.merit), OTHERS)
    assert not found.g[:, 1:].any()
    assert not found.g_tilde[:, 1:].any()
    assert (found.g[:, 0] != 0).all()


def test_dir_sees_repaired_people(trained: dict[str, TrainedDecider]) -> None:
    decider = trained["dir"]
    moved = OTHERS.fed(OTHERS.x.copy())
    moved.x[:, 2] = 1 - moved.x[:, 2]  # the group's own column does not reach the network
    assert np.array_equal(decider.score(moved), decider.score(OTHERS))
    assert np.array_equal(decider.score(OTHERS), probability(decider.network, decider.seen(OTHERS).x))


def test_an_audit_of_a_plain_decider_is_the_audit_of_its_network(trained: dict[str, TrainedDecider]) -> None:
    reference = Reference.of(PEOPLE, COLUMNS.merit)
    ours = audit_decider(trained["lagrangian"], reference, OTHERS)
    theirs = audit(trained["lagrangian"].network, reference, OTHERS)
    assert ours.score == pytest.approx(theirs.score, abs=1e-12)  # batches of other shapes are added up in another order
    assert np.array_equal(ours.regime, theirs.regime)


def test_attributions_are_complete_for_every_method(trained: dict[str, TrainedDecider]) -> None:
    """They sum to the margin of the seen person less that of the seen baseline."""
    reference = Reference.of(PEOPLE, COLUMNS.merit)
    for method, decider in trained.items():
        found = audit_decider(decider, reference, OTHERS)
        seen, pool = decider.seen(OTHERS), Reference.of(decider.seen(PEOPLE), COLUMNS.merit)
        margin = [decider.network.forward(x) @ [-1, 1] for x in (seen.x, pool.baseline(seen))]
        assert np.abs(found.g.sum(axis=1) - (margin[0] - margin[1])[found.individual]).max() < 1e-9, method


def test_the_seed_is_the_training() -> None:
    pytest.importorskip("torch")
    few = replace(LOOP, epochs=1)
    for method in ("adversarial", "lagrangian"):
        deciders = [train_decider(method, PEOPLE, COLUMNS, loop=replace(few, seed=s)) for s in (1, 1, 2)]
        one, two, other = (decider.network.layers[0].weight for decider in deciders)
        assert np.array_equal(one, two)
        assert not np.array_equal(one, other)


def test_mistakes() -> None:
    with pytest.raises(TrainingError, match="method 'hard' is unknown; choose one of unconstrained, merit-only, dir, hardt"):
        train_decider("hard", PEOPLE, COLUMNS)
    lone = PEOPLE.take(np.flatnonzero((PEOPLE.groups == 0) | (PEOPLE.labels == 1)))
    with pytest.raises(DataError, match=r"group 'young' has no row with the true label 0.*add rows, or join groups"):
        train_decider("hardt", lone, COLUMNS)


def test_columns_of_a_schema() -> None:
    schema = datasets.german().schema
    columns = ColumnRoles.of(schema, ["sex"])
    assert len(columns.merit) == 6
    assert len(columns.sensitive) == 1
    assert not np.isin(columns.sensitive, columns.numbers).any()
    assert len(ColumnRoles.of(datasets.synthetic(n=5).schema).sensitive) == 0


def test_merit_only_looks_at_nothing_else(trained: dict[str, TrainedDecider]) -> None:
    decider = trained["merit-only"]
    other = OTHERS.fed(np.column_stack([OTHERS.x[:, 0], OTHERS.x[::-1, 1:]]))
    np.testing.assert_array_equal(decider.score(other), decider.score(OTHERS))
    assert decider.score(OTHERS).std() > 0.1  # it does look at merit
    found = audit_decider(decider, Reference.of(PEOPLE, COLUMNS.merit), OTHERS)
    assert not found.g[:, 1:].any()


# What the two objectives of our own do in a step


def test_violations_by_hand() -> None:
    torch = pytest.importorskip("torch")
    from verifair.systems.cec.training.objectives import violations

    p = torch.tensor([0.9, 0.7, 0.2, 0.6])
    z = torch.stack([torch.zeros(4), torch.log(p / (1 - p))], dim=1)
    labels, groups = torch.tensor([1, 1, 1, 0]), torch.tensor([0, 0, 1, 0])
    found = violations(z, labels, groups, count=2, slack=0.05)
    assert found[1, 0, 1].item() == pytest.approx(0.8 - 0.2 - 0.05, abs=1e-6)
    assert found[1, 1, 0].item() == pytest.approx(0.2 - 0.8 - 0.05, abs=1e-6)
    assert not found[0].any()  # nobody of group 1 has label 0: no rate, no constraint
    assert not found.diagonal(dim1=1, dim2=2).any()


def test_multipliers_rise_while_a_constraint_is_broken_and_never_below_zero() -> None:
    torch = pytest.importorskip("torch")
    from verifair.systems.cec.training.objectives import Lagrangian

    objective = Lagrangian(PEOPLE, slack=0.1, ascent=0.5)
    chosen = torch.arange(200)
    z = torch.zeros(200, 2, requires_grad=True)
    z.data[:, 1] = torch.where(torch.from_numpy(PEOPLE.groups[:200]) == 1, 2.0, -2.0)  # group 1 is always preferred
    plain = objective(None, z, chosen).item()
    objective.after_step(None, chosen)
    assert (objective.multipliers[:, 1, 0] > 0.3).all()
    assert not objective.multipliers[:, 0, 1].any()  # the other way round nothing is broken
    dearer = objective(None, z, chosen)
    assert dearer.item() > plain
    before = z.detach().clone().requires_grad_()
    cheap = Lagrangian(PEOPLE, slack=0.1)(None, before, chosen)
    difference = torch.autograd.grad(dearer, z)[0] - torch.autograd.grad(cheap, before)[0]
    preferred = torch.from_numpy(PEOPLE.groups[:200]) == 1
    assert (difference[preferred, 1] > 0).all()  # descent takes from the preferred group
    assert (difference[~preferred, 1] < 0).all()  # and gives to the other


def test_the_projected_gradient_never_helps_the_adversary() -> None:
    torch = pytest.importorskip("torch")
    from verifair.systems.cec.training.objectives import projected

    generator = torch.Generator().manual_seed(0)
    own, other = ([torch.randn(4, 3, generator=generator), torch.randn(4, generator=generator)] for _ in range(2))
    step = projected(own, other, alpha=0.7)
    along = sum((a * b).sum() for a, b in zip(step, other, strict=True)).item()
    square = sum((b * b).sum() for b in other).item()
    assert along == pytest.approx(-0.7 * square, rel=1e-5)  # going down `step` goes up the adversary's loss
    for a, b in zip(projected(own, [torch.zeros_like(b) for b in other], alpha=0.7), own, strict=True):
        assert torch.equal(a, b)
