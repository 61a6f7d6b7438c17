"""Max k-discrimination: into how many outcome buckets can one person fall when only sensitive values change?"""

from __future__ import annotations

from verifair.audit.sections.about import ABOUT
from verifair.audit.settings import Kmax
from verifair.audit.subject import Subject
from verifair.checker.kinds.kmax import check_kmax
from verifair.engine.buckets.kmax import kmax
from verifair.engine.queries import KDiscrimination
from verifair.engine.verdict import Reason
from verifair.systems.figures import picture
from verifair.systems.findings import DataTable, Section, Standing, Statement, Tone, WitnessRow
from verifair.systems.hyfair.clusters_report import answer_of, best_of, search_plot
from verifair.systems.hyfair.search import clusters
from verifair.systems.hyfair.search.annealing import Schedule, search
from verifair.systems.hyfair.search.clusters import Cluster
from verifair.systems.hyfair.search.neighbours import Pool
from verifair.systems.hyfair.search.seeds import SolverSeeds
from verifair.systems.hyfair.search.space import Space
from verifair.systems.words import firmly, listed, sentence, value_words
from verifair.systems.work import Work, standing

SEARCHING = 0.5
"""Share of the time that goes to the search, as in the verb."""
CHAINS = 64


def section(settings: Kmax, subject: Subject, work: Work) -> Section:
    schema, names = subject.schema, subject.names(settings.protected)
    query = KDiscrimination(
        network=subject.network, schema=schema, protected=names, box=settings.box, buckets=settings.buckets,
        values={name: [schema.raw_value(name, value) for value in values] for name, values in settings.values.items()},
    )  # fmt: skip
    space = Space.of(query)
    rows = None if subject.frame is None else schema.raw(subject.frame, outside="keep")
    found = search(
        query, method="sa", data=rows, seconds=work.left * SEARCHING, seed=work.seed, schedule=Schedule(chains=CHAINS),
        reseed=SolverSeeds(space=space, pool=Pool.of(space, rows)), progress=work.progress("search, seconds"),
    )  # fmt: skip
    if found.statistics.stopped == "interrupted":
        raise KeyboardInterrupt
    verdict = kmax(query, budget=work.budget(0.8), start=found.peers, progress=work.progress("k found of the bound"))
    if verdict.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt
    best = best_of(space, found, verdict)
    chosen = [f"{name} of {listed([str(value) for value in values])}" for name, values in settings.values.items()]
    who, limits = listed(names), f" (asked: {'; '.join(chosen)})" if chosen else ""
    inside = f"in the box of {listed(list(settings.box))} " if settings.box else ""
    bound = f"Nobody {inside}falls into more than {verdict.upper} of {query.buckets} outcome buckets by {who}{limits}."
    proof = work.keep(
        "kmax.json.gz", verdict.certificate, bound,
        lambda path, tell: check_kmax(path, network=query.network, schema=schema, progress=tell),
    )  # fmt: skip
    row = _witness(subject, space, best)
    width = f"{100 / query.buckets:.3g} points of probability each"
    open_ = "" if verdict.upper == best.k else " The truth lies between the two: the time was up."
    statements = [
        Statement(
            text=f"One possible person falls into {best.k} of {query.buckets} outcome buckets ({width}) by {who} alone. "
            f"{row.sentence}",
            standing=Standing.REFUTED if best.k > 1 else Standing.MEASURED, headline=True,
            tone=Tone.BAD if row.flips else Tone.WATCH if best.k > 1 else Tone.PLAIN,
        ),
        Statement(
            text=f"{firmly(standing(proof))}: nobody {inside}falls into more than {verdict.upper}{limits}.{open_}",
            standing=standing(proof), tone=Tone.GOOD if verdict.upper == 1 else Tone.PLAIN, headline=verdict.upper == 1,
        ),
    ]  # fmt: skip
    outcomes = clusters.outcomes(space, best)
    return Section(
        key="kmax", title=ABOUT["kmax"].title, question=ABOUT["kmax"].question,
        method=(
            f"Simulated annealing from {'the table and' if rows is not None else ''} the solver's seeds for a person (counted "
            "exactly), then branch-and-bound for a bound that holds for everybody. Sound; complete within the time."
        ),
        source=ABOUT["kmax"].source, semantics=verdict.semantics, statements=tuple(statements), witnesses=(row,),
        pictures=(picture(
            "kmax", "The search, and the outcomes of that person",
            f"Left: the best k against seconds. Right: the probabilities of the person's {len(outcomes)} variants, from "
            f"{outcomes['probability'].min():.2f} to {outcomes['probability'].max():.2f}.",
            lambda path: search_plot(found, best, outcomes, path, upper=verdict.upper),
        ),),
        tables=(DataTable(
            title="The same person in all variants", rows=outcomes, note="Sorted by the probability of the favourable outcome."
        ),),
        evidence=(proof,),
        settings={
            "protected": names, "buckets": query.buckets, "values": {name: list(v) for name, v in settings.values.items()},
            "box": dict(settings.box), "search": "sa", "chains": CHAINS, "seed": work.seed,
        },
        answer={key: value for key, value in answer_of(space, found, best, verdict, 0.0).items() if key != "seconds"},
    )  # fmt: skip


def _witness(subject: Subject, space: Space, best: Cluster) -> WitnessRow:
    """The person's lowest and highest outcome."""
    schema, names = subject.schema, space.query.protected
    low, high = int(best.logits.argmin()), int(best.logits.argmax())
    outcomes = clusters.outcomes(space, best)
    changes = {
        name: (schema.format(name, best.combinations[low, n]), schema.format(name, best.combinations[high, n]))
        for n, name in enumerate(names) if best.combinations[low, n] != best.combinations[high, n]
    }  # fmt: skip
    before, after = float(outcomes["probability"].min()), float(outcomes["probability"].max())
    classes = (int(best.logits[low] > 0), int(best.logits[high] > 0))
    return WitnessRow(
        analysis="kmax",
        person={name: value_words(schema, name, value) for name, value in clusters.person(space, best).items()}
        | {name: schema.format(name, best.combinations[low, n]) for n, name in enumerate(names) if name not in changes},
        changes=changes, before=before, after=after, flips=classes[0] != classes[1],
        float32_agrees=None if best.runtime_k is None else best.runtime_k == best.k,
        sentence=sentence(schema, "The same person", changes, (before, after), classes),
    )  # fmt: skip
