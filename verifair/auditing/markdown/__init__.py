"""The audit as Markdown: a summary for a pull request, and a model card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from encoders.text import visible
from verifair.auditing.page.contents import WORDS, duration, ended, evidence_counts, semantics, standings, when
from verifair.auditing.page.summary import not_examined
from verifair.auditing.result import AuditResult
from verifair.systems.results.files import save_text

MAX_SHOWN = 8
"""Findings of a summary, and counterexamples of a card."""


def save_summary(result: AuditResult, path: Path) -> None:
    """Write the summary for a reviewer of a change: the gate, the findings of the first screen, the decisions by group."""
    save_text(path, _render("summary.md", result))


def save_model_card(result: AuditResult, path: Path) -> None:
    """Write a model card whose front matter Hugging Face reads. Licence and intended use are the owner's to add."""
    facts = {
        "library_name": "onnx", "pipeline_tag": "tabular-classification", "tags": ["fairness", "verifair"],
        "model_name": visible(result.title),
    }  # fmt: skip
    front = "".join(f"{name}: {json.dumps(fact, ensure_ascii=False)}\n" for name, fact in facts.items())  # unescaped JSON is YAML
    save_text(path, f"---\n{front}---\n\n{_render('model_card.md', result)}")


def _render(template: str, result: AuditResult) -> str:
    environment = Environment(
        loader=PackageLoader("verifair.auditing", "markdown"), undefined=StrictUndefined, trim_blocks=True,
        finalize=plain, autoescape=False, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update(when=when, duration=duration, ended=ended, zip=zip)
    witnesses = [witness for section in result.sections for witness in section.witnesses]
    return environment.get_template(template).render(
        result=result, findings=[statement for statement in result.statements if statement.headline], shown=MAX_SHOWN, words=WORDS,
        standings=standings(result), not_examined=list(not_examined(result)),
        witnesses=sorted(witnesses, key=lambda witness: -abs(witness.after - witness.before)),
        command=None if result.command is None else Markup(visible(result.command)),  # a code block contains no markup
        semantics=semantics(result), checked=evidence_counts(result),
    )  # fmt: skip


def plain(value: Any) -> str:
    """Return a value as text without markup, and without addresses that GitHub would link: names come from the user's files.
    Control characters become visible."""
    if isinstance(value, Markup):
        return value
    text = visible(str(value))
    marks = r"[\\`*\[\]<>|&~@#!$]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\."
    return re.sub(marks, lambda match: f"&#{ord(match[0])};", text, flags=re.IGNORECASE)
