"""Our attributions against captum's, on the shipped networks and real rows: the same sum, the exact integral in the limit."""

import numpy as np
import pytest

import verifair as vf
from encoders.arrays import Array
from encoders.network import Network
from verifair import datasets
from verifair.systems.cec.explanations import explanations
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import merit_columns, people_of

torch = pytest.importorskip("torch")
captum = pytest.importorskip("captum.attr")


def of_captum(network: Network, x: Array, baseline: Array, steps: int) -> Array:
    """IntegratedGradients(method="riemann_middle") of logit_1 - logit_0, in float64."""
    modules: list[torch.nn.Module] = []
    for layer in network.layers:
        linear = torch.nn.Linear(*reversed(layer.weight.shape), dtype=torch.float64)
        linear.weight.data, linear.bias.data = torch.from_numpy(layer.weight.copy()), torch.from_numpy(layer.bias.copy())
        modules += [linear, torch.nn.ReLU()]
    net = torch.nn.Sequential(*modules[:-1])
    found = captum.IntegratedGradients(lambda z: net(z)[:, 1] - net(z)[:, 0]).attribute(
        torch.from_numpy(x), torch.from_numpy(baseline), n_steps=steps, method="riemann_middle"
    )
    return np.asarray(found.detach().numpy())


@pytest.mark.parametrize("name", ["german", "adult"])
def test_captum_agrees(name: str) -> None:
    network, dataset = vf.read_onnx(datasets.network_path(name)), datasets.load(name)
    people = people_of(dataset.schema, dataset.frame.head(2000), "sex")
    baseline = Reference.of(people, merit_columns(dataset.schema)).baseline(people)
    x, b = people.x[:100], baseline[:100]
    for steps in (2, 32):
        assert np.abs(explanations(network, x, b, steps) - of_captum(network, x, b, steps)).max() < 1e-9
    exact = explanations(network, x, b)
    assert np.abs(exact - of_captum(network, x[:100], b, 5000)).max() < 1e-2
    change = (network.forward(x) - network.forward(b)) @ np.array([-1.0, 1.0])
    assert np.abs(exact.sum(axis=1) - change).max() < 1e-9
