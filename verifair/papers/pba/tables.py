"""Tables 1 to 3 of the PBA paper: nine networks a dataset, trained here, with all metrics by group."""

from __future__ import annotations

import numpy as np
import pandas as pd

from encoders.network import Array, Integers
from encoders.onnx.reader import read_model
from solvers.outcome import Budget
from verifair.datasets import Dataset
from verifair.datasets.stream import Stream
from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.papers.pba.printed import DELTAS, GROUPS, METHODS, SIZES, printed
from verifair.systems.pba.rows import decide_rows
from verifair.systems.pba.scores import group_rates, proved_shares
from verifair.systems.pba.stream import TableStream
from verifair.training import train

PEOPLE = {"Female": 1510, "Male": 3290}
BLACK = 930
"""Of 4,800 people, five times the paper's test rows: 302 women, 658 men, 186 Black, 774 White."""
SECONDS = 3600.0
"""For each network; its rows take seconds."""
KEYS = ("dataset", "hidden", "method", "group", "metric", "setting", "delta")


def metrics(dataset: Dataset, sensitive: str, seed: int, name: str) -> pd.DataFrame:
    """Train the nine networks with the seed, and measure and prove everything on the held-out rows, beside the paper's."""
    parts = [
        _network(dataset, sensitive, hidden, method, seed).assign(hidden=f"{hidden[0]},{hidden[1]}", method=method)
        for hidden in SIZES for method in METHODS
    ]
    found = pd.concat(parts, ignore_index=True)
    table = found.merge(printed(dataset.name, sensitive), how="inner", on=list(KEYS[1:])).assign(dataset=name)
    return table[[*KEYS, "share", "paper's share", "rows"]]


def _network(dataset: Dataset, sensitive: str, hidden: tuple[int, ...], method: str, seed: int) -> pd.DataFrame:
    """Return one line a group, metric, setting and delta: its share, and of how many rows."""
    model = train(dataset, method=method, sensitive=None if method == "agnostic" else sensitive, hidden=hidden, seed=seed)
    network, schema = model.schema.settled(read_model(model.onnx_bytes()))
    exchange = Exchange.of(schema, sensitive)
    queries = [
        kind(network=network, schema=schema, sensitive=sensitive, delta=list(DELTAS)) for kind in (PersistentBias, Robustness)
    ]
    people = TableStream.of(network, schema, Stream.of(dataset.test), queries, [exchange])
    rates = group_rates(people.rates[0])
    rates = rates[rates["metric"].isin(["SP", "TPR", "CFA"])].rename(columns={"value": "share"})
    verdicts = [decide_rows(query, people, budget=Budget(seconds=SECONDS)) for query in queries]
    shares = proved_shares(verdicts, [exchange])
    shares = shares[["metric", "setting", "delta", "shown", "rows", "proved"]].rename(columns={"shown": "group"})
    counts = shares.groupby(["metric", "setting", "delta", "group"], as_index=False)[["rows", "proved"]].sum()
    counts["share"] = counts["proved"] / counts["rows"]
    own = ["group", "metric", "setting", "delta", "share", "rows"]
    found = pd.concat([rates.assign(setting="observed", delta=0.0)[own], counts[own]], ignore_index=True)
    return found[found["group"].isin(GROUPS[dataset.name, sensitive])]


def balanced_adult(dataset: Dataset, seed: int = 0) -> Dataset:
    """A sample of Adult with the sizes that the paper's percentages fit: Black and White people alone, both labels equally often.

    Inferred, not stated in the paper: the shares of its table 1 are fractions of 302 women, 658 men, 186 Black, 774 White people.
    """
    rng = np.random.default_rng(seed)
    frame = dataset.frame[dataset.frame["race"].isin(["Black", "White"])]
    label = frame[dataset.target]
    fewer = label.value_counts().min()
    even = pd.concat([frame[label == one].sample(fewer, random_state=rng) for one in sorted(label.unique())])
    cells = even.groupby(["sex", "race"]).size().unstack()
    people = np.array([PEOPLE[sex] for sex in cells.index])
    wanted = _margins(cells.to_numpy(dtype=np.float64), people, np.array([BLACK, people.sum() - BLACK]))
    drawn = [
        even[(even["sex"] == sex) & (even["race"] == race)].sample(int(wanted[i, j]), random_state=rng)
        for i, sex in enumerate(cells.index) for j, race in enumerate(cells.columns)
    ]
    return Dataset(name=dataset.name, frame=pd.concat(drawn).sort_index().reset_index(drop=True), schema=dataset.schema)


def _margins(cells: Array, rows: Integers, columns: Integers) -> Integers:
    """Return (2, 2) whole numbers with these sums of rows and columns, and about the odds ratio of `cells` (iterated fitting)."""
    fitted = cells.copy()
    for _ in range(100):
        fitted *= (rows / fitted.sum(axis=1))[:, None]
        fitted *= columns / fitted.sum(axis=0)
    corner = round(float(fitted[0, 0]))
    return np.array([[corner, rows[0] - corner], [columns[0] - corner, rows[1] - (columns[0] - corner)]])
