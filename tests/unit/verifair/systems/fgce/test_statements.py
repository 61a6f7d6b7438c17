"""What a page says of FGCE: what is re-checked, what costs are, and whose picture comes first."""

from typing import Any

import pytest

import verifair as vf
from verifair import datasets
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.results.findings import Section, Standing


def section(sensitive: list[str], **settings: Any) -> Section:
    german = datasets.load("german")
    found = vf.audit(
        vf.read(datasets.network_path("german")), german.frame, schema=german.schema, target=None, sensitive=sensitive,
        analyses={"fgce": settings}, timeout=120, what_if=False,
    )
    (one,) = found.result.sections
    return one


def choices(found: Section) -> list[tuple[Standing, bool]]:
    texts = [(one.standing, one.text) for one in found.statements if "no other choice" in one.text]
    return [(standing, text.endswith("on these rows, by the search's own bound, not re-checked.")) for standing, text in texts]


def test_an_optimum_is_proved_by_a_certificate_that_the_checker_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = section(["sex"], rows=200)
    (proof,) = found.evidence
    assert (proof.file, proof.checked) == ("audit.files/optimum-sex.json.gz", "accepted")
    assert choices(found) == [(Standing.PROVED, False)] * 2
    monkeypatch.setattr(GroupCounterfactuals, "prove_optima", lambda self, seconds: "there is none")
    found = section(["sex"], rows=200)
    assert not found.evidence
    assert choices(found) == [(Standing.CLAIMED, True)] * 2


def test_where_the_examples_are_too_few_the_page_says_how_many_they_serve_and_how_many_would_do() -> None:
    """The analysis did not run, which left the reader with nothing but a remark on weak components."""
    found = section(["sex"], rows=200, k=3)
    served = [one for one in found.statements if "examples serve" in one.text]
    assert [one.standing for one in served] == [Standing.PROVED, Standing.CLAIMED]
    assert served[0].text.startswith("sex = Female: 3 examples serve 17 of 17 (100.0%) of them, at a cost of at most ")
    assert served[1].text.startswith("sex = Male: 3 examples serve 17 of 19 (89.5%) of them, at a cost of at most ")
    assert served[1].text.endswith(
        ". The question was how to serve 19 with at most 3 examples, which is impossible; 5 would serve everybody. No other choice "
        "of at most 3 serves more people, or as many at a lower cost, by the search's own bound, not re-checked."
    )
    (proof,) = found.evidence
    assert (proof.checked, proof.proves) == ("accepted", "No other choice of at most 3 examples is better, for sex = Female.")
    assert not any(one.standing is Standing.SKIPPED for one in found.statements)
    (answer,) = found.answer["by_feature"]
    assert [group["short"] for group in answer["groups"]] == [None, {"asked": 19, "needed": 5}]


def test_the_picture_is_of_the_headlines_feature_and_says_what_its_costs_are_to() -> None:
    found = section(["sex", "age"])
    assert [one.brief.split(":")[0] for one in found.statements if one.headline] == ["age", "age"]
    assert [one.title.rpartition(" ")[2] for one in found.pictures] == ["age", "sex"]
    for one in found.pictures:
        assert one.title.startswith("How refused people differ from the examples assigned to them")
        assert "the cost of becoming that example" in one.alt
    said = " ".join(one.text + one.brief for one in found.statements) + found.method
    assert "1 is a change of one number over its whole range" in said
    assert "1.41 where there are more" in said
