"""What a CEC audit is told as: groups, control, unmatched, people to review, words for models that hardly decide, figures."""

import errno
import io
import re
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from encoders.arrays import Array
from tests.builders import one_hot, real, schema_of
from verifair import aside
from verifair.schema.schema import Schema
from verifair.systems.cec import measures, plots, statements, tables
from verifair.systems.cec.audit import ComparedPairs, Explanations, scored
from verifair.systems.cec.explanations import cec_score, normalised
from verifair.systems.cec.matching import Matches, Reference
from verifair.systems.cec.people import People
from verifair.systems.cec.result import EVERYBODY, Audited, CecResult, replace_pairs
from verifair.systems.cec.settings import Ties
from verifair.systems.results.files import json_text
from verifair.systems.results.findings import Standing, Tone

SCHEMA = schema_of(
    real("income", 0, 1, merit=True),
    one_hot("job, if any", "none", "clerk", "smith"),
    one_hot("sex", "f", "m", protected=True),
    positive="logit > 0",
    label="paid",
    outcomes=["refused", "granted"],
)
NAMES = ("sex = f", "sex = m")


def drawn(
    people: int = 40, *, unmatched: int = 0, seed: int = 0, probability: Array | None = None
) -> tuple[People, Matches, Explanations, Explanations]:
    """Random explanations: everybody's counterpart is the next person; the first `unmatched` are too far."""
    rng = np.random.default_rng(seed)
    place = np.arange(people)
    values = np.column_stack([rng.random(people), rng.integers(0, 3, people), place % 2])
    everybody = People(values=values, labels=place // 2 % 2, groups=place % 2, names=NAMES, domain=SCHEMA.domain)
    row = (np.arange(people) ^ 1).astype(np.int64)
    row[:unmatched] = -1
    matches = Matches(
        individual=np.arange(people), other=1 - everybody.groups, row=row, distance=rng.random(people) + 3.0 * (row < 0),
        ties=rng.integers(1, 5, people), tau=2.0,
    )
    measured = people - unmatched
    chance = rng.random(measured) if probability is None else probability
    own, other = (
        Explanations(g=rng.standard_normal((measured, 6)), decision=decision, probability=each)
        for decision, each in (((chance > 0.5).astype(np.int64), chance), (rng.integers(0, 2, measured), rng.random(measured)))
    )
    return everybody, matches, own, other


def audit_of(people: int = 40, *, unmatched: int = 0, seed: int = 0, probability: Array | None = None) -> ComparedPairs:
    everybody, matches, own, other = drawn(people, unmatched=unmatched, seed=seed, probability=probability)
    return scored(everybody, matches, [(slice(None), own, other)], method="exact")


def told(
    audit: ComparedPairs, *, inner: ComparedPairs | None = None, ties: Ties = "first", schema: Schema = SCHEMA,
    rows: pd.Index | None = None,
) -> CecResult:
    names = range(len(audit.people))
    asked = Audited(
        schema=schema, people=audit.people, reference=Reference.of(audit.people, np.array([0])),
        rows=pd.Index([f"p{n}" for n in names]) if rows is None else rows,
        reference_rows=pd.Index([f"q{n}" for n in names]) if rows is None else rows,
        words="all rows", apart=None, dropped=0, protected=("sex",), merit=("income",),
    )
    more = {"certified": None, "model_sha256": "0" * 64, "schema_sha256": SCHEMA.sha256, "seconds": 0.0}
    return CecResult.of(audit, inner, asked, ties=ties, **more)


def test_groups_partition_everybody() -> None:
    audit = audit_of(unmatched=3)
    found = told(audit)
    everybody, *groups = found.groups
    assert [one.name for one in found.groups] == [EVERYBODY, *NAMES]
    assert everybody.people == sum(one.people for one in groups) == 40
    assert everybody.matched == sum(one.matched for one in groups) == 37
    assert everybody.cec is not None
    assert everybody.cec.mean == pytest.approx(audit.value)
    assert everybody.cec.low < everybody.cec.mean < everybody.cec.high
    for k, one in enumerate(groups):
        mine = audit.people.groups[audit.individual] == k
        assert one.cec is not None
        assert one.pfr is not None
        assert one.cec.mean == pytest.approx(audit.score[mine].mean())
        assert one.pfr.mean == pytest.approx((~audit.same_decision[mine]).mean())
        assert one.regimes == pytest.approx({letter: (audit.regime[mine] == letter).mean() for letter in "ABCD"})
        near = audit.matches.distance[audit.people.groups == k]  # of the unmatched, too
        assert one.distance == pytest.approx((np.median(near), np.quantile(near, 0.9), near.max()))


def test_counterparts_of_equal_merit_are_counted() -> None:
    audit = audit_of()
    distance = np.where(np.arange(40) < 10, 0.0, audit.matches.distance)
    twins = told(replace(audit, matches=replace(audit.matches, distance=distance)))
    assert twins.everybody.twins == 0.25
    assert told(audit).everybody.twins == 0


def test_a_group_without_any_counterpart_is_told_without_figures(tmp_path: Path) -> None:
    audit = audit_of()
    row = np.where(audit.people.groups == 0, -1, audit.matches.row)
    kept = np.flatnonzero(audit.people.groups == 1)
    g = {name: getattr(audit, name)[kept] for name in ("g", "g_tilde", "length", "length_tilde")}
    alone = replace(replace_pairs(audit, kept), matches=replace(audit.matches, row=row), **g)
    found = told(alone)
    assert found.groups[1].cec is None
    assert found.groups[1].coverage == 0
    assert found.groups[2].coverage == 1
    table = found.group_table()
    plots.plane(table, plots.groups_drawn(table), 0.5, tmp_path / "plane.png")
    assert (tmp_path / "plane.png").stat().st_size > 0
    assert tables.overview(found).row_count > 0


def test_many_groups_fit_into_80_characters() -> None:
    found = told(audit_of())
    large = found.everybody.model_copy(update={"people": 9_999_999})
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tables.overview(found.model_copy(update={"groups": [large] * 6})))
    shown = console.export_text()
    assert "9,999,999" in shown
    assert "…" not in shown
    assert len(shown.splitlines()[2].split()) == 1 + 5 + 4     # name, figures, regimes


def test_the_control_is_subtracted_person_by_person() -> None:
    across, inner = audit_of(seed=1), audit_of(seed=2)
    inner = replace_pairs(inner, np.arange(5, 40))  # the first five have nobody in their own group
    one = told(across, inner=inner).everybody
    assert one.within == pytest.approx(inner.score.mean())
    assert one.beyond is not None
    assert one.beyond.mean == pytest.approx((across.score[5:] - inner.score).mean())
    assert one.beyond.low < one.beyond.mean < one.beyond.high
    for k, group in enumerate(told(across, inner=inner).groups[1:]):
        mine = inner.people.groups[inner.individual] == k
        assert group.within == pytest.approx(inner.score[mine].mean())
    assert told(across).everybody.beyond is None


def test_a_control_that_scores_the_same_is_called_not_clear() -> None:
    across = audit_of(seed=1)
    line = tables.within_line(told(across, inner=across))
    assert line is not None
    ends = re.search(r"it differs by [+]0[.]000 [(]-(.*) [.][.] [+](.*)[)]", line)
    assert ends is not None
    assert float(ends[1]) == float(ends[2]) > 0.05  # no interval without a width
    assert "not clear" in line
    lower = replace(across, score=np.zeros(40))
    clear = tables.within_line(told(across, inner=lower))
    assert clear is not None
    assert "not clear" not in clear
    higher = tables.within_line(told(across, inner=replace(across, score=np.ones(40))))
    assert higher is not None
    assert "not clear" not in higher
    assert higher.endswith(" The groups add nothing: comparable people of the same group differ more.")


def test_the_headline_is_what_the_group_adds_with_its_interval_and_warns_only_where_that_is_clear() -> None:
    across = audit_of(seed=1)
    for inner, tone, adds in (
        (across, Tone.PLAIN, "it is not clear whether the group adds anything"),
        (replace(across, score=np.zeros(40)), Tone.WATCH, "the group adds to the difference"),
        (replace(across, score=np.ones(40)), Tone.PLAIN, "the group adds nothing to the difference"),
    ):
        first, *others = statements._measured("sex", told(across, inner=inner))
        assert (first.headline, first.tone) == (True, tone)
        said = r"sex: reasons of comparable people differ by \d[.]\d+ (more|less) across groups .* [(][+-].* to [+-].*, 95 %"
        assert re.match(said, first.text)
        assert re.search(r"95 %, 40 pairs[)]: (.*)[.]$", first.brief)[1] == adds  # type: ignore[index]
        assert "of 40 pairs from different groups" in first.text.lower()
        assert not any(one.headline or one.tone is Tone.WATCH for one in others)
    (alone,) = statements._measured("sex", told(across))
    assert (alone.headline, alone.tone) == (True, Tone.PLAIN)
    assert "it is not known whether the group adds to the difference of reasons" in alone.text


def test_pairs_that_are_not_proved_are_a_statement_of_their_own_and_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "standing", lambda _: Standing.PROVED)
    nothing: Any = SimpleNamespace(network=None, schema=None, keep=lambda *_: "proof")
    near = "some people near them are decided otherwise, or for other reasons"
    expected = {
        181: f"Not proved for 181 of 452 (40.0%) pairs by sex: 81 ({near}), 100 (time was up).",
        1: f"Not proved for 1 of 452 (0.2%) pairs by sex: {near}.",
    }
    for unknown, tone in ({"time": 100, "leaves A": 81}, Tone.PLAIN), ({"leaves A": 1}, Tone.PLAIN), ({}, Tone.GOOD):
        found: Any = SimpleNamespace(
            certified=452 - sum(unknown.values()), regime_A=452, delta=1.0, unknown=unknown,
            found=SimpleNamespace(certificate=None),
        )
        _, (proved, *others) = statements._certified(found, nothing, "sex", nothing)
        assert (proved.standing, proved.tone) == (Standing.PROVED, tone)
        texts = [expected[sum(unknown.values())]] if unknown else []
        assert [(one.text, one.standing) for one in others] == [(text, Standing.UNKNOWN) for text in texts]


def test_the_threshold_is_drawn_otherwise_than_the_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_as: dict[str, Any] = {}
    monkeypatch.setattr(
        plots, "_legend", lambda axis: drawn_as.update((name, one.get_linestyle()) for one, name in zip(
            *axis.get_legend_handles_labels(), strict=True)))
    found = told(audit_of(seed=1), inner=audit_of(seed=2))
    plots.scores(found.pairs, NAMES, 0.5, tmp_path / "scores.png")
    assert drawn_as["threshold 0.5"] == "--"
    assert drawn_as["everybody, within the own group (control)"] == "solid"


def test_the_unmatched_are_named_with_the_reason_farthest_first() -> None:
    audit = audit_of(unmatched=4)
    table = told(audit).unmatched
    assert sorted(table["row"]) == ["p0", "p1", "p2", "p3"]
    assert (np.diff(table["distance"]) <= 0).all()
    first = table.iloc[0]
    assert first["reason"] == f"the nearest is {first['distance']:.4g} away, tau = 2"
    lines = tables.unmatched_lines(told(audit))
    assert lines[0].startswith("4 pairs are unmatched")
    assert not tables.unmatched_lines(told(audit_of()))


def test_pairs_hold_everybody_and_what_was_measured_of_the_matched() -> None:
    audit = audit_of(unmatched=2)
    table = told(audit).pairs
    assert table["row"].tolist() == [f"p{n}" for n in range(40)]
    assert table["counterpart"].tolist() == [None, None, *(f"q{n ^ 1}" for n in range(2, 40))]
    assert table["group"].tolist() == [NAMES[n % 2] for n in range(40)]
    assert table["other"].tolist() == [NAMES[1 - n % 2] for n in range(40)]
    assert table["score"].isna().tolist() == [True] * 2 + [False] * 38
    assert table["score"].dropna().to_numpy() == pytest.approx(audit.score)
    known = SCHEMA.class_names
    assert table["decision"].dropna().tolist() == [known[one] for one in audit.decision]
    assert table["label"].tolist() == [known[one] for one in audit.people.labels]
    inner = replace_pairs(audit_of(seed=2), np.arange(5, 40))
    inside = told(audit, inner=inner).pairs["score within"]
    assert inside[:5].isna().all()
    assert inside[5:].to_numpy() == pytest.approx(inner.score)


def test_what_is_found_of_everybody_copies_no_array() -> None:
    audit = audit_of()
    everybody, half = replace_pairs(audit, np.arange(40)), replace_pairs(audit, np.arange(0, 40, 2))
    assert everybody.score is audit.score
    assert not len(everybody.g) + len(half.g) + len(half.length)
    assert half.score.tolist() == audit.score[::2].tolist()
    assert {audit.most.itemsize, audit.decision.itemsize, audit.decision_tilde.itemsize} == {2}
    assert told(replace(audit, matches=replace(audit.matches, own=None))).pairs["counterpart"].tolist()[:2] == ["q1", "q0"]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's files")
@pytest.mark.parametrize("full", [False, True])
def test_attributions_of_many_pairs_lie_on_the_disk_where_it_has_room(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*args: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    people = 2000
    expected = audit_of(people)
    drawn_, size = drawn(people), 2 * people * 3 * 8
    if full:
        monkeypatch.setattr(aside, "posix_fallocate", none_left)
    monkeypatch.setattr(aside, "ASIDE", size // 2)
    parts = [(np.arange(start, people, 4), *(part_of(side, start) for side in drawn_[2:])) for start in range(4)]
    tracemalloc.start()
    found = scored(*drawn_[:2], parts, method="exact")
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (held > size + 6 * found.score.nbytes) == full
    for name in ("g", "g_tilde", "score", "length"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    pd.testing.assert_frame_equal(told(found).attributions(), told(expected).attributions())


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's files")
def test_the_table_of_pairs_lies_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are called by numbers, as a CSV's are: a pair has nine of eight bytes there and six words."""
    people, inner, unmatched = (audit_of(20_000, seed=seed, unmatched=few) for seed, few in ((0, 0), (1, 0), (2, 5)))
    numbered = pd.RangeIndex(20_000)
    expected = [told(one, inner=inner, rows=numbered) for one in (people, unmatched)]
    monkeypatch.setattr(aside, "ASIDE", 1 << 14)
    tracemalloc.start()
    found = [told(people, inner=inner, rows=numbered)]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 8 * 2 * 20_000
    found.append(told(unmatched, inner=inner, rows=numbered))
    for one, other in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(one.pairs, other.pairs)
        assert json_text(one) == json_text(other)


def part_of(side: Explanations, start: int) -> Explanations:
    """Every fourth pair of it."""
    return Explanations(g=side.g[start::4], decision=side.decision[start::4], probability=side.probability[start::4])


def test_words_of_all_pairs_take_a_byte_each() -> None:
    audit = audit_of(people=4000, unmatched=3)
    table = told(audit).pairs
    words = ["group", "other", "label", "regime", "decision", "its decision"]
    assert (table[words].memory_usage(index=False) < 2 * len(table)).all()
    assert [*table["group"].iloc[[0, 1]], *table["decision"].iloc[[0, 4]].isna()] == [*NAMES, True, False]
    alike = told(audit, schema=SCHEMA.changed(outcomes=("done", "done"))).pairs
    assert set(alike["decision"].dropna()) == {"done"}


def test_errors_are_the_same_however_many_people_are_sorted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of many people sorting takes less than the pairs do."""
    found = told(audit_of(people=4000), inner=audit_of(people=4000, seed=1)).everybody
    monkeypatch.setattr(measures, "PEOPLE", 300)
    assert told(audit_of(people=4000), inner=audit_of(people=4000, seed=1)).everybody == found
    audit = audit_of(people=20_000)
    tracemalloc.start()
    measures.interval(audit, audit.score)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 13 * audit.score.nbytes


def test_attributions_by_feature_explain_the_score() -> None:
    """Of features with one column: the difference of the normalised attributions is what the score is made of."""
    audit = audit_of()
    table = told(audit).attributions()
    parts = told(audit).features.set_index("feature")["part"]
    assert ((table["income"] - table["its income"]) ** 2 / 4).mean() == pytest.approx(parts["income"])
    assert parts.sum() == pytest.approx((audit.score**2).mean())
    *_, one, its = drawn()
    own, other = normalised(one.g), normalised(its.g)
    assert table["income"].to_numpy() == pytest.approx(own[:, 0])
    assert table["job, if any"].to_numpy() == pytest.approx(own[:, 1:4].sum(axis=1))
    assert table["its sex"].to_numpy() == pytest.approx(other[:, 4:].sum(axis=1))
    assert table["pair's score"].to_numpy() == pytest.approx(cec_score(one.g, its.g))


def test_people_to_review_come_in_the_schemas_words() -> None:
    audit = audit_of()
    table = told(audit).review.head(5)
    alike = np.flatnonzero(audit.same_decision)
    worst = alike[np.argsort(-audit.score[alike])][:5]
    assert table["row"].tolist() == [f"p{n}" for n in worst]
    assert table["counterpart"].tolist() == [f"q{n ^ 1}" for n in worst]
    assert set(table["decision"]) <= {"refused", "granted"}
    own, other = (normalised(side.g) for side in drawn()[2:])
    places = {"income": slice(0, 1), "job, if any": slice(1, 4), "sex": slice(4, 6)}
    for n, reasons in zip(worst, table["reasons"], strict=True):
        part = {name: ((own[n, place] - other[n, place]) ** 2).sum() for name, place in places.items()}
        two = sorted(part, key=lambda name: -part[name])[:2]
        assert reasons == "; ".join(f"{f} {own[n, places[f]].sum():+.2f} / {other[n, places[f]].sum():+.2f}" for f in two)


@pytest.mark.parametrize(("probability", "words"), [
    (np.full(40, 0.7), "hardly varies"),
    (np.where(np.arange(40) == 0, 0.05, 0.9), "97.5% of the people alike"),
    (np.where(np.arange(40) // 4 % 2, 0.1, 0.9), "near the 0.5 of guessing"),
    (np.where(np.arange(40) // 2 % 2, 0.9, 0.1), None),
])
def test_a_model_that_hardly_decides_is_called_so(probability: Array, words: str | None) -> None:
    found = told(audit_of(probability=probability))
    assert (found.model_decides.hardly_decides is None) == (words is None)
    line = tables.model_line(found)
    assert ("Caution" in line) == (words is not None)
    assert words is None or words in line


def test_a_model_without_attributions_is_called_so(tmp_path: Path) -> None:
    everybody, matches, *sides = drawn()
    own, other = (replace(side, g=0 * side.g) for side in sides)
    silent = scored(everybody, matches, [(slice(None), own, other)], method="exact")
    found = told(silent)
    assert "no attribution above 1e-6" in str(found.model_decides.hardly_decides)
    assert found.features["share"].tolist() == [0, 0, 0]
    plots.contributions(found.features, tmp_path / "features.png")
    assert (tmp_path / "features.png").stat().st_size > 0


def test_scores_that_grow_with_the_distance_are_warned_of() -> None:
    audit = audit_of()
    near = replace(audit, matches=replace(audit.matches, distance=audit.score.copy()))
    assert "--tau leaves out" in str(tables.distance_line(told(near)))
    assert "nearer counterparts would not" in str(
        tables.distance_line(told(replace(audit, matches=replace(audit.matches, distance=-audit.score))))
    )
    flat = replace(audit, matches=replace(audit.matches, distance=np.zeros(40)))
    assert tables.distance_line(told(flat)) is None


def test_ties_are_told_with_their_rule() -> None:
    audit = audit_of()
    alone = replace(audit, matches=replace(audit.matches, ties=np.ones(40, dtype=np.int64)))
    assert tables.ties_line(told(alone)) == "Each person has exactly one nearest counterpart in every other group."
    line = tables.ties_line(told(audit, ties="random"))
    assert "--seed (--ties random)" in line
    assert f"{np.median(audit.matches.ties):g} or more" in line
    assert "40 rows serve as counterparts" in line


def test_many_groups_keep_the_largest_and_their_colours() -> None:
    sizes = {EVERYBODY: 99, **{f"g{n}": 10 + n for n in range(12)}}
    table = pd.DataFrame({"group": list(sizes), "people": list(sizes.values())})
    assert plots.groups_drawn(table) == [f"g{n}" for n in range(12 - plots.GROUPS, 12)]


def test_one_feature_that_is_not_shown_is_one() -> None:
    names = [f"f{k}" for k in range(tables.MAX_FEATURES + 1)]
    features = pd.DataFrame({"feature": names, "part": 0.1, "share": 1 / len(names)})
    found: Any = SimpleNamespace(features=features, described=schema_of(*(real(name, 0, 1) for name in names)))
    assert list(tables.features_grid(found).columns[0].cells)[-1] == "1 more feature"
