"""The answer of `verifair cst`: on the screen, in a folder, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from encoders.network import Booleans
from verifair.cli.cst_certify import Proofs
from verifair.cli.cst_inputs import Given
from verifair.errors import DataError, QueryError
from verifair.schema.feature import text
from verifair.systems.cst import plots as situation_plots
from verifair.systems.cst import tables as words
from verifair.systems.cst.case import Case, place_of
from verifair.systems.cst.deciders import NetworkDecider, Recorded, Rule, counterfactually
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.findings import Intervention, records, several
from verifair.systems.cst.graph_plot import causal_graph
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.sensitivity_report import Robustness
from verifair.systems.files import file_name, save_table, save_text

DRAWN = 12
"""Attributes with a figure of their own."""
GROUPS = 8
"""Complainants in one picture of groups."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """given, model: what was asked, and the fitted test.   tests: what was found, an intervention each; at least one.

    missing: interventions that were not tested, as there was no time.   cases: whose case files are written, by test.
    proved: what is certified of the counterfactuals, robust: how wrong the causal model has to be before claims flip, by test;
    empty where that was not asked for, or Ctrl-C came.   notes: what else there is to say.
    """

    given: Given
    model: SituationTesting
    tests: tuple[Intervention, ...]
    missing: tuple[str, ...]
    cases: tuple[tuple[Case, ...], ...]
    proved: tuple[Proofs, ...]
    robust: tuple[Robustness, ...]
    notes: tuple[str, ...]
    top: int
    seconds: float
    seed: int

    def show(self, console: Console) -> None:
        """Who decides, the causal model, each intervention, several attributes beside each other; what the figures depend on."""
        for line in self._about():
            console.print(line, soft_wrap=True)
        for one in self.tests:
            self._show(one, console)
        grid = words.several_grid(self.tests)
        if grid is not None:
            console.print(grid)
        for robust in self.robust:
            console.print(robust.grid())
            for line in robust.lines():
                console.print(line, soft_wrap=True)
        for line in (line for one in self.proved for line in one.lines):
            console.print(line, soft_wrap=True)
        for name in self.missing:
            console.print(f"do({name}) was not tested: there was no time.", soft_wrap=True)
        for note in self.notes:
            console.print(note, soft_wrap=True)
        console.print(f"{words.honest_line()} {self.seconds:.1f} s.", soft_wrap=True)

    def _about(self) -> Iterator[str]:
        yield f"Table: {len(self.given.frame):,} rows of {self.given.words}. {_decides(self.given)}"
        yield from differing(self.given, self.tests[0].negative)
        yield f"Method: {self.tests[0].found.method}, over {', '.join(self.model.attributes_)}."
        yield f"Causal model ({self.given.path.name}):"
        yield from (f"  {line}" for line in words.equation_lines(self.model.causal_model_))

    def _show(self, one: Intervention, console: Console) -> None:
        console.print("\n" + words.heading(one), soft_wrap=True)
        for grid in words.counts_grids(one):
            console.print(grid)
        if one is self.tests[0]:
            console.print(words.legend(one.methods), soft_wrap=True)
        console.print(words.rates_grid(one))
        for table in (words.changes_grid(one), words.review_grid(one, self.top)):
            if table is not None:
                console.print(table)
        lines = [
            words.left_out_line(one),
            words.nothing_line(one),
            *words.overlap_lines(one),
            words.unknown_line(one),
            words.chance_line(one),
            words.dealt_line(one),
        ]
        for line in lines:
            if line is not None:
                console.print(line, soft_wrap=True)

    def write(self, out: Path) -> None:
        """Everything into a folder; where several interventions are tested, figures and cases of each into one of its own."""
        out.mkdir(parents=True, exist_ok=True)
        screen = StringIO()
        self.show(Console(file=screen, width=160, markup=False))
        save_text(out / "cst.txt", screen.getvalue())
        save_text(out / "equations.txt", "\n".join(self.model.causal_model_.equations()) + "\n")
        for name in ("certified.csv", "sensitivity.csv", "several.csv", "sensitivity.png"):  # an earlier run's
            (out / name).unlink(missing_ok=True)
        save_table(out / "claims.csv", (part for one in self.tests for part in one.parts()))
        for name, table in self._tables().items():
            save_table(out / f"{name}.csv", [table])
        graph = self.model.causal_model_.graph
        causal_graph(graph, list(self.model.do), "decision", decided_by(self.given), out / "graph.png")
        for one, cases in zip(self.tests, self.cases, strict=True):
            folder = out / file_name(one.name) if len(self.tests) > 1 else out
            folder.mkdir(exist_ok=True)
            for name, draw in _figures(one, cases).items():
                draw(folder / name)
            for robust in (robust for robust in self.robust if robust.name == one.name):
                robust.draw(folder / "sensitivity.png")
            if cases:
                (folder / "cases").mkdir(exist_ok=True)
            for case in cases:
                case.write(folder / "cases" / file_name(text(case.row)))

    def _tables(self) -> dict[str, pd.DataFrame]:
        def all_of(table: Callable[[Intervention], pd.DataFrame]) -> pd.DataFrame:
            return pd.concat([table(one) for one in self.tests], ignore_index=True)

        of = {
            "summary": Intervention.counts, "counterfactuals": Intervention.counterfactuals, "overlaps": Intervention.overlaps,
            "rates": Intervention.rates, "changes": Intervention.changes,
        }  # fmt: skip
        tables = {name: all_of(table) for name, table in of.items()}
        if self.proved:
            tables["certified"] = pd.concat([one.table() for one in self.proved], ignore_index=True)
        if self.robust:
            tables["sensitivity"] = pd.concat([one.table() for one in self.robust], ignore_index=True)
        return tables | ({"several": several(self.tests)} if len(several(self.tests)) else {})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        test, network = self.model, self.given.network
        terms = self.tests[0].found.terms
        return {
            "query": {
                "kind": "cst", "do": {name: text(value) for name, value in test.do.items()}, "attributes": list(test.attributes_),
                "k": list(self.tests[0].found.k), "tau": terms.tau, "level": terms.level, "sides": terms.sides,
                "interval": terms.interval, "correction": terms.correction, "distance": test.distance, "ties": test.ties,
                "intersectional": test.intersectional, "preset": test.preset, "decides": self.given.decider.words,
                "data": self.given.words, "rows": len(self.given.frame),
            },
            "equations": list(test.causal_model_.equations()),
            "tests": [one.to_dict() for one in self.tests],
            "not_tested": list(self.missing),
            "notes": list(self.notes),
            "several": records(several(self.tests)),
            "sensitivity": [one.to_dict() for one in self.robust],
            "certified": [one.to_dict() for one in self.proved],
            "trust": {
                "proved": [line for one in self.proved for line in one.trust()],
                "measured": ["shares of negative decisions, their differences and intervals, under the stated causal model"],
            },
            "model_sha256": None if network is None else network.network.source_sha256,
            "schema_sha256": None if network is None else network.schema.sha256,
            "causal_sha256": self.given.causal_sha256,
            "seconds": self.seconds,
            "seed": self.seed,
        }  # fmt: skip


def named_cases(model: SituationTesting, named: Sequence[str]) -> list[list[int]]:
    """Positions in the table of the rows that were named, for each intervention whose complainants they are; before the run.

    Raises QueryError for a row that is a complainant of none.
    """
    asked = model.interventions()
    complainants = [model.complainants(do) for do in asked]
    out: list[list[int]] = [[] for _ in asked]
    for name in dict.fromkeys(named):
        refused = []
        for n, do in enumerate(asked):
            try:
                out[n].append(place_of(model.frame_, do, complainants[n], name))
            except QueryError as error:  # it may be a complainant of another intervention
                refused.append(error)
        if len(refused) == len(asked):
            raise refused[0]
    return out


def check_linear(model: SituationTesting, given: Given, *, sensitivity: bool, certify: bool) -> None:
    """Before the run: raises QueryError where --sensitivity or --certify cannot vary the equations, such as those of categories."""
    read = decided_by(given)
    needed = {*(read if sensitivity or certify else ()), *(model.attributes_ if sensitivity else ())}
    for do in model.interventions() if needed else ():
        try:
            Effects.of(model.causal_model_, model.causal_model_.check(model.frame_, do), needed=needed)
        except QueryError as error:
            raise QueryError(f"{'--sensitivity' if sensitivity else '--certify'}: {error}") from None


def case_files(
    model: SituationTesting, tests: Sequence[Intervention], named: Sequence[Sequence[int]], count: int,
    more: Sequence[Proofs | Robustness],
) -> list[list[Case]]:  # fmt: skip
    """Case files for each test: of the rows that were named, or of the first `count` to review where none was.

    more: what else is known of complainants, and told in their files.
    """

    def notes(name: str, place: int) -> list[str]:
        return [line for one in more if one.name == name and (line := one.line_of(place)) is not None]

    chosen = named if any(named) else [one.review(count)["place"].tolist() for one in tests]
    return [
        [Case.of(one, model.causal_model_, place, seed=model.seed, notes=notes(one.name, place)) for place in places]
        for one, places in zip(tests, chosen, strict=False)  # Ctrl-C may have left some interventions out
    ]


def decided_by(given: Given) -> list[str]:
    """Columns that are decided by, as far as that is known."""
    who = counterfactually(given.decider)
    if isinstance(who, Rule):
        return list(who.weights)
    if isinstance(who, NetworkDecider):
        return [feature.source for feature in who.schema.features]
    return []


def differing(given: Given, negative: Booleans) -> list[str]:
    """A line where who decides on the counterfactuals decides otherwise on the rows than recorded. negative: (N,) as recorded."""
    who = counterfactually(given.decider)
    if who is None or who is given.decider:
        return []
    try:
        others = int((who.decide(given.frame) == negative).sum())
    except DataError:  # rows that a network's schema does not know; it decides on counterfactuals only
        return []
    if not others:
        return []
    return [
        f"Of the rows it decides {others:,} ({100 * others / len(negative):.1f} %) otherwise than is recorded: between a person "
        "and the counterfactual that may be all that differs (CF, CST)."
    ]


def _decides(given: Given) -> str:
    """Who decides on the rows, and on counterfactuals."""
    who = given.decider
    if not isinstance(who, Recorded):
        return f"Decides: {who.words}, on the counterfactuals as well."
    tilde = "nobody decided" if who.counterfactual is None else f"decides {who.counterfactual.words}"
    return f"Decides: {who.words}; on the counterfactuals {tilde}."


def _figures(one: Intervention, cases: Sequence[Case]) -> dict[str, Callable[[Path], None]]:
    """File name -> what draws it."""
    claims = one.claims(sizes=[one.k])
    terms = one.found.terms
    out: dict[str, Callable[[Path], None]] = {
        "counts.png": lambda path: situation_plots.counts(one.counts(), path),
        "intervals.png": lambda path: situation_plots.intervals(claims, terms.tau, terms.level, path),
    }
    who = f"{len(one.found.complainants):,} complainants, do({one.name})"
    for name in [name for name in one.attributes if name in one.moved][:DRAWN]:
        before, after = one.factual[name], one.counterfactual[name]
        out[f"figure2-left-{file_name(name)}.png"] = _draw(situation_plots.distribution, name, before, after, who)
        if cases:
            out[f"figure2-right-{file_name(name)}.png"] = _draw(situation_plots.groups, name, *_around(cases[:GROUPS], name))
    return out


def _draw(figure: Callable[..., None], *content: Any) -> Callable[[Path], None]:
    return lambda path: figure(*content, path)


def _around(cases: Sequence[Case], name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """An attribute of everybody in the groups of these cases, and of the complainants themselves and their counterfactuals."""
    people = pd.concat(
        [pd.DataFrame({"case": text(case.row), "group": case.people["group"], "value": case.people[name]}) for case in cases],
        ignore_index=True,
    )
    own = pd.DataFrame({
        "case": [text(case.row) for case in cases], "factual": [case.own[name].iloc[0] for case in cases],
        "counterfactual": [case.own[name].iloc[1] for case in cases],
    })  # fmt: skip
    return people, own
