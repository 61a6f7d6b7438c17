"""What a situation test found, in the table's words and ready to be shown: claims, counts, overlaps, rates, what changed, whom to
review; and several protected attributes beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.network import Booleans
from verifair.schema.feature import text
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.groups import told
from verifair.systems.cst.testing import Method, Situations

ORDER: tuple[Method, ...] = ("CST w/o", "ST", "CST", "CF")
"""Methods as table 1 has them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervention:
    """One intervention.   found: its test.   frame: (N rows) the table.   counterfactual: (C rows) complainants as they would be.
    attributes: what makes people similar.   negative: (N,) rows decided negatively.   chance: mean counts where the protected
    attribute is dealt out anew, see `verifair.systems.cst.chance`; None where that was not asked for.
    """

    found: Situations
    frame: pd.DataFrame
    counterfactual: pd.DataFrame
    attributes: tuple[str, ...]
    negative: Booleans
    chance: pd.DataFrame | None = None

    @classmethod
    def of(cls, model: SituationTesting, do: Mapping[str, Any], progress: Callable[[int, int], None]) -> Intervention:
        """One intervention, tested with a fitted model. progress(done, total) counts searches."""
        tilde, decisions = model.counterfactual(do)
        found = model.compared(
            model.frame_, tilde, model.causal_model_.check(model.frame_, do), decisions, progress=progress
        )  # fmt: skip
        return cls(
            found=found, frame=model.frame_, counterfactual=tilde, attributes=model.attributes_,
            negative=np.asarray(~model.decisions_),
        )  # fmt: skip

    @property
    def name(self) -> str:
        return told(self.found.do)

    @property
    def rows(self) -> pd.Index:
        """(C,) what the table calls the complainants."""
        return self.frame.index[self.found.complainants]

    @cached_property
    def factual(self) -> pd.DataFrame:
        """(C rows) the complainants as they are."""
        return self.frame.iloc[self.found.complainants]

    @property
    def methods(self) -> list[Method]:
        return [method for method in ORDER if method in self.found.methods]

    @property
    def method(self) -> Method:
        """The one that people are ranked by: CST, or without search centers where nobody decides on counterfactuals."""
        return "CST" if "CST" in self.found.methods else "CST w/o"

    @property
    def k(self) -> int:
        """The group size that is shown in detail: the smallest."""
        return min(self.found.k)

    @property
    def by_chance(self) -> float:
        """How many significant cases to expect where no group is treated differently: each interval lies above the true difference
        with probability (1 - level) / sides. Of intervals as they are, without correction."""
        terms = self.found.terms
        return len(self.found.complainants) * (1 - terms.level) / terms.sides

    def claims(self, methods: Sequence[Method] | None = None, sizes: Sequence[int] | None = None) -> pd.DataFrame:
        """A line for each complainant, method and k."""
        return pd.concat(self.parts(methods, sizes), ignore_index=True)

    def parts(self, methods: Sequence[Method] | None = None, sizes: Sequence[int] | None = None) -> Iterator[pd.DataFrame]:
        """The same, a table for each method and k in turn: of a million people they are large."""
        found = self.found
        names = np.array(found.names, dtype=object)[found.groups]
        for method in self.methods if methods is None else methods:
            for k in found.k if sizes is None else sizes:
                one = found.claims(method, k)
                yield pd.DataFrame({
                    "do": self.name, "row": self.rows, "group": names, "method": method, "k": k, "n": one.n,
                    "control": one.p_control, "test": one.p_test, "delta": one.delta, "low": one.low, "high": one.high,
                    "p value": one.p_value, "case": one.positive, "significant": one.significant,
                })  # fmt: skip

    def claims_of(self, at: int) -> pd.DataFrame:
        """The claims of one complainant. at: their place among the complainants."""
        lines = []
        for method in self.methods:
            for k in self.found.k:
                one = self.found.claims(method, k)
                shares = {"control": one.p_control[at], "test": one.p_test[at], "delta": one.delta[at]}
                said = {"low": one.low[at], "high": one.high[at], "case": one.positive[at], "significant": one.significant[at]}
                lines.append({"method": method, "k": k, **shares, **said})
        return pd.DataFrame(lines)

    def counts(self) -> pd.DataFrame:
        """Table 1: do, method, k, complainants, cases, share, significant, significant share; shares by chance if those were asked
        for."""
        table = self.found.counts()
        order = {method: n for n, method in enumerate(ORDER)}
        table = table.sort_values("method", key=lambda column: column.map(order), kind="stable").reset_index(drop=True)
        table.insert(0, "do", self.name)
        table.insert(3, "complainants", len(self.found.complainants))
        if self.chance is None:
            return table
        dealt = self.chance.rename(columns={"share": "share by chance", "significant share": "significant share by chance"})
        return table.merge(dealt.drop(columns=["cases", "significant"]), how="left", on=["method", "k"])

    def overlaps(self) -> pd.DataFrame:
        """Who is found by one method and not by another, for each k: do, found by, not by, k, people."""
        pairs: list[tuple[Method, Method]] = [("CST w/o", "ST"), ("ST", "CST w/o"), ("CST", "CF"), ("CF", "CST")]
        lines = []
        for one, other in pairs:
            if one not in self.found.methods or other not in self.found.methods:
                continue
            for k in self.found.k:
                only = self.found.claims(one, k).positive & ~self.found.claims(other, k).positive
                lines.append({"do": self.name, "found by": one, "not by": other, "k": k, "people": int(only.sum())})
        return pd.DataFrame(lines, columns=["do", "found by", "not by", "k", "people"])

    def rates(self) -> pd.DataFrame:
        """Share of negative decisions of each group: do, group, people, negative, counterfactual (NaN where nobody decides)."""
        found = self.found
        tilde = np.full(len(found.groups), np.nan) if found.refused_tilde is None else found.refused_tilde
        pool = found.test_pool
        lines: list[tuple[Any, ...]] = []
        for g, name in enumerate(found.names):
            mine = found.groups == g
            lines.append((self.name, name, int(mine.sum()), float(found.refused[mine].mean()), float(tilde[mine].mean())))
        lines.append((self.name, self.name, len(pool), float(pool.negative.mean()), float(pool.negative.mean())))
        return pd.DataFrame(lines, columns=["do", "group", "people", "negative", "counterfactual"])

    def changes(self) -> pd.DataFrame:
        """What `do` moves: do, attribute, people (how many it moves), before, after (means), moves (most frequent)."""
        lines: list[tuple[Any, ...]] = []
        for name in self.moved:
            before, after = self.factual[name], self.counterfactual[name]
            numbers = _is_number(before) and _is_number(after)
            means = (float(before.mean()), float(after.mean())) if numbers else (np.nan, np.nan)
            people = int((before.to_numpy() != after.to_numpy()).sum())
            lines.append((self.name, name, people, *means, "" if numbers else most_frequent_move(before, after)))
        return pd.DataFrame(lines, columns=["do", "attribute", "people", "before", "after", "moves"])

    @cached_property
    def moved(self) -> list[str]:
        """Columns that differ in the counterfactual for anybody, `do`'s own left out."""
        return [
            str(name) for name in self.frame.columns
            if name not in self.found.do and (self.factual[name].to_numpy() != self.counterfactual[name].to_numpy()).any()
        ]  # fmt: skip

    def counterfactuals(self) -> pd.DataFrame:
        """The complainants before and after: do, row, decisions in words, and each attribute twice."""
        names = list(dict.fromkeys([*self.found.do, *self.attributes, *self.moved]))
        tilde = self.found.refused_tilde
        parts: dict[str, Any] = {
            "do": self.name, "row": self.rows, "decision": decision(self.found.refused),
            "decision counterfactual": None if tilde is None else decision(tilde),
        }  # fmt: skip
        for name in names:
            parts[name] = self.factual[name].to_numpy()
            parts[f"{name} counterfactual"] = self.counterfactual[name].to_numpy()
        return pd.DataFrame(parts)

    def review(self, top: int) -> pd.DataFrame:
        """Whom to look at first, of those with a case: significant ones, then the largest difference, at the smallest k and then at
        the largest; place: position in the table."""
        table = self.claims([self.method], [self.k])
        table["delta wide"] = self.found.claims(self.method, max(self.found.k)).delta
        table["place"] = self.found.complainants
        table["decision"] = decision(self.found.refused)
        tilde = self.found.refused_tilde
        table["decision counterfactual"] = "-" if tilde is None else decision(tilde)
        order = ["significant", "delta", "delta wide"]
        return table[table["case"]].sort_values(order, ascending=False, kind="stable").head(top).reset_index(drop=True)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form. claims: at the smallest k, of the people with a case by any method; claims.csv of --out holds all."""
        claims = self.claims(sizes=[self.k])
        people = claims.loc[claims["case"], "row"].unique()
        return {
            "do": {name: text(value) for name, value in self.found.do.items()},
            "finding": self.found.kind,
            "method": self.found.method,
            "proved": False,
            "complainants": len(self.found.complainants),
            "left_out": self.found.details["left out"],
            "methods": self.methods,
            "k": list(self.found.k),
            "counts": records(self.counts().drop(columns="do")),
            "expected_significant_by_chance": self.by_chance,
            "overlaps": records(self.overlaps().drop(columns="do")),
            "rates": records(self.rates().drop(columns="do")),
            "changes": records(self.changes().drop(columns="do")),
            "claims": records(claims[claims["row"].isin(people)].drop(columns="do")),
        }


def several(tests: Sequence[Intervention]) -> pd.DataFrame:
    """Several attributes: of those protected by all, how many are found for each attribute alone (multiple discrimination), and how
    many jointly (intersectional); a line for each method and k: method, k, people, multiple, intersectional (NaN if not tested).
    """
    alone, joint = [one for one in tests if len(one.found.do) == 1], [one for one in tests if len(one.found.do) > 1]
    if len(alone) < 2:
        return pd.DataFrame()
    everybody = alone[0].found.complainants
    for one in alone[1:]:
        everybody = np.intersect1d(everybody, one.found.complainants)
    lines = []
    for method in alone[0].methods:
        for k in alone[0].found.k:
            each = [np.isin(everybody, one.found.complainants[one.found.claims(method, k).positive]) for one in alone]
            both = joint[0].found.claims(method, k).positive.sum() if joint else np.nan
            lines.append({
                "method": method, "k": k, "people": len(everybody), "multiple": int(np.logical_and.reduce(each).sum()),
                "intersectional": float(both),
            })  # fmt: skip
    return pd.DataFrame(lines)


def decision(refused: Booleans) -> npt.NDArray[np.str_]:
    return np.where(refused, "negative", "positive")


def most_frequent_move(before: pd.Series, after: pd.Series) -> str:
    """Of words, such as "Wife -> Husband (311)"."""
    differ = before.to_numpy() != after.to_numpy()
    pairs = before[differ].map(text).to_numpy() + " -> " + after[differ].map(text).to_numpy()
    if not len(pairs):
        return ""
    counted = pd.Series(pairs).value_counts()
    return f"{counted.index[0]} ({counted.iloc[0]:,})"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    table = table.astype(object).where(table.notna(), None)
    return [{str(key): value for key, value in line.items()} for line in table.to_dict(orient="records")]


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
