"""The reproducible tables and figures of each paper: one `Printed` for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from verifair.errors import QueryError

if TYPE_CHECKING:
    from verifair.papers.reproduce import Reproduced

PAPERS: Mapping[str, str] = {
    "pba": "Uncovering Locally-Persistent Bias via Ceteris Paribus Fairness (PBA)",
    "hyfair": "Uncovering Discrimination Clusters (HyFair)",
    "fgce": "Feasible Group Counterfactual Explanations (FGCE)",
    "cec": "Counterfactual Explanation Consistency (CEC)",
    "cst": "Counterfactual Situation Testing (CST)",
}
"""Name on the command line -> the paper. Each is a folder of this package."""
ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "https://archive.ics.uci.edu/dataset/2/adult": ("tabular/adult.csv.gz",),
    "https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data": ("tabular/german.csv",),
    "https://github.com/BhavanaSai1/loan-approval-bias-auditor": ("tabular/hmda",),
    "https://github.com/cc-jalvarez/counterfactual-situation-testing": ("cst/", "tabular/law_school"),
    "https://github.com/propublica/compas-analysis": ("tabular/compas",),
    "https://github.com/sumonbis/Fairify": ("encoded", "nets/", "schemas"),
    "https://github.com/xristosfrag/FGCE-Feasible-Group-Counterfactual-Explanations-for-Auditing-Fairness": (
        "fgce/", "tabular/heloc",
    ),
}
"""Source of data files, or of the tables they are made of -> start of their names."""
DATA = "VERIFAIR_DATA"
"""The variable that names the folder of the data files, where --data does not."""
MANY = 1_000
"""Seeds of what is trained or drawn."""
ROMAN = [tens + ones for tens in ("", "X", "XX", "XXX") for ones in ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")]
"""0 (no text) to 39."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One part of a table: one dataset (or network), with one seed.

    folder: of the data files, None if there are only the shipped ones.   seconds: for each search or solver that the paper gave a
    time limit.
    """

    dataset: str
    folder: Path | None
    seed: int
    seconds: float

    def file(self, *parts: str) -> Path:
        """Return a file of the data folder. Raises QueryError without a folder."""
        name = "/".join(parts)
        source = next(address for address, prefixes in ADDRESSES.items() if name.startswith(prefixes))
        if self.folder is None:
            raise QueryError(
                f"{self.dataset}: its data is not shipped; pass --data DIR, or set {DATA}: a folder with {name}, from {source}"
            )
        path = self.folder.joinpath(*parts)
        if not path.exists():
            raise QueryError(f"{path}: there is no such file, which {self.dataset} needs; it is from {source}")
        return path


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A table or figure of a paper.

    name: "table 4" or "figure 2".   about: what it shows.   datasets: those (or the networks) that it is about, one part each.
    make: makes a part as a table, with a column "paper's X" beside each column X that the paper also prints.   keys: columns that
    identify a line.   seeds: largest useful number of seeds, 1 if nothing is drawn.   differences: known reasons for differences
    from the paper.   seconds: for each search or solver, if the command line does not say.   lines: columns of a picture, across
    and up, for a table that the paper does not have.   parts: the table whose parts this one is made of, if it has none of its own.
    together: makes the table of all parts, if it is more than their means over the seeds.   picture: draws it, if the usual picture
    does not fit.
    """

    name: str
    about: str
    datasets: tuple[str, ...]
    make: Callable[[Request], pd.DataFrame]
    keys: tuple[str, ...]
    seeds: int = 1
    differences: str = ""
    seconds: float = 10.0
    lines: tuple[str, str] | None = None
    parts: str = ""
    together: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    picture: Callable[[Reproduced, Path], None] | None = None


def catalog(paper: str) -> tuple[Printed, ...]:
    """Return all reproducible tables and figures of a paper. Raises QueryError for an unknown name."""
    if paper not in PAPERS:
        raise QueryError(f"{paper}: there is no such paper here; name one of {', '.join(PAPERS)}")
    tables: tuple[Printed, ...] = import_module(f"verifair.papers.{paper}.catalog").PRINTED
    return tables


def chosen(paper: str, tables: Sequence[str], figures: Sequence[str]) -> list[Printed]:
    """Return the tables and figures of these numbers (4 or IV), all of them if none is named. Raises QueryError."""
    printed = {table.name: table for table in catalog(paper)}
    names = [f"{kind} {number(text)}" for kind, texts in (("table", tables), ("figure", figures)) for text in texts]
    unknown = next((name for name in names if name not in printed), None)
    if unknown is not None:
        raise QueryError(f"{paper}: {unknown} cannot be made; known are {', '.join(printed)}")
    return [printed[name] for name in names or printed]


def number(text: str) -> int:
    """Return the number of a table: "4" or "IV". Raises QueryError."""
    if re.fullmatch(r"\d{1,3}", text):
        return int(text)
    if text.upper() in ROMAN[1:]:
        return ROMAN.index(text.upper())
    raise QueryError(f"{text}: expected the number of a table or figure, such as 4 or IV")
