"""FGCE for a page: what would refused people have to change, and is it harder for one group than for another?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from solvers import clock
from verifair.checker.certificates.envelope import semantics
from verifair.checker.words import counted
from verifair.errors import DataError, QueryError
from verifair.systems.fgce.findings import INTERVALS, LEAST, WITHOUT
from verifair.systems.fgce.plots import UNITS, plot
from verifair.systems.fgce.result import FgceResult
from verifair.systems.fgce.settings import SYSTEM, Cost, FgceSettings
from verifair.systems.fgce.solve import solve
from verifair.systems.fgce.tables import advice_table
from verifair.systems.groups import SMALL
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone, not_run
from verifair.systems.results.pictures import picture
from verifair.systems.results.words import firmly, listed, moves, of, percent, rounded, units
from verifair.systems.subject import Subject
from verifair.systems.work import Work, called, standing

ANSWER: dict[str, Any] = {"groups": True, "left_out": True, "comparison": True, "re_evaluated": True, "robust": True}
"""Fields of a result in the page's JSON, besides parts of the graph."""
COST_UNITS: dict[Cost, str] = {
    "l2": "a distance, where 1 is a change of one number over its whole range", "path": "length of the path",
    "hops": "number of moves",
}
"""A cost's unit, in a few words."""
DISTANCE_NOTE = (
    "Another category is a distance of 1 where there are two and of 1.41 where there are more; the distance of several changes is "
    "the root of the sum of their squares. "
)


def section(settings: FgceSettings, subject: Subject, work: Work) -> Section:
    """Return the page's section on FGCE, for each protected feature alone. Raises DataError or QueryError if none can be
    analysed."""
    names = list(dict.fromkeys(settings.protected))
    statements: list[Statement] = []
    pictures: list[Picture] = []
    tables: list[DataTable] = []
    evidence: list[Evidence] = []
    answers: list[dict[str, Any]] = []
    problems: list[DataError | QueryError] = []
    rows, headlines = "", 0
    for n, name in enumerate(names):
        update = {"protected": (name,), "split": {key: cuts for key, cuts in settings.split.items() if key == name}}
        deadline = clock.now() + work.left / (len(names) - n)
        try:
            result = solve(settings.model_copy(update=update), subject, replace(work, deadline=deadline)).whole()
        except (DataError, QueryError) as error:
            problems.append(error)
            continue
        rows = result.drawn
        optimum, rechecked = _optimum(name, result, replace(work, deadline=deadline))
        evidence += [optimum] if optimum is not None else []
        comparison_statements = [*_compared(name, result)]
        statements += [*_groups(result, rechecked), *comparison_statements]
        if result.robust is not None:
            proof = _proof(name, result, work)
            evidence += [proof] if proof is not None else []
            statements += _robust(name, result, result.robust, proof)
        image = picture(
            f"fgce-{n}", f"How refused people differ from the examples assigned to them, and at what cost, by {name}",
            "Above: how often the assigned example differs in each feature, by group. Below: the cost of becoming that example; a "
            "group has few examples, so the cost can exceed each person's smallest change. Groups: "
            f"{listed([group.name for group in result.groups])}.",
            partial(plot, result),
        )
        headline = any(statement.headline for statement in comparison_statements)
        headlines += headline  # the first picture is of the first headline's feature
        pictures.insert(0 if headline and headlines == 1 else len(pictures), image)
        tables += [_advice(name, result), _comparison(name, result)]
        graph = result.graph.model_dump(include={"nodes", "edges", "eps"})
        answers.append({"protected": name, **result.model_dump(include=ANSWER), "graph": graph})
    if problems and not answers:
        raise problems[0] if len(problems) == 1 else QueryError("\n".join(map(str, problems)))
    statements += map(not_run, problems)
    return Section(
        **SYSTEM.heading,
        method=(
            f"A graph over {rows}: steps between people that only change what may change, in the allowed direction. For each "
            f"group at most {settings.k} people with {subject.favourable} are chosen as examples, so that the longest way to one "
            f"is shortest. The choice is optimal where that is proved; costs ({UNITS[settings.cost]}) and comparisons "
            f"are measured on these rows. {DISTANCE_NOTE if settings.cost == 'l2' else ''}{INTERVALS}."
        ),
        semantics=semantics(subject.network), statements=tuple(statements), pictures=tuple(pictures), tables=tuple(tables),
        evidence=tuple(evidence),
        settings={
            "protected": names, "k": settings.k, "coverage": settings.coverage, "max_cost": settings.max_cost,
            "cost": settings.cost, "factuals": settings.factuals, "robust": list(settings.robust), "rows": rows, "seed": work.seed,
        },
        answer={"by_feature": answers},
    )


def _groups(result: FgceResult, rechecked: Collection[str]) -> Iterator[Statement]:
    """Yield a statement for each group: its coverage, and at what cost.   rechecked: groups whose optimum the separate checker
    accepted in this run."""
    favourable, fitted = result.fitted.schema.outcomes[1], result.fitted
    for g in result.groups:
        start = f'{g.name}: of the refused people asked about, {of(g.factuals, g.negatives)} can get "{favourable}" by allowed '
        start += "changes"
        if g.hopeless:
            start += f"; for {g.hopeless:,} the rows used show no such way"
        yield Statement(text=start + ".", standing=Standing.MEASURED, tone=Tone.WATCH if g.hopeless else Tone.PLAIN)
        if not g.advice:
            continue
        best = g.certainty
        cost = rounded(g.cost, up=True, digits=4)
        used = counted(g.used, "example serves", "examples serve")
        text = f"{g.name}: {used} {of(g.covered, g.factuals)} of them, at a cost of at most {cost}"
        if g.short is not None:
            max_examples = counted(fitted.k, "example", "examples")
            text += f". The question was how to serve {g.short.asked:,} with at most {max_examples}, which is impossible"
            text += "" if g.short.needed is None else f"; {g.short.needed:,} would serve everybody"
        if best.optimal and g.short is not None:
            text += f". No other choice of at most {fitted.k} serves more people, or as many at a lower cost"
        elif best.optimal:
            text += f"; no other choice of at most {fitted.k} does better on these rows"
        if best.optimal:
            text += "." if g.name in rechecked else ", by the search's own bound, not re-checked."
            certainty = Standing.PROVED if g.name in rechecked else Standing.CLAIMED
        else:
            text += f"; that nothing better exists is not shown ({best.text})."
            certainty = Standing.UNKNOWN
        yield Statement(text=text, standing=certainty, tone=Tone.PLAIN)
    for name, people in fitted.stranded_.items():
        text = f'{name}: none of the {people:,} refused people asked about can get "{favourable}" by allowed changes between the '
        text += "rows used, so there is nothing to compare."
        yield Statement(text=text, standing=Standing.MEASURED, tone=Tone.WATCH, headline=True)
    for name, reason in fitted.skipped_.items():
        if name not in fitted.stranded_:
            yield Statement(text=f"{name}: left out, {reason}.", standing=Standing.SKIPPED, tone=Tone.PLAIN)


def _compared(name: str, result: FgceResult) -> Iterator[Statement]:
    """Yield statements that compare the groups; mean costs, and people without any counterfactual, go to the first screen."""
    stranded = [group.removeprefix(f"{name} = ") for group in result.fitted.stranded_]
    excluded = f" (without {listed(stranded)})" if stranded else ""
    for line in result.comparison:
        is_headline = line.measure in (LEAST, WITHOUT)
        share = line.measure.startswith("share")
        values = {group.removeprefix(f"{name} = "): value for group, value in line.values.items()}
        people = {group.removeprefix(f"{name} = "): count for group, count in line.people.items()}
        phrases = {
            group: f"{percent(value)} of {counted(people[group], 'person', 'people')} with {name} {group}" if share
            else f"{value:.3g} with {name} {group} ({counted(people[group], 'person', 'people')})"
            for group, value in values.items()
        }
        text = f"{_measure(line.measure, result)}, by {name}{excluded}: {', '.join(phrases.values())}."
        brief = ""
        if line.clear and line.chance is not None:  # groups are not ranked by a number without an interval
            worst = str(line.worst).removeprefix(f"{name} = ")
            interval = f"{line.chance.low:.3g} to {line.chance.high:.3g}, 95 %"
            text += f" It is higher with {name} {worst}, by {line.apart:.3g} ({interval})."
            best = min(line.ranked, key=lambda group: line.values[group]).removeprefix(f"{name} = ")
            pair = " and ".join(phrases[group] for group in (worst, best))
            label = f'smallest change that gives refused people "{result.fitted.schema.outcomes[1]}", on average '
            label += f"({COST_UNITS[result.fitted.cost]})"
            label = "refused people for whom no chain of allowed changes was found" if share else label
            brief = f"{name}: {label}: {pair}; the difference is {line.chance.low:.2g} to {line.chance.high:.2g} (95 % interval)."
        elif len(line.ranked) < 2:
            text += f" Not compared: fewer than two groups have {SMALL} people."
        elif line.chance is not None or not line.known:
            text += " No clear difference." if line.known else " The order could change: not everything was decided in time."
        tone = Tone.WATCH if line.clear and line.worst is not None and is_headline else Tone.PLAIN
        yield Statement(text=text, standing=Standing.MEASURED, tone=tone, headline=is_headline and line.clear, brief=brief)


def _measure(name: str, result: FgceResult) -> str:
    """Return a measure in words, with its unit."""
    unit = f"(cost: {COST_UNITS[result.fitted.cost]})"
    return {
        WITHOUT: "Refused people for whom no chain of allowed changes through the rows used leads to the favourable decision",
        LEAST: f"Smallest change that gives refused people the favourable decision, on average {unit}",
        "largest cost d": f"Largest cost within a group {unit}",
    }.get(name, f"{name[0].upper()}{name[1:]}")


def _optimum(name: str, result: FgceResult, work: Work) -> tuple[Evidence | None, Collection[str]]:
    """Return the certificate of optimality, None if there is none in time, and the groups whose optimum it proves."""
    fitted = result.fitted
    if not any(group.certainty.optimal for group in result.groups):
        return None, ()
    optima = fitted.prove_optima(seconds=work.budget().seconds)
    if isinstance(optima, str):
        return None, ()
    proof = work.keep(
        f"optimum-{called(name)}.json.gz", optima,
        f"No other choice of at most {fitted.k} examples is better, for {listed([*optima.groups])}.", fitted.model, fitted.schema,
    )
    return proof, optima.groups if standing(proof) is Standing.PROVED else ()


def _proof(name: str, result: FgceResult, work: Work) -> Evidence | None:
    fitted = result.fitted
    return None if result.certificate is None else work.keep(
        f"fgce-{called(name)}.json.gz", result.certificate, f"Examples for {name} that keep {fitted.schema.outcomes[1]} nearby.",
        fitted.model, fitted.schema,
    )


def _robust(name: str, result: FgceResult, table: pd.DataFrame, proof: Evidence | None) -> Iterator[Statement]:
    schema = result.fitted.schema
    for delta, part in table.drop_duplicates(["row", "delta"]).groupby("delta"):
        count = part["status"].value_counts()
        proved, refuted, unknown = (int(count.get(status, 0)) for status in ("proved", "violated", "unknown"))
        rank = standing(proof) if proof is not None and proved else Standing.REFUTED if refuted else Standing.UNKNOWN
        text = (
            f"{firmly(rank) if proved else 'Asked'} within {units(float(delta))}: {of(proved, len(part))} examples for {name} keep "
            f"{schema.outcomes[1]}, also for everybody near them ({moves(schema, [])})."
        )
        text += f" {refuted:,} do not (an exact counterexample each)." if refuted else ""
        text += f" {unknown:,} were not decided." if unknown else ""
        yield Statement(text=text, standing=rank, tone=Tone.WATCH if refuted or unknown else Tone.GOOD)


def _advice(name: str, result: FgceResult) -> DataTable:
    return DataTable(
        title=f"Examples by {name}", rows=advice_table(result.groups).reset_index(drop=True),
        note="Each is a real row of the table with the favourable decision; serves: refused people to whom it is assigned.",
    )


def _comparison(name: str, result: FgceResult) -> DataTable:
    rows = pd.DataFrame([
        {"measure": line.measure, **line.values, "higher for": line.worst if line.clear and line.chance else "not clear",
         "by": line.apart, "low": line.chance.low if line.chance else None,
         "high": line.chance.high if line.chance else None}
        for line in result.comparison
    ])
    return DataTable(title=f"Groups by {name} compared", rows=rows, note=f"low, high: of the difference. {INTERVALS}.")
