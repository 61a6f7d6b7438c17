"""The first screen: it answers with numbers, ranks nobody who is alone, and says what it does not know."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.audit_sample import audit, replace, witness
from verifair.auditing.decisions import GroupCounts, count, described, rates
from verifair.auditing.page import page
from verifair.auditing.page.summary import answer, features, hit, lines, not_examined, people
from verifair.auditing.result import AuditResult
from verifair.systems.results.findings import Standing, Statement, Tone


def screen(result: AuditResult) -> str:
    """The text of the first screen."""
    html = page(result).split('<section class="summary"')[1].split('<nav class="contents"')[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def certified(
    answers: dict[str, Any], *, checked: str = "accepted", file: str = "certify-sex.json.gz", **settings: Any
) -> AuditResult:
    """An audit of sex alone, in which `certify` answered so."""
    whole = audit(witnesses=0)
    (proof,) = whole.sections[0].evidence
    section = replace(
        whole.sections[0], settings=settings, answer={"by_feature": [{"protected": "sex", **answers}]},
        evidence=(replace(proof, file=f"page.files/{file}", checked=checked),),
    )
    return replace(whole, sections=(section,), protected=("sex",))


def rated(groups: dict[str, tuple[int, int]]) -> AuditResult:
    """An audit of nothing but decisions.   groups: name -> favoured, people."""
    name = pd.Series(np.repeat(list(groups), [people for _, people in groups.values()]))
    favoured = np.concatenate([np.arange(people) < good for good, people in groups.values()])
    groups: dict[str, GroupCounts] = {}
    count(groups, name, favoured, right=favoured, place=np.zeros(len(name), np.int64))
    found = described(rates("race", groups, known=False), {}, people=len(name), favoured=int(favoured.sum()), favourable="bail")
    return replace(audit(witnesses=0), decisions=found, sections=(), protected=("race",))


PARTS = {"partition": {"shares": {"volume": {"proved": 0.125}}}}


def exchanged(flips: int) -> dict[str, Any]:
    return {"exchanged": {"people": 100, "asked": 100, "decided_otherwise": flips}}


def test_decisions_that_change_are_the_answer_with_their_number() -> None:
    same = "Yes. If only sex changed,"
    assert answer(certified(exchanged(5))) == ("bad", f"{same} 5 of the table's 100 people (5.0%) would get another decision.")
    assert "5.0% of the table (5 people)" in screen(certified(exchanged(5)))
    ways = exchanged(5)
    ways["exchanged"]["to_favourable"] = 4
    assert 'get another decision (4 to the favourable "good credit", 1 to "bad credit").' in answer(certified(ways))[1]
    assert "(5 people): 4 to good credit, 1 to bad credit" in screen(certified(ways))
    _, text = answer(certified({**exchanged(0), "verdict": {"status": "violated"}}))
    assert text == f"{same} possible people would get another decision, nobody in the table would."
    for rest in ({}, {"exchanged": {"people": 100, "asked": 60, "decided_otherwise": 0}}):
        _, text = answer(certified({**rest, "verdict": {"status": "violated"}}))
        assert text == f"{same} possible people would get another decision."


def test_the_group_that_would_gain_most_often_is_named_where_it_is_large_enough() -> None:
    found = exchanged(5)
    found["exchanged"]["groups"] = {
        group: {"people": people, "decided_otherwise": gain + 1, "to_favourable": gain}
        for group, people, gain in (("Male", 60, 3), ("Female", 31, 2), ("Other", 9, 9))
    }
    said = 'By sex, most often people with sex Female: 2 of 31 (6.5%) would get "good credit" with another value.'
    assert hit(certified(found)) == said
    for one in found["exchanged"]["groups"].values():
        one["to_favourable"] = 0
    assert not hit(certified(found))


def test_people_who_were_not_drawn_were_not_examined() -> None:
    for rows, said in (("all 100 rows of the table", []), ("50 of the table's 100 rows, drawn at random (seed 0)", ["said"])):
        found = list(not_examined(certified(exchanged(0), rows=rows)))
        assert [line for line in found if "not drawn" in line] == [
            f"People of the table who were not drawn: {certified({}).sections[0].title} ({rows})." for _ in said
        ]


def test_people_who_are_not_decided_are_drawn_and_told_so() -> None:
    found = certified({"exchanged": {"people": 100, "asked": 60, "decided_otherwise": 5}})
    assert "5 of the table's 100 people (5.0% at least)" in answer(found)[1]
    assert "5.0% of the table (5 people); 40 not decided" in screen(found)
    assert "Not decided for 40 of the table's 100 people: whether another value of sex changes it." in list(not_examined(found))
    chart = page(found).split('class="alone"')[1].split("</tr>")[0]
    widths = dict(re.findall(r'class="(\w+)" x="[\d.]+" y="0" width="([\d.]+)"', chart))
    assert (widths["good"], widths["bad"]) == ("110.0", "10.0")


@pytest.mark.parametrize(
    ("checked", "settings", "tone"),
    [
        ("accepted", {}, "good"), ("not re-checked", {}, "open"), ("accepted in part", {}, "open"), ("rejected", {}, "open"),
        ("accepted", {"box": {"age": 3}}, "open"), ("accepted", {"epsilon": 0.1}, "open"),
        ("accepted", {"signs": "strict"}, "open"),
    ],
)
def test_no_needs_a_proof_of_decisions_everywhere_that_was_accepted(checked: str, settings: dict[str, Any], tone: str) -> None:
    found = answer(certified({**exchanged(0), "verdict": {"status": "proved"}}, checked=checked, **settings))
    assert found[0] == tone
    assert found[1].startswith("No. It is proved" if tone == "good" else "Not known. ")


def test_an_audit_that_asked_nothing_of_decisions_knows_nothing() -> None:
    assert answer(replace(audit(witnesses=0), sections=()))[0] == "open"
    assert answer(replace(audit(witnesses=0), sections=(), protected=()))[0] == "open"


def test_a_group_below_four_fifths_is_in_the_answer_with_its_number_and_interval() -> None:
    tone, text = answer(rated({"Black": (58, 100), "White": (80, 100)}))
    assert tone == "bad"
    said = 'people with race Black get "good credit" 0.72 times as often as those with race White'
    interval = "(95 % interval 0.59 to 0.88, 100 and 100 people; that it is below 0.8 may be chance)"
    assert text.endswith(f"Below the four-fifths limit of 0.8: {said} {interval}.")


def test_one_person_is_shown_and_never_ranked() -> None:
    found = rated({"Black": (70, 100), "White": (80, 100), "Native American": (1, 1)})
    assert "four-fifths" not in answer(found)[1]
    text = screen(found)
    assert "Native American 1 100.0% 21–100 too few" in text
    assert "too few to compare: race Native American (1)." in text
    (feature,) = features(found)
    assert feature.top == 0.8


def test_nobody_is_compared_where_one_group_has_enough_people() -> None:
    found = rated({"White": (10, 100), "Native American": (1, 1)})
    rows = screen(found).split("All 101 rows")[0]
    assert rows.count("too few") == 2
    assert "fails" not in rows
    assert "passes" not in rows


@pytest.mark.parametrize(
    ("answers", "file", "bar", "text"),
    [
        ({"share": {"fair": 0.0, "unfair": 0.0}}, "share-sex-1.json.gz", (0.0, 0.0), "not decided"),
        ({"share": {"fair": 0.25, "unfair": 0.5}}, "share-sex-1.json.gz", (0.25, 0.5), "proved: 25.0% unchanged, 50.0% changed"),
        ({"share": {"fair": 0.25, "unfair": 0.5}}, "other.json.gz", (0.0, 0.0), "not decided"),
        (PARTS, "partition-sex-1.sqlite", (0.125, 0.0), "proved: 12.5% unchanged, 0.0% changed"),
        (PARTS, "other.sqlite", (0.0, 0.0), "not decided"),
    ],
)
def test_what_was_not_decided_is_drawn_as_not_decided(
    answers: dict[str, Any], file: str, bar: tuple[float, float], text: str
) -> None:
    """No bars of 0 % where nothing is known: the whole bar is hatched, and its open part is among what was not examined."""
    found = certified(answers, file=file)
    (feature,) = features(found)
    assert feature.alike == bar
    assert text in screen(found)
    (said,) = [line for line in not_examined(found) if "possible people" in line]
    assert ("all possible people" if sum(bar) == 0 else f"{100 * (1 - sum(bar)):.1f}% of all possible people") in said
    chart = page(found).split('class="alone"')[1].split("</tr>")[0]
    widths = dict(re.findall(r'class="(\w+)" x="[\d.]+" y="0" width="([\d.]+)"', chart))
    assert (float(widths["good"]), float(widths["bad"])) == (200 * bar[0], 200 * bar[1])
    assert widths["hatch"] == "200"


@pytest.mark.parametrize("checked", ["accepted", "not re-checked"])
def test_a_gap_is_ruled_out_by_an_accepted_proof_alone(checked: str) -> None:
    gap = {"largest_gap": {"lower": 0.30001, "upper": 0.39999, "quantity": "probability"}}
    text = screen(certified(gap, checked=checked, file="gap-sex.json.gz"))
    limit = "never above 0.400: proved" if checked == "accepted" else "no limit proved"
    assert f"0.300 for one possible person; {limit}" in text


def test_how_surely_says_what_is_exact_and_what_the_checker_accepted() -> None:
    text = screen(certified(exchanged(5), checked="accepted in part"))
    assert "How sure is this? Changed decisions compare each person with themselves and are counted exactly" in text
    assert "accepted 1 of 1 proof files (in 1 of them some questions are undecided)." in text
    compared = screen(rated({"Black": (58, 100), "White": (80, 100)}))
    assert "Ratios compare whole groups, in which other features differ too, and have 95 % intervals" in compared
    assert "How sure" not in screen(replace(audit(witnesses=0), sections=(), decisions=None))


def test_every_analysis_has_a_line_with_its_standing_also_where_it_did_not_run() -> None:
    found = lines(audit())
    assert [(one.title, one.ended, one.tone) for one in found] == [
        ("Individual fairness", "finished", "bad"), ("Persistent bias", "in part not decided (1 of 3 statements)", "open"),
        ("Consistency of explanations", "finished", "watch"), ("Situation testing", "did not run", "open"),
    ]
    text = screen(audit())
    assert "not run Not run: no causal model was given." in text
    assert "unknown For 100 applicants the time was up." in text
    assert "Situation testing: did not run." in list(not_examined(audit()))
    (others,) = [one for one in not_examined(audit()) if one.startswith("Not asked for: ")]
    assert "Ways to the favourable decision, by group" in others
    assert "What would people refused have to change" in text, "each analysis is explained, also one that was not asked for"


def test_many_headlines_are_cut_the_gravest_first() -> None:
    whole = audit(witnesses=0)
    said = [
        Statement(text=tone.value, brief=f"{tone.value}!", standing=Standing.MEASURED, tone=tone, headline=True) for tone in Tone
    ]
    (line,) = lines(replace(whole, sections=(replace(whole.sections[0], statements=tuple(said)),)))
    assert ([one.short for one in line.headlines], line.more, line.tone) == (["bad!", "watch!"], 2, "bad")


def test_the_starkest_people_are_those_of_the_table_whose_decision_changes() -> None:
    whole = audit(witnesses=0)
    gaps = [(0.9, False, 1), (0.3, True, 7), (0.2, True, 8), (0.8, True, None), (0.15, True, 7), (0.1, True, 9)]
    found = [
        replace(witness(n), before=0.0, after=gap, flips=flips, row=row, changes={"age" if gap < 0.2 else "sex": ("a", "b")})
        for n, (gap, flips, row) in enumerate(gaps)
    ]
    shown = people(replace(whole, sections=(replace(whole.sections[0], witnesses=tuple(found)),)))
    assert [one.witness.row for one in shown] == [7, 9, 8]
    one = [replace(found[1], before=0.0, after=gap, row=row) for gap, row in ((0.9, 7), (0.8, 7), (0.7, 7), (0.6, 8), (0.5, 9))]
    shown = people(replace(whole, sections=(replace(whole.sections[0], witnesses=tuple(one)),)))
    assert [(one.witness.row, one.witness.after) for one in shown] == [(7, 0.9), (8, 0.6), (9, 0.5)]
