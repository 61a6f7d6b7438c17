"""Retraining on discriminatory instances, with the same label for all protected variants of a person.  (HyFair, mitigation 2)

No guarantee: the largest k often rises (HyFair, Table IV); certify the new network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.special

from encoders.arrays import Array, Integers
from encoders.decision import Threshold
from encoders.network import Network
from verifair.checker.report import Progress
from verifair.datasets import Dataset
from verifair.errors import DataError, TrainingError
from verifair.systems.hyfair.explain.samples import Neighbourhood, label
from verifair.systems.hyfair.search.space import Space
from verifair.training.onnx_writer import Weights, save_onnx
from verifair.training.settings import GradientDescent
from verifair.training.trainer import require_torch

BATCH = 256
"""Rows a step: the network is there already, and few and gentle steps are enough."""
SAMPLES = 5000
"""Around each cluster."""
MAX_SHARE = 1.0
"""Added rows, as a share of the training rows, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Instances:
    """Discriminatory instances with all their protected variants: raw (M, V), labels (M,), the same for all variants of an x.

    people: number of x.   from_data, from_samples: numbers of x by origin.
    """

    raw: Array
    labels: Integers
    from_data: int
    from_samples: int

    @property
    def people(self) -> int:
        return self.from_data + self.from_samples


def instances(space: Space, rows: Array, labels: Integers, clusters: Array, *, seed: int = 0) -> Instances:
    """Return data rows and local samples around the clusters that fall into several outcome buckets, the worst first.

    rows (N, V), labels (N,): the training rows. A data row keeps its own label for all its variants; a sample takes the label
    that most of its variants get from the network (in a tie, that of their mean probability). Half of the instances are samples, if
    there are enough; all together add at most MAX_SHARE * N rows. Raises DataError when nothing discriminates.
    """
    rng = np.random.default_rng(seed)
    budget = max(1, int(MAX_SHARE * len(rows) / len(space.combinations)))
    sets = [_samples(space, centre, rows, SAMPLES, rng) for centre in clusters]
    worst = _worst(space, np.concatenate(sets), budget // 2 if len(rows) else budget, rng) if sets else np.empty((0, rows.shape[1]))
    legal = np.flatnonzero(space.legal(rows))
    order = _order(space.count(rows[legal]), rng)[: budget - len(worst)]
    data_rows = legal[order]
    if not len(data_rows) + len(worst):
        raise DataError("no row of the data or near a cluster falls into two outcome buckets: there is nothing to retrain on")
    people = np.concatenate([rows[data_rows], worst])
    targets = np.concatenate([labels[data_rows], majority(space, worst)])
    possible = space.possible(people)
    variants = [space.rows(x, space.combinations[allowed]) for x, allowed in zip(people, possible, strict=True)]
    return Instances(
        raw=np.concatenate(variants),
        labels=np.repeat(targets, possible.sum(axis=1)).astype(np.int64),
        from_data=len(data_rows),
        from_samples=len(worst),
    )


def _samples(space: Space, centre: Array, rows: Array, count: int, rng: np.random.Generator) -> Array:
    raw = Neighbourhood.of(space, centre, rows).draw(count, rng)
    k = space.count(raw).astype(np.float64)
    return raw[label(raw, k).high] if k.min() < k.max() else raw


def _worst(space: Space, raw: Array, count: int, rng: np.random.Generator) -> Array:
    raw = np.unique(raw, axis=0)
    return np.asarray(raw[_order(space.count(raw), rng)[:count]])


def _order(k: Integers, rng: np.random.Generator) -> Integers:
    """Return the positions with k >= 2 in descending order of k, equal ones in random order."""
    order = np.lexsort((rng.random(len(k)), -k))
    return np.asarray(order[k[order] >= 2])


def majority(space: Space, raw: Array) -> Integers:
    """Return (N,) the class that most legal variants of each x get."""
    margins, possible, decision = space.logits(raw).astype(np.float64), space.possible(raw), _threshold(space)
    margins = margins if decision is None else decision.of(margins)
    positive = ((margins > 0) & possible).sum(axis=1) - possible.sum(axis=1) / 2
    mean = np.where(possible, scipy.special.expit(margins), 0.0).sum(axis=1) / np.maximum(possible.sum(axis=1), 1)
    return np.asarray(np.where(positive == 0, mean > 0.5, positive > 0), dtype=np.int64)


def _threshold(space: Space) -> Threshold | None:
    """Return the threshold that `positive` compares the logit with; None if decision 1 means a logit above 0, or the larger of two
    logits."""
    return space.query.schema.outcome.read(space.query.model)


def weights_of(network: Network) -> Weights:
    """Return the float32 weights of a ReLU network. Raises TrainingError for other activations, and for more than two classes."""
    if network.outputs > 2:
        raise TrainingError(f"the network has {network.outputs} classes; only networks of two classes are retrained")
    for number, layer in enumerate(network.layers[:-1], start=1):
        if layer.slope.any():
            raise TrainingError(f"layer {number} is not a plain ReLU layer; only plain ReLU networks are retrained")
    return tuple((layer.weight.astype(np.float32), layer.bias.astype(np.float32)) for layer in network.layers)


def _affine(weights: Weights, sign: float, shift: float) -> Weights:
    """Return the weights of sign * f + shift for those of f."""
    *hidden, (weight, bias) = weights
    return (*hidden, (np.float32(sign) * weight, (sign * bias + shift).astype(np.float32)))


def retrain(
    space: Space,
    dataset: Dataset,
    clusters: Array,
    out: Path,
    *,
    epochs: int = 5,
    learning_rate: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Instances:
    """Continue the training on the dataset's training rows and the instances, and write the network to `out` (ONNX); seeded.

    Raises MissingPackage without torch, TrainingError for networks that are no plain ReLU networks, DataError for rows that do
    not fit the schema or when nothing discriminates.
    """
    require_torch("retraining")
    from verifair.training.fit import fine_tune  # imports torch

    descent = GradientDescent(epochs=epochs, batch=BATCH, learning_rate=learning_rate, seed=seed)
    weights, schema = weights_of(space.query.model.layered("retraining")), space.query.schema
    rows, labels = schema.raw(dataset.train), schema.labels(dataset.train)
    added = instances(space, rows, labels, clusters, seed=seed)
    x = schema.encode(np.concatenate([rows, added.raw])).astype(np.float32)
    decision = _threshold(space)
    sign, threshold = (1.0, 0.0) if decision is None else (-1.0 if decision.below else 1.0, decision.at)
    shifted = _affine(weights, sign, -sign * threshold)  # above 0 where the decision is 1: labels are decisions
    trained, _ = fine_tune(shifted, x, np.concatenate([labels, added.labels]), descent, progress)
    metadata = {
        "method": "retrained on discriminatory instances", "retrained_from": space.query.model.source_sha256,
        "people": str(added.people), "seed": str(seed),
    }  # fmt: skip
    save_onnx(out, _affine(trained, sign, threshold), metadata)
    return added
