"""CST for a page: would people of a protected group get the same decision if they were not in it, under a causal model?"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from verifair.checker.certificates.envelope import semantics
from verifair.systems.cst.causal import file as causal_file
from verifair.systems.cst.causal.graph_plot import causal_graph
from verifair.systems.cst.deciders import NetworkDecider, reads
from verifair.systems.cst.findings import Intervention
from verifair.systems.cst.plots import counts as counts_plot
from verifair.systems.cst.result import CertifiedDecisions, CstResult
from verifair.systems.cst.settings import SYSTEM, CstSettings
from verifair.systems.cst.solve import CstSubject, solve
from verifair.systems.cst.tables import honest_line, missing_line
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Source, Standing, Statement, Tone
from verifair.systems.results.pictures import picture
from verifair.systems.results.words import firmly, of, percent
from verifair.systems.subject import Subject
from verifair.systems.work import Work, called, standing

MAX_SHOWN = 100
"""People to review in the table."""
TITLE = "analyses.cst"
"""Title of the section in an audit file."""


def sources(settings: CstSettings, subject: Subject) -> list[Source]:
    """Return the causal model's file. Raises SchemaError for a path that leaves the audit's folder, or names no file."""
    path = subject.inside(TITLE, "causal", str(settings.causal))
    return [Source(role="causal model", file=str(settings.causal), sha256=sha256(path.read_bytes()).hexdigest())]


def section(settings: CstSettings, subject: Subject, work: Work) -> Section:
    """Return the page's section on CST, with the audited network as the decider."""
    data, rows = subject.some(settings.rows, work.seed)
    path = subject.inside(TITLE, "causal", str(settings.causal))
    decider = NetworkDecider(model=subject.network, schema=subject.schema)
    cst_subject = CstSubject(
        frame=data.frame, file=causal_file.load(path), path=path, decider=decider, words=rows, options=work.options,
        prefix=f"[{TITLE}]: ",
    )
    result = solve(settings.model_copy(update={"cases": 0}), cst_subject, work).whole()
    statements: list[Statement] = []
    evidence: list[Evidence] = []
    for n, test in enumerate(result.tests):
        statements += measured(test)
        if result.certified:
            proof = _save_proofs(result.certified[n], subject, work)
            evidence += [] if proof is None else [proof]
            statements.append(_certified(result.certified[n], proof))
    missing = (*map(missing_line, result.not_tested), *result.notes)
    statements += [Statement(text=line, standing=Standing.UNKNOWN, tone=Tone.WATCH) for line in missing]
    statements.append(Statement(text=honest_line(), standing=Standing.MEASURED, tone=Tone.PLAIN))
    return Section(
        **SYSTEM.heading,
        method=(
            f"Asked of {rows}: for each person of a protected group, the k most similar people of that group are compared with the "
            "k people of the other group who are most similar to the person's counterfactual by the causal model. Are the first "
            f"refused more often? Statistical evidence ({result.query.distance} distance), not proof; the causal model is assumed."
        ),
        semantics=semantics(subject.network), statements=tuple(statements),
        pictures=(_graph(result), *(_picture(n, test) for n, test in enumerate(result.tests))),
        tables=tuple(table for test in result.tests for table in (_counts(test), _review(test))), evidence=tuple(evidence),
        settings={
            "causal": str(settings.causal), "do": result.query.do, "k": result.query.k, "tau": result.query.tau, "rows": rows,
            "certify": settings.certify, "draws": settings.draws, "seed": work.seed,
        },
        answer=result.model_dump(
            include={"equations": True, "tests": True, "several": True, "certified": True},
            exclude={"tests": {"__all__": {"claims"}}, "certified": {"__all__": {"certificate_file"}}},
        ),
    )


def measured(test: Intervention) -> Iterator[Statement]:
    counts = test.counts[(test.counts["method"] == test.ranking) & (test.counts["k"] == test.smallest)].iloc[0]
    people, count, cases = test.complainants, int(counts["significant"]), int(counts["cases"])
    groups, terms, by_chance = " or ".join(test.found.names), test.found.terms, test.expected_significant_by_chance
    degree = "more often" if terms.direction == "negative" else "less often"
    degree += f" (by more than {terms.tau:g})" if terms.tau else ""
    if terms.correction is not None:
        expected, threshold = f"on average at most {100 * terms.alpha:.3g} % of these are due to chance (Benjamini-Hochberg)", 0.0
    else:
        expected, threshold = f"chance alone would give about {by_chance:.0f}", by_chance
    yield Statement(
        text=f"For {of(count, people)} people with {groups}, the {test.smallest} people most similar to them are refused "
        f"significantly {degree} than the {test.smallest} most similar to them as they would be with {test.name} ({expected}).",
        standing=Standing.MEASURED, tone=Tone.WATCH if count > threshold else Tone.PLAIN, headline=True,
        brief=f"{of(count, people)} with {groups}: people like them are refused significantly {degree} than people like them as "
        f"they would be with {test.name} ({expected}).",
    )
    yield Statement(
        text=f"For {of(cases, people)} of them it is {degree}, significantly or not (a case each).", standing=Standing.MEASURED,
        tone=Tone.PLAIN,
    )
    if test.draws is not None and test.draws.categories:
        draws = test.draws.counts.set_index("method").loc[test.ranking]
        yield Statement(
            text=f"Counterfactuals are drawn in part ({', '.join(test.draws.categories)}): {len(test.draws.seeds)} draws give "
            f"{draws['least']:,} to {draws['most']:,} such cases, {draws['mean']:,.1f} on average, and {draws['in over half']:,} "
            "people are a case in more than half of the draws.",
            standing=Standing.MEASURED, tone=Tone.PLAIN,
        )
    if test.found.refused_tilde is not None:
        refused, tilde = test.found.refused, test.found.refused_tilde
        better, worse = int((refused & ~tilde).sum()), int((~refused & tilde).sum())
        yield Statement(
            text=f"If the model decided on their counterfactuals with {test.name}, {of(better, people)} people with {groups} would "
            f"no longer be refused, and {worse:,} would be refused who are not now.",
            standing=Standing.MEASURED, tone=Tone.WATCH if better else Tone.PLAIN,
        )
    if test.left_out:
        names = ", ".join(f"{name} ({rows:,})" for name, rows in test.left_out.items())
        yield Statement(text=f"Not tested, because they are too few: {names}.", standing=Standing.SKIPPED, tone=Tone.PLAIN)


def _save_proofs(certified: CertifiedDecisions, subject: Subject, work: Work) -> Evidence | None:
    """Save the proofs beside the page and re-check them; None where nothing is proved."""
    if certified.found.certificate is None:
        return None
    return work.keep(
        f"cst-{called(certified.name)}.json.gz", certified.found.certificate,
        f"Decisions on counterfactuals with {certified.name}, for every coefficient in its interval ({certified.box}).",
        subject.network, subject.schema,
    )


def _certified(result: CertifiedDecisions, proof: Evidence | None) -> Statement:
    """Return the statement about decisions on counterfactuals for all coefficients in their intervals."""
    certainty, counts = standing(proof) if proof is not None else Standing.UNKNOWN, result.counts
    text = (
        f"{firmly(certainty) if proof is not None else 'Asked'}, {result.given} ({result.box}) taken as given: with "
        f"{result.name}, {of(counts.flips, result.rows)} would be decided otherwise and {counts.stays:,} as they are, whatever "
        f"the coefficients; for {counts.depends:,} it depends on them{' or on categories' if result.categories else ''}, "
        f"{counts.unknown:,} are undecided."
    )
    return Statement(text=text, standing=certainty, tone=Tone.WATCH if counts.flips else Tone.PLAIN)


def _graph(result: CstResult) -> Picture:
    graph, model = result.model.causal_model_.graph, result.model
    edges = "; ".join(f"{parent} to {child}" for parent, child in graph.edges)
    return picture(
        "cst-graph", "The causal model that is assumed", f"A graph of causes: {edges or 'no edges'}.",
        lambda path: causal_graph(graph, list(model.do), "decision", reads(model.decider), path),
    )


def _picture(n: int, test: Intervention) -> Picture:
    counts = test.counts[test.counts["method"] == test.ranking]
    shares = ", ".join(f"k = {k}: {percent(share)}" for k, share in zip(counts["k"], counts["share"], strict=True))
    return picture(
        f"cst-{n}", f"Cases by method and k, with {test.name}", f"Share of people with a case by {test.ranking}, {shares}.",
        lambda path: counts_plot(test, path),
    )


def _counts(test: Intervention) -> DataTable:
    return DataTable(
        title=f"Cases, with {test.name}", rows=test.counts,
        note="CST: compared around the counterfactual; ST: around the person; CF: the counterfactual is decided otherwise.",
    )


def _review(test: Intervention) -> DataTable:
    table = test.review(MAX_SHOWN).drop(columns=["place", "method", "p value"])
    return DataTable(
        title=f"People to review, with {test.name}", rows=table,
        note=f"The first {len(table)} with a case, significant ones first; rows are counted from 0. control, test: share refused "
        f"among the {test.smallest} most similar of their own group, and of the other; delta: the difference with its interval.",
    )
