"""The case file of one complainant: the person, the counterfactual and its equations, the neighbours, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Integers
from verifair.errors import QueryError
from verifair.schema.feature import text
from verifair.schema.naming import beside
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.findings import Intervention, decision
from verifair.systems.cst.groups import in_words
from verifair.systems.results.files import file_name

GROUP_NAMES = {"control": "control", "ST": "ST test", "CST": "CST test"}
TITLES = {
    "control": "Control group: the nearest of the complainant's own group",
    "ST test": "ST test group: the nearest of the other group to the complainant as they are",
    "CST test": "CST test group: the nearest of the other group to the counterfactual",
}
MAX_LISTED = 100
"""Neighbours of one group in the text."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One complainant.   place: position in the table.   index: position among the complainants.   people: everybody in the groups:
    group, row, distance, weight, negative.   records: the same people's rows of the table, apart because column names may coincide.
    claims: a line for each method and k.   explanations: a line for each attribute that moves.   notes: more lines, such as how
    robust the claim is.
    """

    tested: Intervention
    place: int
    index: int
    people: pd.DataFrame
    records: pd.DataFrame
    claims: pd.DataFrame
    explanations: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, tested: Intervention, model: CausalModel, place: int, *, seed: int, notes: Sequence[str] = ()) -> Case:
        """Return the case of the row at this position. Raises QueryError where it is no complainant."""
        found = tested.found
        neighbours = found.case(place, tested.smallest)
        index = int(np.flatnonzero(found.complainants == place)[0])
        claims = tested.claims_of(index)
        people, records = _people(tested, neighbours)
        return cls(
            tested=tested, place=place, index=index, people=people, records=records, claims=claims,
            explanations=tuple(explain_changes(tested, model, index, seed)), notes=tuple(notes),
        )

    @property
    def row(self) -> Any:
        """The complainant's name in the table."""
        return self.tested.rows[self.index]

    @property
    def file(self) -> str:
        """Name of its files, without suffix; with the position in the table where another row's files might have the same name."""
        name, stem = text(self.row), file_name(text(self.row))
        is_unique = stem == name and (self.tested.frame.index == self.row).sum() == 1
        return stem if is_unique else f"{stem}-at-{self.place}"

    @property
    def group(self) -> str:
        return str(self.tested.found.names[self.tested.found.groups[self.index]])

    @property
    def own(self) -> pd.DataFrame:
        """Two lines: the complainant, then the counterfactual."""
        return pd.concat([self.tested.person(self.index), self.tested.tilde.iloc[[self.index]]])

    @property
    def title(self) -> str:
        return f"row {self.row}: {self.group}; what if {self.tested.name}?  (groups of k = {self.tested.smallest})"

    def attributes(self) -> list[str]:
        """Return the attributes: first those that the intervention moves for this person, then those it moves for others."""
        own, moved = self.own, self.tested.moved
        differs = {name: own[name].iloc[0] != own[name].iloc[1] for name in self.tested.attributes}
        return sorted(self.tested.attributes, key=lambda name: (not differs[name], name not in moved))

    def markdown(self, picture: str | None) -> str:
        """Return the text of the case file.   picture: file name of its figure, None where there is none."""
        figure = [] if picture is None else [f"![delta p and the groups]({picture})", ""]
        return "\n".join([*self._head(), *figure, *self._groups(), *self._foot()]) + "\n"

    def _head(self) -> Iterator[str]:
        found = self.tested.found
        yield f"# Complaint of row {self.row}: {self.group}; what if {self.tested.name}?"
        yield ""
        yield f"Decision: **{decision(found.refused[[self.index]])[0]}**. " + (
            "Nobody decided on the counterfactual." if found.refused_tilde is None
            else f"Decision on the counterfactual: **{decision(found.refused_tilde[[self.index]])[0]}**."
        )
        yield ""
        yield from self._attributes()
        yield "Why it moves, by the causal model (U is the person's own, and stays):"
        yield ""
        yield from (f"- {line}" for line in self.explanations or ("nothing: the model knows no effect on this person",))
        yield ""
        yield from self._claims()

    def _attributes(self) -> Iterator[str]:
        factual, counterfactual = (line for _, line in self.own.iterrows())
        lines = []
        for name in [*self.tested.found.do, *self.attributes()]:
            same = factual[name] == counterfactual[name]
            lines.append((name, shown(factual[name]), "the same" if same else f"**{shown(counterfactual[name])}**"))
        yield from grid(("attribute", "complainant", "counterfactual"), lines)
        yield ""

    def _claims(self) -> Iterator[str]:
        found = self.tested.found
        terms = found.terms
        yield f"Shares of negative decisions, delta p = control - test, {terms.words}:"
        yield ""
        lines = [
            (
                line["method"], line["k"], f"{line['control']:.3f}", f"{line['test']:.3f}", f"{line['delta']:+.3f}",
                f"{line['low']:+.3f} .. {line['high']:+.3f}", significance_words(line),
            )
            for line in self.claims.to_dict(orient="records") if line["method"] != "CF"
        ]
        yield from grid(("method", "k", "control", "test", "delta p", "interval", terms.beyond), lines)
        yield ""
        if "CF" in found.methods:
            refused = bool(self.claims.loc[self.claims["method"] == "CF", "case"].iloc[0])
            yield f"CF, complainant and counterfactual alone: {'a case' if refused else 'no case'}."
            yield ""
        for note in self.notes:
            yield note
            yield ""

    def _groups(self) -> Iterator[str]:
        names = [*self.tested.found.do, *self.attributes()]
        for group, title in TITLES.items():
            members = self.people[self.people["group"] == group]
            listed = members.head(MAX_LISTED)
            records = self.records.loc[listed.index].to_dict(orient="records")
            yield f"## {title} (k = {self.tested.smallest})"
            yield ""
            shared = (members["weight"] < 1).any()
            leading = ("row", "distance", *(("counts",) if shared else ()), "decision")
            columns = (*beside(dict.fromkeys(leading), names), *names)
            lines = [
                (
                    line["row"], f"{line['distance']:.4g}", *((f"{line['weight']:.3g}",) if shared else ()),
                    "negative" if line["negative"] else "positive", *(shown(record[name]) for name in names),
                )
                for line, record in zip(listed.to_dict(orient="records"), records, strict=True)
            ]
            yield from grid(columns, lines)
            if len(members) > MAX_LISTED:
                yield f"and {len(members) - MAX_LISTED:,} more, at a distance of {members['distance'].max():.4g} at most."
            yield ""
            if shared:
                yield "Rows that are equally near share the last places: each counts the part that is given."
                yield ""

    def _foot(self) -> Iterator[str]:
        yield (
            "This is statistical evidence under the stated causal model, on the rows of one table. It is no proof of "
            "discrimination, and its absence is none of the contrary."
        )


def place_of(frame: pd.DataFrame, do: Mapping[str, Any], complainants: Integers, name: str) -> int:
    """Return a complainant's position in the table, by the name of the row.

    Raises QueryError if no row or several complainants have this name, and if the row is no complainant.
    """
    labels = frame.index.map(text)
    matches = np.flatnonzero(labels == name.strip())
    if not len(matches):
        raise QueryError(f"--case {name}: the table has no such row; its rows are {labels[0]} .. {labels[-1]}")
    candidates = np.intersect1d(matches, complainants)
    if len(candidates) > 1:
        raise QueryError(f"--case {name}: the table calls {len(candidates)} complainants so; give each row a name of its own")
    place = int(candidates[0] if len(candidates) else matches[0])
    if not len(candidates):
        has = ", ".join(f"{attribute} = {text(frame[attribute].iloc[place])}" for attribute in do)
        ids = ", ".join(labels[complainants[:3]])
        raise QueryError(f"--case {name}: is no complainant under do({in_words(do)}), for it has {has}; rows that are: {ids}, ...")
    return place


def explain_changes(tested: Intervention, model: CausalModel, index: int, seed: int) -> Iterator[str]:
    """Yield a line for each attribute that moves: its equation, its noise U, and the parents that moved."""
    before, after = tested.person(index), tested.tilde.iloc[[index]]
    for name in model.descendants(list(tested.found.do)):
        old, new = before[name].iloc[0], after[name].iloc[0]
        if old == new:
            continue
        node, mechanism = model.by_name[name], model.fitted[name]
        parents = before[list(node.parents)]
        noise = np.asarray(mechanism.noise(parents, before[name], Draws.of(before.index, node=name, seed=seed)))
        changes = [
            f"{parent} {shown(before[parent].iloc[0])} -> {shown(after[parent].iloc[0])}"
            for parent in node.parents if before[parent].iloc[0] != after[parent].iloc[0]
        ]
        noise_text = f"U = {noise[0]:.6g}" if noise.ndim == 1 else "the same draw"
        yield f"{name} {shown(old)} -> {shown(new)}: {mechanism.equation(name)}, with {noise_text} and {', '.join(changes)}"


def significance_words(line: dict[str, Any]) -> str:
    if line["significant"]:
        return "yes, significantly"
    return "yes, not significantly" if line["case"] else "no"


def shown(value: Any) -> str:
    """Return a value as text: numbers to ten digits."""
    return f"{value:.10g}" if isinstance(value, (float, np.floating)) else text(value)


def grid(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, aligned so that it also reads well as plain text."""
    cells = [[str(cell).replace("|", "\\|") for cell in line] for line in [columns, *lines]]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    for number, line in enumerate(cells):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        if not number:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"


def _people(tested: Intervention, neighbours: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return everybody in the groups (group, row, distance, weight, negative), and their rows of the table in the same order."""
    tables, records = [], []
    for key, group in GROUP_NAMES.items():
        rows, distance, weight = neighbours[key]
        members = tested.frame.iloc[rows]
        columns = {"row": members.index, "distance": distance, "weight": weight, "negative": tested.negative[rows]}
        tables.append(pd.DataFrame({"group": group, **columns}))
        records.append(members)
    return pd.concat(tables, ignore_index=True), pd.concat(records, ignore_index=True)
