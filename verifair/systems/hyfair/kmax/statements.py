"""kmax for a page: how many outcome buckets can one person reach when only sensitive values change?"""

from __future__ import annotations

from verifair.engine.questions import decisions
from verifair.engine.verdict import Reason
from verifair.systems.hyfair.kmax.plots import plot
from verifair.systems.hyfair.kmax.result import KmaxResult
from verifair.systems.hyfair.kmax.settings import SYSTEM, KmaxSettings
from verifair.systems.hyfair.kmax.solve import solve
from verifair.systems.results.findings import DataTable, Section, Standing, Statement, Tone, WitnessRow
from verifair.systems.results.pictures import picture
from verifair.systems.results.words import firmly, listed, sentence, value_words
from verifair.systems.subject import Subject
from verifair.systems.work import Work, standing


def section(settings: KmaxSettings, subject: Subject, work: Work) -> Section:
    """Return the page's section on the largest k. Raises KeyboardInterrupt if the search was interrupted."""
    names = subject.names(settings.protected)
    result = solve(settings.model_copy(update={"protected": tuple(names)}), subject, work)
    verdict = result.verdict
    if verdict is None or verdict.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt
    buckets = settings.buckets
    chosen = [f"{name} of {listed([str(value) for value in values])}" for name, values in settings.values.items()]
    protected, restriction = listed(names), f" (asked: {'; '.join(chosen)})" if chosen else ""
    box_words = f"in the box of {listed(list(settings.box))} " if settings.box else ""
    proof = work.keep(
        "kmax.json.gz", verdict.certificate,
        f"Nobody {box_words}falls into more than {verdict.upper} of {buckets} outcome buckets by {protected}{restriction}.",
        subject.network, subject.schema,
    )
    row, k = _witness(subject, result), result.lower
    unit = f"{100 / buckets:.3g} points of probability each" if result.space.query.probable else "the two decisions"
    gap_note = " The truth lies between the two: the time was up." if result.gap else ""
    outcomes = result.outcomes
    return Section(
        **SYSTEM.heading,
        method=(
            f"Simulated annealing from {'the table and' if subject.data is not None else ''} the solver's seeds for a person "
            "(counted exactly), then branch-and-bound for a bound that holds for everybody. Sound; complete within the time."
        ),
        semantics=verdict.semantics,
        statements=(
            Statement(
                text=f"One possible person falls into {k} of {buckets} outcome buckets ({unit}) by {protected} alone, nothing "
                f"else about the person changed. {row.sentence}",
                standing=Standing.REFUTED if k > 1 else Standing.MEASURED, headline=True,
                brief=f"{protected} {'together move' if len(names) > 1 else 'moves'} the {subject.schema.quantity} of one possible "
                f"person from {row.before:.2f} to {row.after:.2f}; the decision {'changes' if row.flips else 'stays the same'}.",
                tone=Tone.BAD if row.flips else Tone.WATCH if k > 1 else Tone.PLAIN,
            ),
            Statement(
                text=f"{firmly(standing(proof))}: nobody {box_words}falls into more than {verdict.upper}{restriction}.{gap_note}",
                standing=standing(proof), tone=Tone.GOOD if verdict.upper == 1 else Tone.PLAIN, headline=verdict.upper == 1,
            ),
        ),
        witnesses=(row,),
        pictures=(picture(
            "kmax", "The search, and the outcomes of that person",
            f"Left: the best k against seconds. Right: the probabilities of the person's {len(outcomes)} variants, from "
            f"{outcomes['probability'].min():.2f} to {outcomes['probability'].max():.2f}.",
            lambda path: plot(result, path),
        ),),
        tables=(DataTable(
            title="The same person in all variants", rows=outcomes,
            note=f'Sorted by the probability of "{subject.schema.class_names[1]}".',
        ),),
        evidence=(proof,),
        settings={
            "protected": names, "buckets": buckets, "values": {name: list(v) for name, v in settings.values.items()},
            "box": dict(settings.box), "search": settings.search, "chains": settings.chains, "seed": work.seed,
        },
        answer=result.model_dump(exclude={"seconds", "versions"}),
    )


def _witness(subject: Subject, result: KmaxResult) -> WitnessRow:
    """Return the person's variants with the lowest and the highest outcome."""
    schema, best = subject.schema, result.best
    low, high = int(best.logits.argmin()), int(best.logits.argmax())
    ends = {
        name: (schema.format(name, best.combinations[low, n]), schema.format(name, best.combinations[high, n]))
        for n, name in enumerate(result.query.protected)
    }
    changes = {name: (old, new) for name, (old, new) in ends.items() if old != new}
    before, after = float(best.probabilities[low]), float(best.probabilities[high])
    query, rows = result.space.query, result.space.rows(best.x, best.combinations[[low, high]])
    classes = decisions(query.schema.judges(query.model), query.schema.encode(rows))
    names = [schema.class_names[c] for c in classes]
    shared = {name: value_words(schema, name, value) for name, value in result.witness.items()}
    shared |= {name: old for name, (old, new) in ends.items() if old == new}
    return WitnessRow(
        analysis="kmax", person=shared,
        changes=changes, before=before, after=after, flips=names[0] != names[1],
        float32_agrees=None if best.runtime_k is None else best.runtime_k == best.k,
        sentence=sentence(schema, "A possible person", shared, changes, (before, after), names),
        x=result.witness | {name: schema[name].word(best.combinations[low, n]) for n, name in enumerate(result.query.protected)},
    )
