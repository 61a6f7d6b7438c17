"""Integrated gradients as training differentiates them: beside captum, and beside autograd's own double backward."""

import pytest

torch = pytest.importorskip("torch", reason='training needs torch: pip install "verifair[torch]"')

from torch import Tensor  # noqa: E402

from verifair.systems.cec.training.path_gradients import Layers, attributions  # noqa: E402
from verifair.training.perceptron import Perceptron  # noqa: E402

WIDTHS = [(7,), (6, 5), (6, 5, 4), (5, 4, 3, 6)]


def network(hidden: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> Layers:
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for weight, bias in Perceptron.drawn(4, hidden, generator).layers:
        moved = torch.randn(bias.shape, generator=generator) * 0.3
        layers.append(tuple(tensor.detach().to(dtype).requires_grad_() for tensor in (weight, moved)))
    return tuple(layers)


def points(count: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn((count, 4), generator=generator).to(dtype), torch.randn((count, 4), generator=generator).to(dtype)


def margin(layers: Layers, x: Tensor) -> Tensor:
    z = Perceptron(layers, torch.Generator())(x)
    return z[:, 1] - z[:, 0]


def by_double_backward(layers: Layers, x: Tensor, baseline: Tensor, steps: int) -> Tensor:
    total = torch.zeros_like(x)
    for t in range(steps):
        point = (baseline + (t + 0.5) / steps * (x - baseline)).requires_grad_()
        total = total + torch.autograd.grad(margin(layers, point).sum(), point, create_graph=True)[0]
    return (x - baseline) * total / steps


@pytest.mark.parametrize("hidden", WIDTHS)
def test_values_and_derivatives_are_those_of_double_backward(hidden: tuple[int, ...]) -> None:
    layers = network(hidden)
    weights = [weight for weight, _ in layers]
    x, baseline = points(9)
    ours, theirs = attributions(layers, x, baseline, 8), by_double_backward(layers, x, baseline, 8)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).to(ours)
    found = torch.autograd.grad((ours * direction).sum(), weights)
    expected = torch.autograd.grad((theirs * direction).sum(), weights)
    assert all(float(want.abs().max()) > 1e-3 for want in expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_a_second_backward_gives_the_same() -> None:
    layers = network((6, 5, 4))
    loss = attributions(layers, *points(9), 8).square().sum()
    first = torch.autograd.grad(loss, layers[1][0], retain_graph=True)[0]
    again = torch.autograd.grad(loss, layers[1][0])[0]
    assert torch.equal(first, again)


@pytest.mark.parametrize("hidden", WIDTHS)
@pytest.mark.parametrize("steps", [2, 32])
def test_values_are_captums(hidden: tuple[int, ...], steps: int) -> None:
    captum = pytest.importorskip("captum.attr")
    layers = network(hidden, torch.float32)
    x, baseline = points(50, torch.float32)
    method = captum.IntegratedGradients(lambda x: margin(layers, x))
    theirs = method.attribute(x, baseline, n_steps=steps, method="riemann_middle")
    assert float(theirs.abs().max()) > 0.1
    assert float((attributions(layers, x, baseline, steps) - theirs).detach().abs().max()) <= 1e-5


def test_attributions_sum_to_the_difference_of_scores() -> None:
    layers = network((6, 5))
    x, baseline = points(50)
    total = attributions(layers, x, baseline, 4096).sum(dim=1)
    assert torch.allclose(total, margin(layers, x) - margin(layers, baseline), rtol=0, atol=1e-3)
    assert float(total.detach().abs().max()) > 0.5
