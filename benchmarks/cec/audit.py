"""Auditing explanation consistency: 10,000 people of Adult, and the attributions beside captum's on the same pairs, one run.

captum differentiates the network as torch modules in float32, on all cores, at the fastest of several batch sizes; ours is NumPy
in float64 on two threads. Both start from the same pairs; the matching is ours in both cases and timed separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.shared import show
from encoders.arrays import Array
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.systems.cec.audit import audit
from verifair.systems.cec.explanations import explanations
from verifair.systems.cec.matching import Reference, match
from verifair.systems.cec.measures import population
from verifair.systems.cec.people import merit_columns, people_of

PEOPLE = 10_000
STEPS = 32
THREADS = 2
BATCHES = (20_000, 100_000, None)
"""Points of paths that captum takes at once, at least one for each input; None: all."""
ROUNDS = 3


def run(folder: Path) -> pd.DataFrame:
    dataset, network = datasets.load("adult"), read_onnx(datasets.network_path("adult"))
    schema = dataset.schema

    def full_audit() -> None:
        people = people_of(schema, dataset.frame, "sex")
        reference = Reference.of(people, merit_columns(schema))
        population(audit(network, reference, people.take(np.arange(PEOPLE)), threads=THREADS))

    def matching() -> None:
        match(reference, audited)

    people = people_of(schema, dataset.frame, "sex")
    reference = Reference.of(people, merit_columns(schema))
    audited = people.take(np.arange(PEOPLE))
    matches = match(reference, audited)
    b = reference.baseline(audited)[matches.individual]
    x = np.concatenate([audited.x[matches.individual], people.x[matches.row]])
    b = np.concatenate([b, b])
    jobs: dict[str, Callable[[], Array | None]] = {
        "whole audit, from table to intervals": full_audit,
        "matching": matching,
        "exact path integral": lambda: explanations(network, x, b, threads=THREADS),
        f"{STEPS} steps": lambda: explanations(network, x, b, STEPS, threads=THREADS),
        **{f"captum, {STEPS} steps, batch {batch or 'all'}": _captum(network, x, b, batch) for batch in BATCHES},
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    results: dict[str, Array | None] = {}
    for _ in range(ROUNDS):  # interleaved, so that other load on the machine affects all
        for name, job in jobs.items():
            start = time.perf_counter()
            results[name] = job()
            seconds[name].append(time.perf_counter() - start)
    captum = min(min(times) for name, times in seconds.items() if name.startswith("captum"))
    change = (network.forward(x) - network.forward(b)) @ np.array([-1.0, 1.0])
    reference_gradients = results[f"{STEPS} steps"]
    lines = []
    for name, times in seconds.items():
        g = results[name]
        lines.append({
            "what": name, "people": PEOPLE, "attributions": 0 if g is None else len(g), "seconds": min(times),
            "median": np.median(times),
            "captum / this": np.nan if g is None else captum / min(times),
            "completeness": np.nan if g is None else np.abs(g.sum(axis=1) - change).max(),
            "from ours": np.abs(g - reference_gradients).max() if g is not None and reference_gradients is not None else np.nan,
        })
    return show("CEC audit: Adult, sex, network (100, 50), best of three interleaved rounds", pd.DataFrame(lines), folder)


def _captum(network: Network, x: Array, b: Array, batch: int | None) -> Callable[[], Array]:
    import torch
    from captum.attr import IntegratedGradients

    torch.set_num_threads(THREADS)
    modules: list[torch.nn.Module] = []
    for layer in network.layers:
        linear = torch.nn.Linear(layer.weight.shape[1], layer.weight.shape[0])
        linear.weight.data = torch.from_numpy(layer.weight.astype(np.float32))
        linear.bias.data = torch.from_numpy(layer.bias.astype(np.float32))
        modules += [linear, torch.nn.ReLU()]
    net = torch.nn.Sequential(*modules[:-1]).requires_grad_(False)

    def margin(z: torch.Tensor) -> torch.Tensor:
        logits = net(z)
        return logits[:, 1] - logits[:, 0]

    inputs = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(b.astype(np.float32))

    def attribute() -> Array:
        attributions = IntegratedGradients(margin).attribute(
            *inputs, n_steps=STEPS, method="riemann_middle", internal_batch_size=batch
        )
        return np.asarray(attributions.detach().numpy(), dtype=float)

    return attribute
