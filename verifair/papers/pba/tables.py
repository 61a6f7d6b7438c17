"""Tables 1 to 3 of the PBA paper: nine networks for each dataset, trained here, with all metrics by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from encoders.model import Model
from encoders.onnx.reader import read_model
from solvers.outcome import Budget
from verifair.datasets import Dataset
from verifair.datasets.stream import Stream
from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.papers.pba.printed import DELTAS, GROUPS, METHODS, SIZES, printed
from verifair.schema.schema import Schema
from verifair.systems.pba.rows import decide_rows
from verifair.systems.pba.scores import group_rates, proved_shares
from verifair.systems.pba.stream import TableStream
from verifair.training import train

SECONDS = 3600.0
"""For each network; its rows take seconds."""
FAIR_N_EPOCHS = 50
"""Epochs of Fair-N on German. After 20, as for the others, it is nearly constant and its direction depends on the seed."""
FIGURE_KEYS = ("dataset", "hidden", "method", "setting", "group", "outcome")
KEYS = ("dataset", "hidden", "method", "group", "metric", "setting", "delta")


def metrics(dataset: Dataset, sensitive: str, seed: int, name: str) -> pd.DataFrame:
    """Train the nine networks with the seed, and measure and prove everything on the held-out rows, beside the paper's."""
    results = _every_network(partial(_network, dataset, sensitive, seed))
    table = results.merge(printed(_paper(dataset), sensitive), how="inner", on=list(KEYS[1:])).assign(dataset=name)
    return table[[*KEYS, "share", "paper's share", "rows"]]


def outcomes(dataset: Dataset, sensitive: str, seed: int, name: str) -> pd.DataFrame:
    """Figures 2 and 3, for all nine networks: the share of people proved more confident, by the group shown and by outcome."""
    results = _every_network(partial(_outcomes, dataset, sensitive, seed))
    return results.assign(dataset=name)[[*FIGURE_KEYS, "share", "rows"]]


def _every_network(make: Callable[[tuple[int, ...], str], pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([
        make(hidden, method).assign(hidden=f"{hidden[0]},{hidden[1]}", method=method) for hidden in SIZES for method in METHODS
    ], ignore_index=True)


def _paper(dataset: Dataset) -> str:
    """Return the paper's name of a dataset: our sample of Adult is Adult there."""
    return dataset.name.removesuffix("-balanced")


def _trained(dataset: Dataset, sensitive: str, seed: int, hidden: tuple[int, ...], method: str) -> tuple[Model, Schema]:
    epochs = FAIR_N_EPOCHS if (dataset.name, method) == ("german", "fair-n") else None
    model = train(
        dataset, method=method, sensitive=None if method == "agnostic" else sensitive, hidden=hidden, seed=seed, epochs=epochs
    )
    return model.schema.settled(read_model(model.onnx_bytes()))


def _network(dataset: Dataset, sensitive: str, seed: int, hidden: tuple[int, ...], method: str) -> pd.DataFrame:
    """Return a line for each group, metric, setting and delta: its share, and the number of rows."""
    people, shares = _decided(dataset, sensitive, seed, hidden, method, (PersistentBias, Robustness), DELTAS)
    rates = group_rates(people.counts.rates[0])
    rates = rates[rates["metric"].isin(["SP", "TPR", "CFA"])].rename(columns={"value": "share"})
    counts = _shares_by(shares, "delta")
    columns = ["group", "metric", "setting", "delta", "share", "rows"]
    table = pd.concat([rates.assign(setting="observed", delta=0.0)[columns], counts[columns]], ignore_index=True)
    return table[table["group"].isin(GROUPS[_paper(dataset), sensitive])]


def _outcomes(dataset: Dataset, sensitive: str, seed: int, hidden: tuple[int, ...], method: str) -> pd.DataFrame:
    _, shares = _decided(dataset, sensitive, seed, hidden, method, (PersistentBias,), DELTAS[:1])
    table = _shares_by(shares, "label")
    table["outcome"] = table["label"].map(dict(enumerate(dataset.schema.outcomes)))
    return table.loc[table["group"].isin(GROUPS[_paper(dataset), sensitive]), ["setting", "group", "outcome", "share", "rows"]]


def _decided(
    dataset: Dataset, sensitive: str, seed: int, hidden: tuple[int, ...], method: str,
    kinds: Sequence[type[PersistentBias | Robustness]], deltas: Sequence[float],
) -> tuple[TableStream, pd.DataFrame]:
    """Train a network and decide its held-out rows; return these, and the shares proved."""
    network, schema = _trained(dataset, sensitive, seed, hidden, method)
    exchange = Exchange.of(schema, sensitive)
    queries = [kind(model=network, schema=schema, protected=sensitive, delta=list(deltas)) for kind in kinds]
    people = TableStream.of(network, schema, Stream.of(dataset.test), queries, [exchange])
    verdicts = [decide_rows(query, people, budget=Budget(seconds=SECONDS)) for query in queries]
    return people, proved_shares(verdicts, [exchange])


def _shares_by(shares: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the proved shares by metric, setting, shown group, and the column `column`."""
    shares = shares.drop(columns="group").rename(columns={"shown": "group"})
    counts = shares.groupby(["metric", "setting", "group", column], as_index=False)[["rows", "proved"]].sum()
    return counts.assign(share=counts["proved"] / counts["rows"])
