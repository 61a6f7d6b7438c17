"""Render the page: one template, one style sheet, one script, and a content security policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from encoders.text import visible_lines
from verifair.auditing.decisions import clear, fails
from verifair.auditing.page import contents, summary
from verifair.auditing.page.cells import number
from verifair.auditing.result import AuditResult
from verifair.checker.words import counted
from verifair.systems.groups import SMALL
from verifair.systems.results.words import name_words, percent


def page(result: AuditResult) -> str:
    """Return the audit as one HTML file, which loads nothing and runs only its own script.

    The same audit gives the same text.   Everything that comes from the user (names, titles, files) is escaped.
    """
    folder = files("verifair.auditing.page") / "parts"
    style, *scripts = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "what_if.js"))
    script = "".join(scripts[: 1 if result.what_if is None else 2])
    environment = Environment(
        loader=PackageLoader("verifair.auditing.page", "parts"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        tone=contents.tone, changed=contents.changed, picture=contents.picture, link=contents.link, number=number,
        when=contents.when, duration=contents.duration, setting=contents.setting, grids=contents.grids, plain=contents.plain,
        parted=contents.parted, folded=contents.folded, percent=percent, fails=fails, clear=clear,
        spaced=name_words, people=lambda number: counted(number, "person", "people"),
    )  # fmt: skip
    rows, left_out = contents.witnesses(result)
    measured = result.decisions
    html = environment.get_template("page.html").render(
        result=result, answer=summary.answer(result), surely=summary.surely(result), hit=summary.hit(result),
        features=summary.features(result), lines=summary.lines(result),
        people=summary.people(result), questions=summary.questions(result),
        gaps=list(summary.not_examined(result)), words=contents.WORDS,
        labelled=measured is not None and any(group.accuracy is not None for group in measured.groups),
        cuts={} if measured is None else measured.cuts, checked=contents.evidence_counts(result),
        rows=rows, left_out=left_out, standings=contents.standings(result), small=SMALL,
        semantics=contents.semantics(result), examples=contents.EXAMPLES, tall=contents.TALL, printed=contents.PRINTED,
        what_if=_visible(contents.what_if(result)), style=style, script=script, policy=_policy(style, script),
    )  # fmt: skip
    return visible_lines(html).encode("utf-8", "replace").decode()


def _visible(value: Any) -> Any:
    """Return the script's data with invisible characters made visible, as in the page's text (JSON would escape them)."""
    match value:
        case str():
            return visible_lines(value)
        case list() | tuple():
            return [_visible(item) for item in value]
        case dict():
            return {_visible(name): _visible(item) for name, item in value.items()}
        case _:
            return value


def _policy(style: str, script: str) -> str:
    """Return a content security policy: our style and script by their digests, pictures within the page, nothing else."""
    sources = {
        "default-src": "'none'", "img-src": "data:", "style-src": _digest(style), "script-src": _digest(script),
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    return "; ".join(f"{kind} {source}" for kind, source in sources.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
