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
