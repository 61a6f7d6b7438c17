"""The result of one intervention in the table's words: claims, counts, overlaps, rates, changes, people to review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, Field, computed_field

from encoders.arrays import Array, Booleans
from verifair.checker.report import Progress
from verifair.datasets.stream import Stream
from verifair.models.columns import holds_numbers
from verifair.schema.feature import text
from verifair.schema.naming import beside
from verifair.systems.cst.deciders import reads
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.groups import in_words
from verifair.systems.cst.testing import Method, Situations
from verifair.systems.proportions import critical, wilson
from verifair.systems.results.result import Count, RowName, RowsOf, Seed, Shape, Share
from verifair.systems.results.words import percent
from verifair.systems.stores import NO_STORE, Parts

ORDER: tuple[Method, ...] = ("CST w/o", "ST", "CST", "CF")
"""Methods as table 1 has them."""


class CaseCount(Shape):
    """A line of Table 1."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    method: Method
    k: int
    complainants: Count
    cases: Count
    share: Share | None
    significant: Count
    significant_share: Annotated[Share | None, Field(alias="significant share")]
    share_by_chance: Annotated[Share | None, Field(alias="share by chance")] = None
    significant_share_by_chance: Annotated[Share | None, Field(alias="significant share by chance")] = None


class Overlap(Shape):
    found_by: Annotated[Method, Field(alias="found by")]
    not_by: Annotated[Method, Field(alias="not by")]
    k: int
    people: Count


class GroupRate(Shape):
    group: str
    people: Count
    negative: Share | None
    counterfactual: Share | None
    """Null: nobody decides on counterfactuals."""


class AttributeChange(Shape):
    """The change of one attribute under an intervention."""

    attribute: str
    people: Count
    before: float | None
    after: float | None
    moves: str


class SituationClaim(Shape):
    """The claim of one complainant by one method and group size."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    row: RowName
    group: str
    method: Method
    k: int
    n: Count
    control: Share | None
    """Share of negative decisions in the control group."""
    test: Share | None
    delta: float | None
    low: float | None
    high: float | None
    p_value: Annotated[Share | None, Field(alias="p value")]
    case: bool
    significant: bool
    share_of_draws: Annotated[Share | None, Field(alias="share of draws")] = None
    """Share of the draws in which this is a case, with its 95 % interval (Wilson)."""
    draws_low: Annotated[Share | None, Field(alias="draws low")] = None
    draws_high: Annotated[Share | None, Field(alias="draws high")] = None


class DrawnCount(Shape):
    """Number of cases by one method, over the draws."""

    method: Method
    k: int
    cases: Count
    """Cases in the first draw, the one that all other tables show."""
    mean: float
    least: Count
    most: Count
    usual: Annotated[Count, Field(alias="in over half")]
    """People who are a case in more than half of the draws."""
    by_draw: Annotated[list[Count], Field(alias="by draw")]


class DrawnCases(Shape):
    """The test at the smallest k with the categories of counterfactuals drawn anew by each of the seeds."""

    seeds: list[Seed]
    """A single seed if no category is drawn: every draw is then the same."""
    categories: list[str]
    """Nodes that are drawn, and that attributes or decisions depend on."""
    counts: Annotated[pd.DataFrame, RowsOf(DrawnCount)]
    cases: dict[Method, Booleans] = Field(exclude=True)
    """Method -> (D, C) True where a complainant is a case in a draw."""

    @classmethod
    def of(cls, draws: Sequence[Mapping[Method, Booleans]], *, k: int, seed: int, categories: Sequence[str]) -> DrawnCases:
        """Return what `estimator.redraws` found. seed: of the first draw."""
        cases = {method: np.array([draw[method] for draw in draws]) for method in ORDER if method in draws[0]}
        lines = []
        for method, is_case in cases.items():
            by_draw = is_case.sum(axis=1).tolist()
            lines.append({
                "method": method, "k": k, "cases": by_draw[0], "mean": float(np.mean(by_draw)), "least": min(by_draw),
                "most": max(by_draw), "in over half": int((is_case.mean(axis=0) > 0.5).sum()), "by draw": by_draw,
            })
        seeds = list(range(seed, seed + len(draws)))
        return cls(seeds=seeds, categories=list(categories), counts=pd.DataFrame(lines), cases=cases)

    def shares(self, method: Method) -> tuple[Array, Array, Array]:
        """Return the share of the draws (C,) in which each person is a case, and its 95 % interval: a point if draws do not
        matter."""
        share = self.cases[method].mean(axis=0)
        if method == "ST" or not self.categories:
            return share, share, share
        return share, *wilson(share, len(self.seeds), critical(0.95, 2))


class Intervention(Shape):
    """The result of one intervention: a finding, not a proof."""

    do: dict[str, str]
    finding: str
    method: str
    proved: Literal[False] = False
    complainants: Count
    left_out: dict[str, Count]
    methods: list[Method]
    k: list[int]
    found: Situations = Field(exclude=True)
    frame: pd.DataFrame = Field(exclude=True)
    """(N rows) the table."""
    tilde: pd.DataFrame = Field(exclude=True)
    """(C rows) complainants as they would be."""
    attributes: tuple[str, ...] = Field(exclude=True)
    """Columns by which people are compared."""
    movable: frozenset[str] = Field(exclude=True)
    """Columns in which counterfactuals may differ: nodes, and what the decider reads. Other columns are not compared."""
    negative: Booleans = Field(exclude=True)
    """(N,) rows decided negatively."""
    chance: pd.DataFrame | None = Field(default=None, exclude=True)
    """Mean counts with shuffled protected values, see `estimator.chance`; None where that was not asked for."""
    draws: DrawnCases | None = None
    """Null: not asked for, or no time."""

    @classmethod
    def of(
        cls, model: SituationTesting, do: Mapping[str, Any], progress: Progress | None = None, parts: Parts = NO_STORE
    ) -> Intervention:
        """Test one intervention with a fitted model. progress(done, total) counts searches.   parts: of these."""
        tilde, decisions = model.counterfactual(do)
        do = model.causal_model_.check(model.frame_, do)
        found = model.compared(model.frame_, tilde, do, decisions, progress=progress, parts=parts)
        return cls(
            do={name: text(value) for name, value in found.do.items()}, finding=found.kind, method=found.method,
            complainants=len(found.complainants), left_out=found.details["left out"],
            methods=[method for method in ORDER if method in found.methods], k=list(found.k), found=found, frame=model.frame_,
            tilde=tilde, attributes=model.attributes_,
            movable=frozenset((*model.causal_model_.order, *reads(model.decider))), negative=np.asarray(~model.decisions_),
        )

    @property
    def name(self) -> str:
        return in_words(self.found.do)

    @property
    def rows(self) -> pd.Index:
        """(C,) names of the complainants' rows in the table."""
        return self.frame.index[self.found.complainants]

    def person(self, index: int) -> pd.DataFrame:
        """Return one complainant as they are: a table of one row.   index: their place among the complainants."""
        return self.frame.iloc[self.found.complainants[[index]]]

    def before(self, name: str) -> pd.Series:
        """Return a column of the complainants (C,) as they are."""
        return self.frame[name].iloc[self.found.complainants]

    @property
    def ranking(self) -> Method:
        """The method that people are ranked by: CST, or CST w/o where nobody decides on counterfactuals."""
        return "CST" if "CST" in self.methods else "CST w/o"

    @property
    def smallest(self) -> int:
        """The group size that is shown in detail."""
        return min(self.k)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def expected_significant_by_chance(self) -> float:
        """Number of significant cases to expect if no group is treated differently, without correction: each interval lies above
        the true difference with probability (1 - level) / sides."""
        terms = self.found.terms
        return self.complainants * terms.tail

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def counts(self) -> Annotated[pd.DataFrame, RowsOf(CaseCount)]:
        """Table 1, with shares by chance if those were asked for."""
        table = self.found.counts()
        order = {method: n for n, method in enumerate(ORDER)}
        table = table.sort_values("method", key=lambda column: column.map(order), kind="stable").reset_index(drop=True)
        table.insert(2, "complainants", self.complainants)
        if self.chance is None:
            return table
        dealt = self.chance.rename(columns={"share": "share by chance", "significant share": "significant share by chance"})
        return table.merge(dealt.drop(columns=["cases", "significant"]), how="left", on=["method", "k"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def overlaps(self) -> Annotated[pd.DataFrame, RowsOf(Overlap)]:
        """Return how many people one method finds and another does not, for each k."""
        pairs: list[tuple[Method, Method]] = [("CST w/o", "ST"), ("ST", "CST w/o"), ("CST", "CF"), ("CF", "CST")]
        lines = []
        for method, other in pairs:
            if method not in self.methods or other not in self.methods:
                continue
            for k in self.k:
                difference = self.found.claims(method, k).positive & ~self.found.claims(other, k).positive
                lines.append({"found by": method, "not by": other, "k": k, "people": int(difference.sum())})
        return pd.DataFrame(lines, columns=["found by", "not by", "k", "people"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def rates(self) -> Annotated[pd.DataFrame, RowsOf(GroupRate)]:
        """Share of negative decisions of each group, also on the counterfactuals: NaN where nobody decides on them."""
        situations, pool = self.found, self.found.test_pool
        tilde = np.full(len(situations.groups), np.nan) if situations.refused_tilde is None else situations.refused_tilde
        lines: list[tuple[Any, ...]] = []
        for g, name in enumerate(situations.names):
            members = situations.groups == g
            lines.append((name, int(members.sum()), float(situations.refused[members].mean()), float(tilde[members].mean())))
        lines.append((self.name, len(pool), float(pool.negative.mean()), float(pool.negative.mean())))
        return pd.DataFrame(lines, columns=["group", "people", "negative", "counterfactual"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def changes(self) -> Annotated[pd.DataFrame, RowsOf(AttributeChange)]:
        """Attributes that `do` moves: number of people, and the means before and after, or the most frequent change of words."""
        lines: list[tuple[Any, ...]] = []
        for name in self.moved:
            before, after = self.before(name), self.tilde[name]
            numeric = holds_numbers(before) and holds_numbers(after)
            means = (float(before.mean()), float(after.mean())) if numeric else (np.nan, np.nan)
            people = int(differing(before, after).sum())
            lines.append((name, people, *means, "" if numeric else most_frequent_move(before, after)))
        return pd.DataFrame(lines, columns=["attribute", "people", "before", "after", "moves"])

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def claims(self) -> Annotated[pd.DataFrame, RowsOf(SituationClaim)]:
        """Claims at the smallest k of the people with a case by any method in any draw; claims.csv of --out has all claims."""
        k, draws = self.smallest, self.draws
        is_case = [self.found.claims(m, k).positive if draws is None else draws.shares(m)[0] > 0 for m in self.methods]
        people = self.rows.isin(self.rows[np.logical_or.reduce(is_case)])

        def parts() -> Iterator[pd.DataFrame]:
            return self.parts(sizes=[k], people=people)

        return Stream(chunks=parts, whole=lambda: pd.concat(parts(), ignore_index=True)).stored

    def lines(self, methods: Sequence[Method] | None = None, sizes: Sequence[int] | None = None) -> pd.DataFrame:
        """Return a line for each complainant, method and k."""
        return pd.concat(self.parts(methods, sizes), ignore_index=True)

    def parts(
        self, methods: Sequence[Method] | None = None, sizes: Sequence[int] | None = None, people: Booleans | slice = slice(None)
    ) -> Iterator[pd.DataFrame]:
        """Yield the lines of some people, one table for each method and k: for a million people a single table would be large."""
        found, rows = self.found, self.rows[people]
        names = np.array(found.names, dtype=object)[found.groups[people]]
        for method in self.methods if methods is None else methods:
            for k in self.k if sizes is None else sizes:
                claim = found.claims(method, k)
                draw_columns: dict[str, Any] = {}
                if self.draws is not None:
                    shares = self.draws.shares(method) if k == self.smallest else (np.nan,) * 3
                    draw_columns = dict(zip(("share of draws", "draws low", "draws high"), shares, strict=True))
                figures: dict[str, Any] = {
                    "control": claim.p_control, "test": claim.p_test, "delta": claim.delta, "low": claim.low, "high": claim.high,
                    "p value": claim.p_value, "case": claim.positive, "significant": claim.significant, **draw_columns,
                }
                selected = {name: values if np.ndim(values) == 0 else values[people] for name, values in figures.items()}
                yield pd.DataFrame({"row": rows, "group": names, "method": method, "k": k, "n": claim.n, **selected})

    def claims_of(self, i: int) -> pd.DataFrame:
        """Return the claims of one complainant. i: their place among the complainants."""
        lines = []
        for method in self.methods:
            for k in self.k:
                claim = self.found.claims(method, k)
                shares = {"control": claim.p_control[i], "test": claim.p_test[i], "delta": claim.delta[i]}
                rest = {"low": claim.low[i], "high": claim.high[i], "case": claim.positive[i], "significant": claim.significant[i]}
                lines.append({"method": method, "k": k, **shares, **rest})
        return pd.DataFrame(lines)

    def line_of(self, place: int) -> str | None:
        """Return the sentence about the draws in a case file; None without drawn categories.   place: position in the table."""
        if self.draws is None or not self.draws.categories:
            return None
        index = int(np.flatnonzero(self.found.complainants == place)[0])
        phrases = []
        for method in self.draws.cases:
            share, low, high = (percent(float(values[index])) for values in self.draws.shares(method))
            phrases.append(f"by {method} in {share}" + ("" if method == "ST" else f" ({low} .. {high})"))
        return f"Over {len(self.draws.seeds)} draws of the counterfactual's categories it is a case {', '.join(phrases)}."

    @cached_property
    def moved(self) -> list[str]:
        """Columns, other than those of `do`, in which some counterfactual differs from its complainant."""
        return [
            name for name in self.frame.columns
            if name in self.movable and name not in self.found.do and differing(self.before(name), self.tilde[name]).any()
        ]

    @cached_property
    def counterfactuals(self) -> pd.DataFrame:
        """The complainants before and after: row, decisions in words, and each attribute twice."""
        tilde = self.found.refused_tilde
        names = list(dict.fromkeys([*self.found.do, *self.attributes, *self.moved]))
        columns = beside({
            "row": self.rows, "decision": decision(self.found.refused),
            "decision counterfactual": None if tilde is None else decision(tilde),
        }, [*names, *(f"{name} counterfactual" for name in names)])
        for name in names:
            columns[name] = self.before(name).to_numpy()
            columns[f"{name} counterfactual"] = self.tilde[name].to_numpy()
        return pd.DataFrame(columns)

    def review(self, top: int) -> pd.DataFrame:
        """Return the `top` cases to look at first: significant ones, then by the difference at the smallest k, then at the largest.

        place: position in the table.
        """
        cases = self.found.claims(self.ranking, self.smallest).positive
        (table,) = self.parts([self.ranking], [self.smallest], people=cases)
        table["delta wide"] = self.found.claims(self.ranking, max(self.k)).delta[cases]
        table["place"] = self.found.complainants[cases]
        table["decision"] = decision(self.found.refused[cases])
        tilde = self.found.refused_tilde
        table["decision counterfactual"] = "-" if tilde is None else decision(tilde[cases])
        order, worse = ["significant", "delta", "delta wide"], self.found.terms.direction == "negative"
        ranked = table.sort_values(order, ascending=[False, not worse, not worse], kind="stable")
        return ranked.head(top).reset_index(drop=True)


def several(tests: Sequence[Intervention]) -> pd.DataFrame:
    """Return how many people protected by several attributes are a case for each attribute alone (multiple discrimination), and for
    all jointly (intersectional).

    A line for each method and k: method, k, people, multiple, intersectional (NaN if not tested).
    """
    single, joint = [test for test in tests if len(test.found.do) == 1], [test for test in tests if len(test.found.do) > 1]
    if len(single) < 2:
        return pd.DataFrame()
    people = single[0].found.complainants
    for test in single[1:]:
        people = np.intersect1d(people, test.found.complainants)
    lines = []
    for method in single[0].methods:
        for k in single[0].found.k:
            is_case = [np.isin(people, test.found.complainants[test.found.claims(method, k).positive]) for test in single]
            joint_count = joint[0].found.claims(method, k).positive.sum() if joint else np.nan
            lines.append({
                "method": method, "k": k, "people": len(people), "multiple": int(np.logical_and.reduce(is_case).sum()),
                "intersectional": float(joint_count),
            })
    return pd.DataFrame(lines)


def decision(refused: Booleans) -> npt.NDArray[np.str_]:
    return np.where(refused, "negative", "positive")


def differing(before: pd.Series, after: pd.Series) -> Booleans:
    """Return (N,) True where the value after differs from the one before; two missing values are the same."""
    missing = before.isna().to_numpy()
    differs = missing != after.isna().to_numpy()
    differs[~missing & ~differs] = before.to_numpy()[~missing & ~differs] != after.to_numpy()[~missing & ~differs]
    return np.asarray(differs)


def most_frequent_move(before: pd.Series, after: pd.Series) -> str:
    """Return the most frequent change of a column of words, such as "Wife -> Husband (311)"."""
    changed = differing(before, after)
    pairs = before[changed].map(text).to_numpy() + " -> " + after[changed].map(text).to_numpy()
    if not len(pairs):
        return ""
    counts = pd.Series(pairs).value_counts()
    return f"{counts.index[0]} ({counts.iloc[0]:,})"
