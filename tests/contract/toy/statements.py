"""The toy on a page."""

from __future__ import annotations

from tests.contract.toy.plots import draw
from tests.contract.toy.settings import SYSTEM, ToySettings
from tests.contract.toy.solve import solve
from verifair.systems.results.findings import Section, Standing, Statement, Tone
from verifair.systems.results.pictures import picture
from verifair.systems.subject import Subject
from verifair.systems.work import Work


def section(settings: ToySettings, subject: Subject, work: Work) -> Section:
    """Return one statement and one picture."""
    result = solve(settings, subject, work)
    assert SYSTEM.about is not None
    text = f"The toy counted {result.counted} {result.side} decisions."
    return Section(
        key=SYSTEM.verb, title=SYSTEM.about.title, question=SYSTEM.about.question, source=SYSTEM.about.source,
        method="By counting.", semantics="float64",
        statements=(Statement(text=text, standing=Standing.MEASURED, tone=Tone.PLAIN, headline=True),),
        pictures=(picture("toy", "Decisions", f"A bar of {result.counted}", lambda path: draw(result, path)),),
    )
