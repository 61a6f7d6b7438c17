"""What sections say of people, against the network itself; and how sections, words and pictures are made."""

import json
import re
from itertools import combinations
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from encoders.network import Network
from encoders.onnx.reader import read_onnx
from tests.builders import categorical, integer, network_of, schema_of
from verifair import datasets
from verifair.checker.certificates.extent import Extent
from verifair.checker.certificates.statement import Signs
from verifair.checker.report import CheckReport, Progress
from verifair.datasets.stream import Stream
from verifair.engine.queries import IndividualFairness, PersistentBias
from verifair.engine.questions import margin
from verifair.engine.store import PROVED, REFUTED, Verdicts
from verifair.engine.verdict import Witness
from verifair.figures import figure
from verifair.interrupts import OutOfTime
from verifair.schema.schema import Feature, Schema
from verifair.systems.hyfair.certify import statements as certify
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.scores import RANKS
from verifair.systems.pba.settings import PbaSettings
from verifair.systems.pba.statements import MOST_PAIRS, _biased, _by_pair, _Proved, section
from verifair.systems.results.files import plain
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone, WitnessRow
from verifair.systems.results.pictures import LARGEST, picture
from verifair.systems.results.words import value_words, witness_row
from verifair.systems.subject import Subject
from verifair.systems.work import Work, called, standing


def test_who_is_favoured_is_what_the_network_says_of_each_person() -> None:
    """Proved for everybody near a person, so of the person too: the probability with the higher value is higher, or lower."""
    german = datasets.german()
    network, schema, frame = read_onnx(datasets.network_path("german")), german.schema, german.frame.head(60)
    found = verify_rows(PersistentBias(model=network, schema=schema, protected="sex", delta=[1]), frame)
    raw, v = schema.raw(frame), schema.index("sex")
    probability = []
    for value in (0, 1):
        copy = raw.copy()
        copy[:, v] = value
        probability.append(expit(network.forward(schema.encode(copy)) @ margin(network, 1, 0)))
    seen = 0
    for row, verdicts in found.groupby("row"):
        ranked = verdicts.assign(rank=verdicts["status"].map(RANKS))
        answers = ranked.pivot(index=["delta", "group", "to", "label"], columns="goal", values="rank")
        answers = answers.assign(people=1).reset_index()
        (line,) = _by_pair(answers, schema.outcome).to_dict("records")
        assert line["people"] == line["raises"] + line["lowers"] + line["neither"] + line["unknown"] == 1
        gap = probability[1][row] - probability[0][row]
        seen += line["raises"] + line["lowers"]
        assert not line["raises"] or gap > 0
        assert not line["lowers"] or gap < 0
    assert seen > 20


def test_of_many_pairs_of_values_those_are_told_by_which_most_are_biased(tmp_path: Path) -> None:
    """The logit rises with age: everybody who is decided as their label says is biased by each pair of ages."""
    network = network_of(([[1.0, 1.0]], [-6.5]))
    schema = schema_of(integer("age", 0, 6, protected=True), integer("debt", 0, 6, unit=1.0), positive="logit > 0", label="good")
    rows = pd.DataFrame([{"age": age, "debt": debt, "good": int(age + debt > 6)} for age in range(7) for debt in range(7)])
    work = Work(started=0.0, deadline=1e9, seed=0, folder=tmp_path, shown="r.files", options="--demo x")
    subject = _subject(schema, network, rows)
    statements = section(PbaSettings(protected=("age",), delta=(0,), robustness=False), subject, work).statements
    *told, others = [one for one in statements if "instead of" in one.text or "further" in one.text]
    raised = {pair: sum(rows.age.isin(pair) & ((6.5 - rows.debt > max(pair)) | (6.5 - rows.debt < min(pair))))
              for pair in combinations(range(7), 2)}
    said = [re.search(r"age (\d) instead of (\d) raises .*? for (\d+) of", one.text) for one in told]
    found = {(int(one[2]), int(one[1])): int(one[3]) for one in said if one is not None}
    assert len(found) == MOST_PAIRS < len(raised)
    assert found == {pair: raised[pair] for pair in found}
    assert sorted(found.values()) == sorted(raised.values())[-MOST_PAIRS:]
    assert others.text.startswith("11 further pairs of values of age, by none of which more people are biased: ")
    assert "in 11 of them, and for fewer in 0." in others.text
    assert sum(one.headline for one in told) == 1


def test_of_the_pairs_that_are_counted_those_that_favour_both_ways_are_biased_too() -> None:
    """Of each pair one person of two gains and the other one loses: a sentence of good tone said that nobody did."""
    network = network_of(([[1.0] * 7], [0.0]))
    race = Feature(name="race", kind="one-hot", categories=tuple("abcdef"), protected=True)
    schema = schema_of(race, integer("debt", 0, 6, unit=1.0), positive="logit > 0", label="good")
    query = PersistentBias(model=network, schema=schema, protected="race", delta=[0])
    for goal, said in ((PROVED, "in 0 of them, and for fewer in 0; in 5 for as many."), (REFUTED, "and for fewer in 0.")):
        found = pd.DataFrame([
            {"delta": 0, "group": one, "to": other, "label": 1, "observed": goal, "flipped": REFUTED, "robust": None, "people": 1}
            for pair in combinations(range(6), 2) for one, other in (pair, pair[::-1])
        ])
        verdicts = Mock(spec=Verdicts, **{"answers.return_value": found})
        people = _subject(schema, network, pd.DataFrame({"race": [], "debt": [], "good": []}))
        *told, rest = _biased(people, _Proved(query=query, verdicts=verdicts, evidence=()), "", "all rows")
        assert len(told) == MOST_PAIRS
        assert rest.text.endswith(said)
        assert rest.text.startswith("5 further pairs of values of race, ")
        assert "the value that the schema names later raises" in rest.text
        assert rest.tone is (Tone.WATCH if goal == PROVED else Tone.GOOD)
        assert ("most people are biased by this one" in told[0].brief) == (goal == PROVED)


def test_people_of_another_class_are_told_of_too(tmp_path: Path) -> None:
    """Sex moves the middle class alone. The favourable one is not moved, and its sentence, of good tone, was all that was said."""
    network = network_of(([[0.0, -2.0], [0.5, 0.0], [0.0, 1.0]], [5.0, 1.0, -4.0]))
    schema = schema_of(
        integer("sex", 0, 1, protected=True), integer("debt", 0, 6, unit=1.0), positive="class = 0", label="good",
    )
    rows = pd.DataFrame([{"sex": sex, "debt": debt} for sex in (0, 1) for debt in range(7)])
    rows["good"] = network.forward(rows.to_numpy(dtype=float)).argmax(axis=1)
    work = Work(started=0.0, deadline=1e9, seed=0, folder=tmp_path, shown="r.files", options="--demo x")
    found = section(PbaSettings(protected=("sex",), delta=(0,), robustness=False), _subject(schema, network, rows), work)
    none, others = found.statements
    assert none.text.startswith("For none of ")
    labels = rows["good"].to_numpy().reshape(2, 7)
    either = labels[0, labels[0] == labels[1]]          # of those predicted correctly with either value
    middle, outside = 2 * (either == 1).sum(), 2 * (either != 0).sum()
    assert f"for {middle} of {outside} " in others.text
    assert (none.tone, others.tone, others.standing, others.headline) == (Tone.GOOD, Tone.WATCH, Standing.PROVED, True)


def _subject(schema: Schema, network: Network, rows: pd.DataFrame) -> Subject:
    return Subject(network=network, schema=schema, data=Stream.of(rows), model=Path("model.onnx"))


@pytest.mark.parametrize(
    ("box", "known"), [({}, True), ({"age": (0, 0)}, True), ({"age": (1, 1)}, False), ({"group": (0, 1)}, False)]
)
def test_a_person_refutes_a_question_only_where_both_lie_in_its_box(box: dict[str, tuple[int, int]], known: bool) -> None:
    """Decided otherwise as c alone: that says nothing about a and b."""
    network = network_of(([[1.0, 0.0]], [-1.5]))
    schema = schema_of(
        categorical("group", "a", "b", "c", protected=True),
        integer("age", 0, 1),
        positive="logit > 0",
    )
    frame = pd.DataFrame({"group": ["a"], "age": [0]}, index=["Kim"])
    found = certify._SectionParts(answer=[{}])
    query = IndividualFairness(model=network, schema=schema, protected=["group"], box=box)
    certify._exchange(_subject(schema, network, frame), query, found)
    counts = {"people": 1, "asked": 1, "decided_otherwise": 1, "to_favourable": 1}
    groups = {"a": {"people": 1, "decided_otherwise": 1, "to_favourable": 1}}
    assert found.answer[0]["exchanged"] == counts | {"groups": groups}, "people, not their two exchanges"
    said = '1 would get "positive" (1 of 1 with group a), 0 would get "negative".'
    assert found.statements[0].text.endswith(said)
    assert {one.row for one in found.witnesses} == {"Kim"}, "as the table calls them"
    assert found.witnesses[0].sentence.startswith("The person of row Kim")
    assert (found.counterexample is not None) is known


@pytest.mark.parametrize("signs", ["deployed", "strict"])
def test_a_person_at_a_tie_refutes_nothing_by_the_strict_rule(signs: Signs) -> None:
    """g(a) = 0, g(b) = 1: decided otherwise as deployed, no flip by the strict rule, whose statements name it."""
    network = network_of(([[1.0]], [0.0]))
    schema = schema_of(categorical("group", "a", "b", protected=True), positive="logit > 0")
    found = certify._SectionParts(answer=[{}])
    query = IndividualFairness(model=network, schema=schema, protected=["group"], signs=signs)
    rows = pd.DataFrame({"group": ["a"]})
    certify._exchange(_subject(schema, network, rows), query, found)
    assert found.answer[0]["exchanged"]["decided_otherwise"] == 1
    assert (found.counterexample is not None) is (signs == "deployed")
    assert ("(positive means logit > 0)" in found.statements[0].text) is (signs == "strict")
    assert ("ties count on neither side" in certify._claim(query)) is (signs == "strict")


def whole() -> Section:
    row = WitnessRow(
        analysis="certify", person={"age": "34 years"}, changes={"sex": ("Female", "Male")}, before=0.25, after=0.75, flips=True,
        float32_agrees=None, sentence="The same person.",
    )
    table = pd.DataFrame({"group": ["Female", "Male"], "rate": [0.5, np.nan], "people": [3, 4], "clear": [True, False]})
    proof = Evidence(file="r.files/a.json.gz", sha256="0" * 64, proves="p", command="verifair check", checked="accepted")
    return Section(
        key="certify", title="T", question="Q", method="M", source="S", semantics="s",
        statements=(Statement(text="t", standing=Standing.PROVED, tone=Tone.GOOD, headline=True),), witnesses=(row,),
        pictures=(Picture(title="p", alt="a", svg="<svg/>"),), tables=(DataTable(title="d", rows=table),), evidence=(proof,),
        settings={"delta": (1.0, 2.0)}, answer={"upper": float("inf"), "n": np.int64(3)}, seconds=1.5,
    )


def test_a_section_comes_back_from_its_file_as_it_was() -> None:
    section = whole()
    text = json.dumps(plain(section.model_dump()), allow_nan=False)
    back = Section.model_validate(json.loads(text))
    assert json.dumps(plain(back.model_dump()), allow_nan=False) == text
    assert (back.statements, back.witnesses, back.pictures, back.evidence) == (
        section.statements, section.witnesses, section.pictures, section.evidence,
    )
    assert back.answer == {"upper": None, "n": 3}
    pd.testing.assert_frame_equal(back.tables[0].frame, section.tables[0].frame)
    for damaged in ({}, {**plain(section.model_dump()), "more": 1}, {**plain(section.model_dump()), "statements": [{"text": 1}]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Section.model_validate(damaged)


def test_what_json_has_not_becomes_what_it_has() -> None:
    assert plain({"a": [np.float64("nan"), float("-inf"), np.bool_(True), pd.NA, Standing.PROVED, Path("x")]}) == {
        "a": [None, None, True, None, "proved", "x"]
    }


def test_values_and_counterexamples_are_told_in_the_schemas_words() -> None:
    schema = datasets.german().schema
    assert value_words(schema, "credit-amount", 3500) == "3,500 DM"
    assert [value_words(schema, "duration", n) for n in (1, 24)] == ["1 month", "24 months"]
    assert value_words(schema, "sex", "Male") == "Male"
    x = schema.decode(schema.raw(datasets.german().frame.head(1))[0])
    other = {**x, "sex": "Female" if x["sex"] == "Male" else "Male"}
    row = witness_row("certify", schema, Witness(
        x=x, x_prime=other, outputs=(-0.8, 0.6), decisions=("bad credit", "good credit"),
        probabilities=(0.31, 0.64), values=None, margin=1.4,
        float32_agrees=True, missing={},
    ))
    assert row.sentence == (
        "A person (status < 0 DM, duration 6 months, credit-history critical, purpose television, …), "
        f'sex {x["sex"]}: decision "bad credit", probability of "good credit" 0.31. '
        f'The same person, sex {other["sex"]}: decision "good credit", 0.64.'
    )
    assert row.flips
    assert row.changes == {"sex": (x["sex"], other["sex"])}
    assert "sex" not in row.person
    near = witness_row("certify", schema, Witness(
        x=x, x_prime=other, outputs=(0.001, 0.002), decisions=("good credit", "good credit"),
        probabilities=(0.50025, 0.5005), values=None, margin=0.001,
        float32_agrees=None, missing={},
    ))
    assert 'probability of "good credit" 0.50025.' in near.sentence
    assert near.sentence.endswith("the same decision, 0.5005.")


def test_files_of_two_features_never_share_a_name() -> None:
    assert called("sex") == "sex"
    assert len({called("a b"), called("a-b"), called("a/b"), called("../b")}) == 4
    assert all(re.fullmatch(r"[\w.-]+", called(name)) and "/" not in called(name) for name in ("../../etc", "a/b", "…"))


def work(folder: Path, seconds: float = 60.0) -> Work:
    import time

    return Work(
        deadline=time.monotonic() + seconds, seed=0, jobs=1, folder=folder, shown="r.files", options="--demo german",
        resume=False, tell=lambda what, done, total: None,
    )


NETWORK, SCHEMA = network_of(([[1.0]], [0.0])), schema_of(integer("age", 0, 9))


class Saved:
    """A certificate in name."""

    def save(self, path: str | Path) -> None:
        Path(path).write_text("proof")


def report(*rejections: object, undecided: int = 0) -> CheckReport:
    extent = Extent.of({}, proved=1, undecided=undecided)
    return CheckReport(proofs=1, leaves=1, rejections=rejections, seconds=0.0, extent=extent, unit="parts")  # type: ignore[arg-type]


def test_only_what_the_checker_accepted_in_this_run_is_called_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(answer: CheckReport, seconds: float = 60.0) -> Evidence:
        def check(file: Path, *, progress: Progress, **about: object) -> CheckReport:
            assert about == {"model": NETWORK, "schema": SCHEMA}
            progress(1, 2)
            return answer

        monkeypatch.setattr("verifair.checker.check.check", check)
        return work(tmp_path, seconds).keep("a.json", Saved(), "p", NETWORK, SCHEMA)

    accepted = kept(report())
    assert (accepted.checked, standing(accepted)) == ("accepted", Standing.PROVED)
    assert accepted.command == "verifair check r.files/a.json --demo german"
    part = kept(report(undecided=2))
    assert (part.checked, part.missing) == ("accepted in part", "1 of 3 parts are decided; 2 undecided")
    assert part.command == "verifair check r.files/a.json --demo german --partial"
    for rejected in (kept(report("no", undecided=2)), kept(report("no"))):
        assert (rejected.checked, standing(rejected)) == ("rejected", Standing.CLAIMED)
    late = kept(report(), seconds=-1)
    assert (late.checked, standing(late)) == ("not re-checked", Standing.CLAIMED)
    with pytest.raises(OutOfTime, match="1 of 2"):
        work(tmp_path, seconds=-1).stopping("searches")(1, 2)


def test_pictures_are_small_svg_elements_whose_names_are_their_own() -> None:
    import matplotlib.pyplot as plt

    def draw(points: int, path: Path) -> None:
        figure, axis = plt.subplots()
        axis.scatter(*np.random.default_rng(0).random((2, points)), s=np.linspace(1, 9, points), clip_on=True)
        figure.savefig(path)
        plt.close(figure)

    one, same, other = (picture(name, "t", "a", lambda path: draw(5, path)).svg for name in ("one", "one", "other"))
    assert one == same
    assert one.startswith("<svg")
    names = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, other)]
    assert names[0]
    assert not names[0] & names[1]
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', one))
    assert used <= names[0]
    assert len(one) < LARGEST
    large = picture("large", "t", "a", lambda path: draw(4000, path)).svg  # a mark each: more than a page should carry
    assert large.startswith("<svg")
    assert "data:image/png;base64," in large


def test_a_name_that_matplotlib_takes_for_a_formula_is_drawn_as_it_is() -> None:
    def draw(path: Path) -> None:
        with figure(path, (3, 2)) as drawn:
            drawn.suptitle(r"pay in $\frac$")

    assert "<svg" in picture("one", "t", "a", draw).svg
