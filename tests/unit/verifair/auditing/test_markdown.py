"""Summaries and model cards say what the page says, and names from the user's files are no markup."""

import re
from pathlib import Path

import pytest
import yaml

from encoders.text import visible
from tests.audit_sample import HOSTILE, audit, replace
from verifair.auditing.gate import gate
from verifair.auditing.markdown import plain, save_model_card, save_summary
from verifair.auditing.settings import GateSection

SAVES = {"summary": save_summary, "model card": save_model_card}


@pytest.mark.parametrize("kind", SAVES)
def test_every_group_and_how_each_analysis_ended_are_told(kind: str, tmp_path: Path) -> None:
    result = audit(groups=True)
    SAVES[kind](result, tmp_path / "audit.md")
    text = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "| sex | Female | 310 | 50.0% | 44.5% to 55.5% | 0.62 (0.55 to 0.70) | fails |" in text
    assert "| Situation testing | did not run | 1 not run |" in text
    assert "- **refuted**: Two applicants alike in all but sex" in text
    assert "{{" not in text


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize(
    "name",
    [HOSTILE, "a|b\n# c", "```", "[x](javascript:1)", "@everyone", "\x1b[31m", "- [ ] *b* _i_", "https://a.b WWW.a.b"],
)
def test_names_are_no_markup(kind: str, name: str, tmp_path: Path) -> None:
    result = audit(name=name, title=name, groups=True)
    SAVES[kind](result, tmp_path / "audit.md")
    text = (tmp_path / "audit.md").read_text(encoding="utf-8")
    front, body = text.split("\n---\n", 1) if kind == "model card" else ("", text)
    assert not re.search(r"<(?!/?details|/?summary)", body)
    assert {letter for letter in text if not letter.isprintable()} <= {"\n"}
    assert not re.search(r"(?i)`|@|\]\(|://a|www\.", body)
    rows = [line for line in body.splitlines() if line.startswith("|") and "%" in line and "interval" not in line]
    assert all(line.count("|") == 9 for line in rows)
    if front:
        assert yaml.safe_load(front.removeprefix("---"))["model_name"] == visible(name)


def test_front_matter_holds_every_letter_that_can_be_seen(tmp_path: Path) -> None:
    """YAML does not join the two halves that JSON escapes such a letter to."""
    save_model_card(audit(title='Crédit 😀 "a" \\ud83d'), tmp_path / "card.md")
    front = (tmp_path / "card.md").read_text(encoding="utf-8").split("\n---\n")[0]
    assert yaml.safe_load(front.removeprefix("---"))["model_name"] == 'Crédit 😀 "a" \\ud83d'


def test_words_stay_words() -> None:
    assert plain("credit_amount <= 5") == "credit_amount &#60;= 5"
    assert plain("__sex__ _a_ b__c") == "&#95;&#95;sex&#95;&#95; &#95;a&#95; b&#95;&#95;c"


def test_a_summary_begins_with_the_gate(tmp_path: Path) -> None:
    result = audit(groups=True)
    result = replace(result, gate=gate(GateSection(four_fifths=0.8), result))
    save_summary(result, tmp_path / "audit.md")
    text = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "❌ failed" in text.partition("### Findings")[0]


def test_commands_that_check_proofs_stand_as_code(tmp_path: Path) -> None:
    save_model_card(audit(), tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "\n    verifair check certificates .. --model german.onnx --schema german.toml\n" in text
    assert "Its size: german.onnx.\n" in text
