"""CST: would people of a protected group have been decided on alike, had they not been of it? Under a stated causal model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verifair.audit.result import Source
from verifair.audit.sections.about import ABOUT
from verifair.audit.settings import Cst
from verifair.audit.subject import Subject
from verifair.checker.check import check
from verifair.checker.envelope import semantics
from verifair.errors import QueryError
from verifair.schema.feature import text
from verifair.systems.cst import plots as situation_plots
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.checks import nearest
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import NetworkDecider
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.findings import Intervention, records, several
from verifair.systems.cst.graph_plot import causal_graph
from verifair.systems.cst.groups import told
from verifair.systems.cst.robustness.certified import DEPENDS, FLIPS, STAYS, UNKNOWN, certify_counterfactuals
from verifair.systems.cst.tables import honest_line
from verifair.systems.cst.testing import K
from verifair.systems.figures import picture
from verifair.systems.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone
from verifair.systems.words import firmly, of, percent
from verifair.systems.work import Work, called, standing

SHOWN = 100
"""People to review in the table."""


def section(settings: Cst, subject: Subject, work: Work) -> Section:
    frame, rows = subject.some(settings.rows, work.seed)
    path = subject.file.inside("analyses.cst", "causal", settings.causal)
    file = causal_file.load(path)
    test = _testing(settings, subject, file, work).fit(frame)
    asked = test.interventions()
    statements: list[Statement] = []
    pictures: list[Picture] = [_graph(subject, test, file)]
    tables: list[DataTable] = []
    evidence: list[Evidence] = []
    proofs: list[dict[str, Any]] = []
    tests = []
    for n, do in enumerate(asked):
        one = Intervention.of(test, do, work.stopping(f"do({told(do)})"))
        tests.append(one)
        statements += _measured(one)
        if settings.certify is not None:
            proof, said, answer = _certified(settings.certify, subject, test, do, work, len(asked) - n)
            evidence += [proof] if proof is not None else []
            statements.append(said)
            proofs.append(answer)
        pictures.append(_picture(n, one))
        tables += [_counts(one), _review(one)]
    both = several(tests)
    statements.append(Statement(text=honest_line(), standing=Standing.MEASURED, tone=Tone.PLAIN))
    return Section(
        key="cst", title=ABOUT["cst"].title, question=ABOUT["cst"].question,
        method=(
            f"Asked of {rows}: everybody of a protected group is put beside the k most similar people of that group, and, as who "
            "they would have been by the causal model, beside the k most similar of the other group. Are the first refused more "
            f"often? Statistical evidence ({test.distance} distance), never a proof; the causal model is an assumption."
        ),
        source=ABOUT["cst"].source, semantics=semantics(subject.network), statements=tuple(statements),
        pictures=tuple(pictures), tables=tuple(tables), evidence=tuple(evidence),
        settings={
            "causal": settings.causal, "do": {name: text(value) for name, value in test.do.items()}, "k": list(tests[0].found.k),
            "tau": tests[0].found.terms.tau, "rows": rows, "certify": settings.certify, "seed": work.seed,
        },
        answer={
            "equations": list(test.causal_model_.equations()), "tests": [_answer(one) for one in tests], "several": records(both),
            "certified": proofs,
        },
    )  # fmt: skip


def sources(settings: Cst, subject: Subject) -> list[Source]:
    """The causal model's file. Raises SchemaError for a path that leaves the folder, or names no file."""
    from hashlib import sha256

    path = subject.file.inside("analyses.cst", "causal", settings.causal)
    return [Source(role="causal model", file=settings.causal, sha256=sha256(path.read_bytes()).hexdigest())]


def _testing(settings: Cst, subject: Subject, file: causal_file.CausalFile, work: Work) -> SituationTesting:
    """The test that the causal file and the audit file ask for; the audited network decides."""
    said = {name: value for name, value in file.situation.model_dump().items() if value is not None}
    said |= {name: value for name, value in settings.model_dump(include={"do", "k", "tau"}).items() if value is not None}
    model = CausalModel(nodes=file.nodes)
    do = said.pop("do", None)
    if not do:
        raise QueryError(
            f"{settings.causal}: [situation] says no do; write do = {{ ATTRIBUTE = VALUE }}, the value of those not protected "
            f"(roots: {', '.join(model.roots)})"
        )
    for name in do:
        if name not in model.graph:
            raise QueryError(f"[analyses.cst]: do: {name!r} is no node of the causal model; {nearest(name, model.graph)}")
    decider = NetworkDecider(network=subject.network, schema=subject.schema)
    return SituationTesting(model, decider, do=do, seed=work.seed, threads=work.jobs, **{"k": K, **said})


def _answer(one: Intervention) -> dict[str, Any]:
    """All but the claims, a line for each person, method and k, which the verb writes."""
    return {key: value for key, value in one.to_dict().items() if key != "claims"}


def _measured(one: Intervention) -> Iterator[Statement]:
    counts = one.counts()
    own = counts[(counts["method"] == one.method) & (counts["k"] == one.k)].iloc[0]
    people, sure, cases = int(own["complainants"]), int(own["significant"]), int(own["cases"])
    others = " or ".join(one.found.names)
    yield Statement(
        text=f"For {of(sure, people)} people with {others}, the {one.k} people most similar to them are refused significantly more "
        f"often than the {one.k} most similar to who they would be with {one.name}. Chance alone makes about {one.by_chance:.0f}.",
        standing=Standing.MEASURED, tone=Tone.WATCH if sure > one.by_chance else Tone.PLAIN, headline=True,
    )  # fmt: skip
    yield Statement(
        text=f"{of(cases, people)} of them show some difference (a case, not significant by itself).", standing=Standing.MEASURED,
        tone=Tone.PLAIN,
    )  # fmt: skip
    if one.found.refused_tilde is not None:
        refused, tilde = one.found.refused, one.found.refused_tilde
        better, worse = int((refused & ~tilde).sum()), int((~refused & tilde).sum())
        yield Statement(
            text=f"Decided by the model as who they would be with {one.name}, {of(better, people)} people with {others} would no "
            f"longer be refused, and {worse:,} would be.",
            standing=Standing.MEASURED, tone=Tone.WATCH if better else Tone.PLAIN,
        )  # fmt: skip
    left = one.found.details["left out"]
    if left:
        names = ", ".join(f"{name} ({rows:,})" for name, rows in left.items())
        yield Statement(text=f"Not tested, as too few: {names}.", standing=Standing.SKIPPED, tone=Tone.PLAIN)


def _certified(
    level: float, subject: Subject, test: SituationTesting, do: Any, work: Work, left: int
) -> tuple[Evidence | None, Statement, dict[str, Any]]:  # fmt: skip
    """Decisions on counterfactuals for all coefficients in their intervals."""
    found = certify_counterfactuals(
        test.causal_model_, subject.network, subject.schema, test.frame_, do=do, level=level, budget=work.budget(0.7 / left),
        progress=work.progress(f"certified, do({told(do)})"),
    )  # fmt: skip
    counts, proof = found.counts, None
    if found.certificate is not None:
        proof = work.keep(
            f"cst-{called(told(do))}.json.gz", found.certificate,
            f"Decisions on counterfactuals with {told(do)}, for every coefficient in its interval ({found.box}).",
            lambda path, tell: check(path, network=subject.network, schema=subject.schema, progress=tell),
        )  # fmt: skip
    at = standing(proof) if proof is not None else Standing.UNKNOWN
    said = (
        f"{firmly(at) if proof is not None else 'Asked'}, the equations and intervals ({found.box}) taken as given: with "
        f"{told(do)}, {of(counts[FLIPS], len(found.rows))} would be decided otherwise and {counts[STAYS]:,} as they are, whatever "
        f"the coefficients; for {counts[DEPENDS]:,} it depends on them, {counts[UNKNOWN]:,} are undecided."
    )
    return proof, Statement(text=said, standing=at, tone=Tone.WATCH if counts[FLIPS] else Tone.PLAIN), found.to_dict()


def _graph(subject: Subject, test: SituationTesting, file: causal_file.CausalFile) -> Picture:
    graph = test.causal_model_.graph
    edges = "; ".join(f"{parent} to {child}" for parent, child in graph.edges)
    decided = [feature.source for feature in subject.schema.features]
    return picture(
        "cst-graph", "The causal model that is assumed", f"A graph of causes: {edges or 'no edges'}.",
        lambda path: causal_graph(graph, list(test.do), "decision", decided, path),
    )  # fmt: skip


def _picture(n: int, one: Intervention) -> Picture:
    counts = one.counts()
    own = counts[counts["method"] == one.method]
    told_ = ", ".join(f"k = {k}: {percent(share)}" for k, share in zip(own["k"], own["share"], strict=True))
    return picture(
        f"cst-{n}", f"Cases by method and k, with {one.name}", f"Share of people with a case by {one.method}, {told_}.",
        lambda path: situation_plots.counts(counts, path),
    )  # fmt: skip


def _counts(one: Intervention) -> DataTable:
    return DataTable(
        title=f"Cases, with {one.name}", rows=one.counts().drop(columns="do"),
        note="CST: compared around who they would be; ST: around who they are; CF: the counterfactual alone is decided otherwise.",
    )  # fmt: skip


def _review(one: Intervention) -> DataTable:
    table = one.review(SHOWN).drop(columns=["do", "place", "method", "p value"])
    return DataTable(
        title=f"People to review, with {one.name}", rows=table,
        note=f"The first {len(table)} with a case, significant ones first; rows are counted from 0. control, test: share refused "
        f"among the {one.k} most similar of their own group, and of the other; delta: the difference with its interval.",
    )  # fmt: skip
