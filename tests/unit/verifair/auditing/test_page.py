"""The page as text: what it must say, what it must never let through, and cells rounded for reading."""

import base64
import json
import re

import numpy as np
import pandas as pd
import pytest

from tests.audit_sample import HOSTILE, audit, decisions, drawing, replace
from verifair.auditing.page import page
from verifair.auditing.page.cells import Cell, grid, number
from verifair.auditing.page.contents import PRINTED, duration, folded, link, parted, picture, when
from verifair.auditing.result import AuditResult
from verifair.auditing.what_if import WhatIf
from verifair.systems.results.findings import Evidence, Picture, Section, Standing, Statement, Tone


def stated(standing: Standing, tone: Tone) -> AuditResult:
    """An audit of one headline."""
    whole = audit(witnesses=0)
    said = Statement(text="Said.", standing=standing, tone=tone, headline=True)
    return replace(whole, sections=(replace(whole.sections[0], statements=(said,)),))


def with_evidence(**changes: str) -> AuditResult:
    whole = audit(witnesses=0)
    section = whole.sections[0]
    return replace(whole, sections=(replace(section, evidence=(replace(section.evidence[0], **changes),)),))


@pytest.mark.parametrize("standing", [Standing.UNKNOWN, Standing.SKIPPED])
@pytest.mark.parametrize("tone", list(Tone))
def test_what_is_not_known_is_never_fine_and_never_wrong(standing: Standing, tone: Tone) -> None:
    html = page(stated(standing, tone))
    assert "Good: " not in html
    assert "Problem: " not in html


def test_a_figure_that_is_bad_is_read_out_as_a_problem_and_never_as_wrong() -> None:
    for tone, word in ((Tone.BAD, "Problem: "), (Tone.WATCH, "To look into: "), (Tone.GOOD, "Good: ")):
        html = page(stated(Standing.MEASURED, tone))
        assert f'<span class="vh">{word}</span>' in html
        assert "Wrong: " not in html


def test_what_is_read_first_of_a_section_is_what_is_wrong_or_not_known() -> None:
    said = [
        Statement(text=f"{n}", standing=standing, tone=Tone.GOOD, headline=False)
        for n, standing in enumerate([Standing.PROVED] * 9 + [Standing.UNKNOWN])
    ]
    section = replace(audit(witnesses=0).sections[0], statements=tuple(said))
    first, others = parted(section)
    assert ([one.text for one in first], len(others)) == (["9"], 9)
    assert folded(section).startswith("9 more statements, 1 table, 1 file of proofs")
    assert [one.text for one in parted(replace(section, statements=tuple(said[:9])))[0]] == ["0", "1", "2", "3", "4", "5"]


def test_a_rejected_proof_is_said_on_the_first_screen() -> None:
    assert "rejected 1 of 1 files of proofs" in page(with_evidence(checked="rejected"))
    assert "Rejected by the separate checker in this run" in page(with_evidence(checked="rejected"))
    assert 'role="alert"' not in page(with_evidence(checked="accepted"))
    assert "Accepted by" not in page(with_evidence(checked="not re-checked"))


def test_every_file_version_hash_seed_effort_and_command_is_on_the_page() -> None:
    html = page(audit())
    words = ["0b" * 32, "3f" * 32, "onnxruntime", "1.31.1", "<dt>Seed</dt><dd>0</dd>", "verifair check x", "2 min 51 s"]
    words += ["<dt>Effort allowed</dt><dd>150 seconds of work"]
    assert [word for word in words if word not in html] == []


def test_the_same_audit_gives_the_same_page() -> None:
    assert re.sub(r"base64,[^\"]*", "", page(audit())) == re.sub(r"base64,[^\"]*", "", page(audit()))


def test_nothing_of_the_user_becomes_markup() -> None:
    html = page(audit(name=HOSTILE, title=HOSTILE, groups=True))
    assert html.count("<script>") == html.count("</script>") == html.count("<style>") == html.count("</style>") == 1
    assert "{{ 7*7 }}" in html
    assert "onerror=\"" not in html
    assert not re.search(r"<[a-z][^>]*\son\w+=", html)
    assert not re.search(r"<[a-z][^>]*\sstyle=", html), "the policy blocks these"


def test_control_and_direction_letters_are_seen() -> None:
    html = page(audit(title="sex\u202exes\x00\ud800", witnesses=1))
    assert "<h1>sex�xes�?</h1>" in html


def test_control_and_direction_letters_are_seen_in_what_scripts_write() -> None:
    features = [{"name": "sex\u202exes", "categories": ["\x1b[31m", "x\x00", "é😀"]}]
    told = WhatIf(problem="The model is too large.", content={"features": features, "favourable": "\u2066good"}, people=[])
    found = re.search(r'id="what-if-data">(.*?)</script>', page(replace(audit(witnesses=0), what_if=told)))
    assert found is not None
    content = json.loads(found[1])
    assert content["features"] == [{"name": "sex�xes", "categories": ["�[31m", "x�", "é😀"]}]
    assert content["favourable"] == "�good"


@pytest.mark.parametrize(("file", "address"), [
    ("proofs/a b.json", "./proofs/a%20b.json"), ("javascript:alert(1)", "./javascript%3Aalert%281%29"), ("//host/a", None),
    ("/etc/passwd", None), ("a/../../b", None), ("..\\b", None), ("", None), ("https://host/a", "./https%3A/host/a"),
])
def test_links_stay_in_the_folder_of_the_page(file: str, address: str | None) -> None:
    proof = Evidence(file=file, sha256="0" * 64, proves="", command="", checked="accepted")
    assert link(proof) == address


def test_a_picture_is_an_image_with_a_name_space_and_nothing_before_it() -> None:
    for svg in (drawing(), "<svg width='1' height='1'></svg>"):
        head, _, code = picture(Picture(title="t", alt="a", svg=svg)).partition(",")
        found = base64.b64decode(code).decode()
        assert head == "data:image/svg+xml;base64"
        assert found.startswith("<svg ")
        assert found.count('xmlns="http://www.w3.org/2000/svg"') == 1


def test_an_audit_without_sections_or_witnesses_is_a_page_too() -> None:
    whole = audit(witnesses=0)
    bare = replace(whole, sections=(), sources=(), versions={}, protected=())
    assert "No analysis found a counterexample" in page(bare)
    empty = Section(key="pba", title="", question="", method="", source="", semantics="", statements=())
    assert "<h2" in page(replace(whole, sections=(empty,)))


def test_times_are_read_and_anything_else_is_shown_as_it_is() -> None:
    assert when("2026-11-22T08:05:33+02:00") == "22 November 2026, 06:05 UTC"
    assert when("yesterday") == "yesterday"
    assert [duration(seconds) for seconds in (0.04, 12.5, 119.7, 171)] == ["0.0 s", "12 s", "120 s", "2 min 51 s"]


def test_paper_gets_the_first_rows_of_a_long_table_and_says_so() -> None:
    html = page(audit(witnesses=2 * PRINTED))
    assert f"tbody > tr:nth-child(n+{PRINTED + 1} of :not([hidden])) {{ display: none; }}" in html.split("@media print")[1]
    assert f"At most {PRINTED} counterexamples are printed; the HTML page has all" in html
    assert "are printed" not in page(audit(witnesses=PRINTED // 2))


# Cells: rounded for reading, never to what they are not.


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0.000"), (1.0, "1.000"), (0.5, "0.500"), (-0.25, "−0.250"), (0.99996, "0.99996"), (0.9999999, "0.9999999"),
    (1e-4, "0.0001"), (1e-9, "1.00e−09"), (-1e-9, "−1.00e−09"), (1234.5678, "1,234.568"), (float("inf"), "∞"),
    (float("-inf"), "−∞"), (float("nan"), "–"), (0.0004999, "0.0005"), (1 + 1e-12, "1.000000000001"),
])
def test_a_number_is_never_rounded_to_a_whole_one_that_it_is_not(value: float, text: str) -> None:
    assert number(value) == text


def test_a_column_of_numbers_with_gaps_stays_a_column_of_numbers() -> None:
    found = grid(pd.DataFrame({"gap": [0.25, None], "count": [1000, 2], "word": ["a", None], "flag": [np.True_, False]}), 10)
    assert found.columns == (("gap", True), ("count", True), ("word", False), ("flag", False))
    assert found.rows[0] == (Cell(text="0.250", number=0.25), Cell(text="1,000", number=1000), Cell(text="a"), Cell(text="yes"))
    assert [cell.missing for cell in found.rows[1]] == [True, False, True, False]


def test_whole_numbers_with_gaps_and_those_of_pandas_are_numbers() -> None:
    frame = pd.DataFrame({"n": pd.array([3, None], dtype="Int64"), "x": np.array([1.5, 2.5], dtype=np.float32)})
    found = grid(frame, 10)
    assert [cell.text for cell in found.rows[0]] == ["3", "1.500"]
    assert found.rows[1][0].missing


def test_a_column_of_whole_numbers_shows_no_decimals_and_one_that_is_not_shows_them_all_over() -> None:
    found = grid(pd.DataFrame({"delta": [1.0, 2.0], "mixed": [1.0, 2.5], "none": [float("nan"), float("inf")]}), 10)
    assert [[cell.text for cell in row] for row in found.rows] == [["1", "1.000", "–"], ["2", "2.500", "∞"]]


def test_large_numbers_lose_their_decimals_and_long_tables_their_rows() -> None:
    found = grid(pd.DataFrame({"credit": [12345.678, 1.25], "days": [50.125, 2.0]}), 1)
    assert [cell.text for cell in found.rows[0]] == ["12,345.7", "50.12"]
    assert (len(found.rows), found.left_out) == (1, 1)


def test_columns_of_the_same_name_and_no_rows_at_all() -> None:
    assert grid(pd.DataFrame([[1, 2]], columns=["a", "a"]), 5).rows[0][1].number == 2
    empty = grid(pd.DataFrame({"a": []}), 5)
    assert (empty.columns, empty.rows, empty.left_out) == ((("a", False),), (), 0)


def test_what_labels_count_as_is_said_under_the_groups() -> None:
    counted = decisions("age").model_copy(update={"labels": "Label 'paid': rows with <i>, no all count as not 'yes'."})
    html = page(replace(audit(witnesses=0), decisions=counted))
    assert "rows with &lt;i&gt;, no all count as not" in html
