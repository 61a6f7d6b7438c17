"""verifair cec as a user meets it: screens, files, plots, JSON, errors and Ctrl-C."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from encoders.onnx.reader import read_onnx
from tests.command_line import Run, answered, flat, is_drawn, verifair
from verifair import ExplanationConsistency, Schema, datasets
from verifair.datasets import table
from verifair.systems import groups
from verifair.systems.cec import attributions, certified, measures

DEMO = ("cec", "--demo", "german", "--protected", "sex")
FIGURES = ("scores.png", "thresholds.png", "features.png", "distances.png", "pfr-cec.png")


Refused = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """One run with everything written, and some unmatched: screen, JSON, folder."""
    folder = tmp_path_factory.mktemp("cec")
    done = answered(*DEMO, "--tau", 2, "--out", folder / "out", "--json", folder / "a.json")
    return done.stdout, json.loads((folder / "a.json").read_text()), folder / "out"


def test_the_documented_example_answers() -> None:
    done = answered(*DEMO)
    words = ("measured, not proved", "sex = Female", "sex = Male", "hidden bias", "What makes reasons differ", "To review first")
    for expected in words:
        assert expected in flat(done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if line[:1] in "┏┃┡│├└"), "tables fit a terminal"
    assert "unmatched" not in done.stdout, "without tau everybody has a counterpart"


def test_json_agrees_with_the_estimator(run: tuple[str, dict[str, Any], Path]) -> None:
    german = datasets.load("german")
    network = read_onnx(datasets.network_path("german"))
    model = ExplanationConsistency(network, german.schema, tau=2.0).fit(german.frame, sensitive_features="sex")
    found = model.audit(german.frame, sensitive_features="sex")
    _, answer, _ = run
    assert answer["cec"]["mean"] == pytest.approx(found.value)
    assert answer["pfr"]["mean"] == pytest.approx((~found.same_decision).mean())
    control = model.control(found)
    more = pd.Series(found.score, index=found.individual) - pd.Series(control.score, index=control.individual)
    assert answer["control"]["across_more_by"]["mean"] == pytest.approx(more.mean())
    scores = [pair["score"] for pair in answer["pairs"] if pair["score"] is not None]
    assert scores == pytest.approx(found.score.tolist())


def test_audited_rows_are_the_same_people_in_the_table(tmp_path: Path) -> None:
    """Of two equal rows the second is audited, and the first serves as counterpart: these are two people, as they are by number."""
    german = datasets.load("german")
    rows = german.frame.iloc[:60]
    rows = pd.concat([rows.assign(part="old"), rows.assign(part="new")], ignore_index=True)
    rows.to_csv(tmp_path / "twice.csv", index=False)
    german.schema.save(tmp_path / "german.toml")
    files = (datasets.network_path("german"), "--schema", tmp_path / "german.toml", "--data", tmp_path / "twice.csv")
    answered("cec", *files, "--protected", "sex", "--audit", "part=new", "--json", tmp_path / "a.json")
    answer = json.loads((tmp_path / "a.json").read_text())
    model = ExplanationConsistency(read_onnx(datasets.network_path("german")), german.schema)
    alone = model.fit(rows, sensitive_features="sex").audit(rows, sensitive_features="sex")
    expected = measures.interval(measures.replace_pairs(alone, np.arange(60, 120)), alone.score[60:])
    assert answer["cec"] == pytest.approx(expected.model_dump(), abs=1e-9)


def test_json_is_consistent_with_itself(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, _ = run
    pairs = pd.DataFrame(answer["pairs"])
    matched = pairs[pairs["score"].notna()]
    assert answer["proved"] is False
    assert answer["trust"]["proved"] == []
    assert answer["cec"]["low"] <= answer["cec"]["mean"] <= answer["cec"]["high"]
    assert answer["cec"]["mean"] == pytest.approx(matched["score"].mean())
    assert sum(answer["regimes"].values()) == pytest.approx(1)
    assert sum(part["part"] for part in answer["features"]) == pytest.approx((matched["score"] ** 2).mean())
    assert len(answer["unmatched"]) == len(pairs) - len(matched) > 0
    assert all(one["distance"] > 2 for one in answer["unmatched"])
    everybody, *groups = answer["groups"]
    assert everybody["matched"] == sum(group["matched"] for group in groups) == len(matched)
    assert f"{len(answer['unmatched'])} pairs are unmatched" in screen
    assert f"{answer['cec']['mean']:.3f}" in screen
    named = next(line for line in answer["thresholds"] if line["threshold"] == 0.5)
    assert {letter: named[letter] for letter in "ABCD"} == pytest.approx(answer["regimes"])


def test_an_audit_is_the_same_however_the_table_is_cut(
    run: tuple[str, dict[str, Any], Path], inside: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place, name, rows in ((table, "CHUNK", 90), (groups, "ROWS", 64), (attributions, "AT_ONCE", 50)):
        monkeypatch.setattr(place, name, rows)
    code, _, _ = inside(*DEMO, "--tau", 2, "--json", "cut.json")
    assert code == 0
    whole, cut = (pd.json_normalize(one).drop(columns="seconds").T[0] for one in (run[1], json.loads(Path("cut.json").read_text())))
    assert list(whole.index) == list(cut.index)
    for name, value in whole.items():
        lines = isinstance(value, list) and value and isinstance(value[0], dict)
        if lines:
            pd.testing.assert_frame_equal(pd.json_normalize(value), pd.json_normalize(cut[name]), rtol=1e-9)
        else:
            assert cut[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)


def test_people_to_review_are_those_decided_alike_for_the_most_different_reasons(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, _ = run
    pairs = pd.DataFrame(answer["pairs"])
    alike = pairs[pairs["decision"] == pairs["its decision"]].nlargest(20, "score")
    assert [line["row"] for line in answer["review"]] == alike["row"].tolist()
    frame = datasets.load("german").frame
    for line in answer["review"]:
        own, other = frame.loc[line["row"]], frame.loc[line["counterpart"]]
        assert own["sex"] != other["sex"]
        assert own["credit"] == other["credit"], "matched within the true label"
        assert str(line["row"]) in screen or line in answer["review"][10:]


def test_tables_and_figures_are_written(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, out = run
    assert all(is_drawn(out / name) for name in FIGURES)
    pairs = pd.read_csv(out / "pairs.csv")
    assert len(pairs) == len(answer["pairs"]) == 1000
    assert len(pd.read_csv(out / "unmatched.csv")) == len(answer["unmatched"])
    reasons = pd.read_csv(out / "attributions.csv")
    assert len(reasons) == pairs["score"].notna().sum()
    groups = pd.read_csv(out / "groups.csv")
    assert groups["cec"].tolist() == pytest.approx([group["cec"]["mean"] for group in answer["groups"]])
    assert flat(screen).split("Measured on these rows")[0][-80:] in flat((out / "cec.txt").read_text())


def test_several_groups_combine_and_others_than_inputs_do(tmp_path: Path) -> None:
    german = datasets.load("german")
    german.frame.assign(office=np.where(np.arange(1000) % 3, "north", "south")).to_csv(tmp_path / "german.csv", index=False)
    german.schema.save(tmp_path / "german.toml")
    files = (datasets.network_path("german"), "--schema", tmp_path / "german.toml", "--data", tmp_path / "german.csv")
    done = answered("cec", *files, "--protected", "sex", "--protected", "office", "--json", tmp_path / "a.json")
    answer = json.loads((tmp_path / "a.json").read_text())
    names = {f"sex = {sex}, office = {office}" for sex in ("Female", "Male") for office in ("north", "south")}
    assert {group["name"] for group in answer["groups"]} == names | {"everybody"}
    assert len(answer["pairs"]) == 3 * 1000
    assert "Female, north" in flat(done.stdout)
    assert "Highest mean scores between two groups" in flat(done.stdout)
    low, high = (answer["cec"][end] for end in ("low", "high"))
    assert f"Everybody, 95 %: CEC {low:.3f} .. {high:.3f}" in flat(done.stdout)


def test_counterparts_come_from_the_reference(tmp_path: Path) -> None:
    german = datasets.load("german")
    german.schema.save(tmp_path / "german.toml")
    german.test.to_csv(tmp_path / "test.csv", index=False)
    german.train.to_csv(tmp_path / "train.csv", index=False)
    files = (datasets.network_path("german"), "--schema", tmp_path / "german.toml", "--data", tmp_path / "test.csv")
    done = answered("cec", *files, "--protected", "sex", "--reference", tmp_path / "train.csv", "--json", tmp_path / "a.json")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert len(answer["pairs"]) == len(german.test)
    assert "like rows: of train.csv" in flat(done.stdout)
    for pair in answer["pairs"]:
        assert german.train.loc[pair["counterpart"], "sex"] != german.test.loc[pair["row"], "sex"]
        assert german.train.loc[pair["counterpart"], "credit"] == german.test.loc[pair["row"], "credit"]


def test_a_sample_steps_and_ties_are_the_users_choice(tmp_path: Path) -> None:
    def answer(*options: object) -> dict[str, Any]:
        asked = ("--protected", "sex", "--rows", 300, "--no-within", *options, "--json", tmp_path / "a.json")
        answered("cec", "--demo", "adult", *asked)
        found: dict[str, Any] = json.loads((tmp_path / "a.json").read_text())
        return found

    exact, paper = answer(), answer("--steps", 32)
    assert len(exact["pairs"]) == len(paper["pairs"]) == 300
    assert exact["cec"]["mean"] == pytest.approx(paper["cec"]["mean"], abs=0.01)
    assert exact["cec"]["mean"] != paper["cec"]["mean"]
    drawn = answer("--ties", "random")
    rows = [[pair["row"] for pair in one["pairs"]] for one in (exact, drawn)]
    assert rows[0] == rows[1]
    assert [p["distance"] for p in exact["pairs"]] == pytest.approx([p["distance"] for p in drawn["pairs"]])
    assert [p["counterpart"] for p in exact["pairs"]] != [p["counterpart"] for p in drawn["pairs"]]


def test_regime_a_is_certified_and_checked(tmp_path: Path) -> None:
    proof = tmp_path / "proof.json.gz"
    files = ("--json", tmp_path / "a.json", "--out", tmp_path / "out", "--certificate", proof)
    done = answered(*DEMO, "--audit", "test", "--certify", 1, "--timeout", 60, *files)
    answer = json.loads((tmp_path / "a.json").read_text())
    certified, pairs = answer["certified"], pd.DataFrame(answer["pairs"]).set_index("row")
    assert certified["regime_A"] == (pairs["regime"] == "A").sum() == len(certified["people"])
    assert certified["certified"] + sum(certified["unknown"].values()) == certified["regime_A"]
    assert certified["certified"] > 0
    for line in certified["people"]:
        assert pairs.loc[line["row"], "counterpart"] == line["counterpart"]
        assert pairs.loc[line["row"], "score"] == pytest.approx(line["score"])
        assert line["status"] == "unknown" or line["score"] <= line["bound"] < 0.5
    assert f"Certified A: {certified['certified']} of the {certified['regime_A']} pairs" in flat(done.stdout)
    assert len(pd.read_csv(tmp_path / "out" / "certified.csv")) == certified["regime_A"]
    assert answer["trust"]["proved"] == [f"regime A of {certified['certified']} pairs within 1 unit"]
    checked = answered("check", proof, "--demo", "german")
    assert f"ACCEPTED: {certified['certified']} proofs" in flat(checked.stdout)
    assert "--partial" not in done.stdout


def test_the_line_that_checks_says_partial_where_pairs_stay_open(tmp_path: Path) -> None:
    """README's example: 106 of 107 pairs. Without --partial such a file is INCOMPLETE, which exits with 1."""
    proof = tmp_path / "proof.json.gz"
    done = answered(*DEMO, "--no-within", "--certify", 1, "--timeout", 60, "--certificate", proof)
    assert "Unknown: 1 " in flat(done.stdout)
    assert "--demo german --partial)" in flat(done.stdout)
    answered("check", proof, "--demo", "german", "--partial")
    assert verifair("check", proof, "--demo", "german").returncode == 1


def test_a_constant_model_does_not_look_fair(tmp_path: Path) -> None:
    german = datasets.load("german")
    files = _constant(german.schema, tmp_path)
    german.frame.to_csv(tmp_path / "german.csv", index=False)
    done = answered("cec", *files, "--data", tmp_path / "german.csv", "--protected", "sex", "--json", tmp_path / "a.json")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["cec"]["mean"] == 0
    assert "Caution" in flat(done.stdout)
    assert answer["model_decides"]["hardly"]


def _constant(schema: Schema, folder: Path, outputs: int = 2) -> tuple[object, ...]:
    """A network that decides everybody alike, and its schema."""
    width = schema.domain.columns
    weight = numpy_helper.from_array(np.zeros((outputs, width), dtype=np.float32), "w")
    bias = numpy_helper.from_array(np.arange(outputs, dtype=np.float32), "b")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)], "constant",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])], [weight, bias],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "constant.onnx")
    schema.save(folder / "constant.toml")
    return folder / "constant.onnx", "--schema", folder / "constant.toml"


BAD: dict[str, tuple[str, tuple[object, ...]]] = {
    "tau negative": ("--tau -1: expected a number above 0", ("--tau", -1)),
    "tau zero": ("--tau 0: expected a number above 0", ("--tau", 0)),
    "all unmatched at tau": ("nobody has a counterpart that near; the nearest pair is", ("--tau", 1e-6)),
    "threshold": ("--threshold 1.5: expected a number from 0 to 1, such as 0.5", ("--threshold", 1.5)),
    "steps": ("--steps 0: expected exact, or a number", ("--steps", 0)),
    "ties": ("--ties last: expected first or random", ("--ties", "last")),
    "unknown column": ("did you mean 'sex'", ("--protected", "sexx")),
    "no such reference": ("nofile.csv: there is no such file", ("--reference", "nofile.csv")),
    "a number": ("--split duration=", ("--protected", "duration")),
    "delta negative": ("--certify -1: expected a number of at least 0", ("--certify", -1)),
    "certificate of nothing": ("--certificate belongs to --certify", ("--certificate", "proof.json")),
    "out is a file": ("--out file.txt: is a file", ("--out", "file.txt")),
    "nowhere to write": ("nothing can be written", ("--json", "file.txt/a.json")),
    "no time": ("--timeout", ("--timeout", 0)),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_named_with_their_remedy(case: str, tmp_path: Path, refused: Refused) -> None:
    words, options = BAD[case]
    (tmp_path / "file.txt").write_text("")
    assert words in refused(*DEMO, *options)


def test_numbers_that_are_few_in_each_chunk_and_many_in_all_make_no_groups(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    german = datasets.load("german")
    files = _german(tmp_path, german.frame.sort_values("duration"), german.schema.dumps())[:-1]
    monkeypatch.setattr(table, "CHUNK", 50)
    assert "each would be a group; split it, e.g. --split duration=" in refused("cec", *files, "duration")
    assert "--audit sex=Nobody: no row has this value; found Female, Male" in refused("cec", *files, "sex", "--audit", "sex=Nobody")


def _german(folder: Path, frame: pd.DataFrame, schema: str) -> tuple[object, ...]:
    frame.to_csv(folder / "german.csv", index=False)
    (folder / "german.toml").write_text(schema)
    model, table = datasets.network_path("german"), folder / "german.csv"
    return model, "--schema", folder / "german.toml", "--data", table, "--protected", "sex"


@pytest.mark.parametrize(("case", "words"), [
    ("no merit", "no feature has merit = true"),
    ("no label", "group 'sex = Female' has no row with the true label 0"),
    ("one class", "every row has the true label 1"),
    ("one group", "only one group, sex = Male"),
    ("no unit", "unit"),
    ("no label column", "the table has no column 'credit'"),
    ("unlabelled schema", "the schema names no label column"),
])
def test_tables_that_cannot_be_compared_are_named(case: str, words: str, tmp_path: Path, refused: Refused) -> None:
    german = datasets.load("german")
    frame, schema = german.frame, german.schema.dumps()
    if case == "no merit":
        schema = schema.replace("merit = true\n", "")
    elif case == "no label":
        frame = frame[(frame["sex"] == "Male") | (frame["credit"] == "good")]
    elif case == "one class":
        frame = frame[frame["credit"] == "good"]
    elif case == "one group":
        frame = frame[frame["sex"] == "Male"]
    elif case == "no unit":
        schema = re.sub(r"unit(_name)? = .*\n", "", schema)
    elif case == "no label column":
        frame = frame.drop(columns="credit")
    else:
        schema = schema.replace('label = "credit"\n', "").replace('positive_label = "good"\n', "")
    certify = ("--certify", 1) if case == "no unit" else ()
    assert words in refused("cec", *_german(tmp_path, frame, schema), *certify)


def test_merit_that_makes_the_groups_is_noted(tmp_path: Path) -> None:
    german = datasets.load("german")
    schema = german.schema.dumps().replace('name = "sex"\n', 'name = "sex"\nmerit = true\n')
    done = answered("cec", *_german(tmp_path, german.test, schema), "--no-within")
    assert "note: 'sex' is merit and also defines the groups" in flat(done.stdout)
    assert "within group" not in done.stdout


def test_a_group_that_the_reference_lacks_is_named(tmp_path: Path, refused: Refused) -> None:
    german = datasets.load("german")
    files = _german(tmp_path, german.frame.assign(office="west"), german.schema.dumps())
    german.frame.assign(office=np.where(np.arange(1000) % 2, "north", "south")).to_csv(tmp_path / "other.csv", index=False)
    told = refused("cec", *files[:-2], "--protected", "office", "--reference", tmp_path / "other.csv")
    assert "group 'office = west': there is no such group among the rows to compare with" in told


def test_labels_of_three_classes_need_numbers_or_a_positive_value(tmp_path: Path, refused: Refused) -> None:
    german = datasets.load("german")
    files = _constant(german.schema.model_copy(update={"positive_label": None}), tmp_path, outputs=3)
    german.frame.to_csv(tmp_path / "german.csv", index=False)
    assert "positive_label = ..." in refused("cec", *files, "--data", tmp_path / "german.csv", "--protected", "sex")


@pytest.mark.parametrize(
    ("missing", "words"),
    [(("--demo", "german"), "cec needs groups to compare"), (("--protected", "sex"), "MODEL and --schema are needed")],
)
def test_what_is_missing_is_named(missing: tuple[str, ...], words: str, refused: Refused) -> None:
    assert words in refused("cec", *missing)


def test_what_was_measured_outlives_an_interrupted_proof(tmp_path: Path, ctrl_c: Callable[..., None]) -> None:
    ctrl_c(certified, "_decided")
    done = verifair(*DEMO, "--certify", "1", "--no-within", "--jobs", "1", "--json", tmp_path / "a.json")
    assert done.returncode == 130, done.stderr
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["certified"] is None
    assert answer["cec"]["mean"] > 0
    assert "Nothing was certified: interrupted" in flat(done.stdout)


def test_an_interrupted_audit_says_what_to_do(tmp_path: Path, ctrl_c: Callable[..., None]) -> None:
    ctrl_c(attributions, "explanations")
    done = verifair(*DEMO, "--json", tmp_path / "a.json")
    assert done.returncode == 130, done.stderr
    assert "--rows N audits a sample" in flat(done.stderr)
    assert not (tmp_path / "a.json").exists()


# verifair cec and train in clumsy hands: what is found, expected and to be done is said, before the work.


MODEL = datasets.network_path("german")


@pytest.mark.parametrize("steps", ["²", "٣", "9" * 25, "10001", "1e3"])
def test_steps_that_are_no_usable_number_are_refused(inside: Run, steps: str) -> None:
    assert inside(*DEMO, "--steps", steps)[::2] == (
        2, f"error: --steps {steps}: expected exact, or a number of steps in 1 .. 10000, such as the paper's 32",
    )


def test_a_demo_without_a_network_is_refused(inside: Run) -> None:
    code, _, told = inside("cec", "--demo", "compas", "--protected", "sex")
    assert code == 2
    assert "--demo compas: expected german or adult; others bring no network: pass MODEL, --schema and --data" in told


def test_groups_may_be_another_column_and_these_are_named(inside: Run, tmp_path: Path) -> None:
    german = datasets.german()
    german.schema.save(tmp_path / "g.toml")
    german.frame.assign(county=["N", "S"] * 500).to_csv(tmp_path / "g.csv", index=False)
    code, _, told = inside("cec", MODEL, "--schema", "g.toml", "--data", "g.csv", "--protected", "country")
    assert code == 2
    assert told.endswith("other columns of the table: credit, county")


def test_an_error_says_which_of_two_tables_it_is_about(inside: Run, tmp_path: Path) -> None:
    german = datasets.german()
    german.schema.save(tmp_path / "g.toml")
    german.frame.to_csv(tmp_path / "g.csv", index=False)
    german.frame[german.frame["sex"] == "Male"].to_csv(tmp_path / "men.csv", index=False)
    german.frame.drop(columns="credit").to_csv(tmp_path / "unlabelled.csv", index=False)
    asked = ("cec", MODEL, "--schema", "g.toml", "--data", "g.csv", "--protected", "sex", "--reference")
    code, _, told = inside(*asked, "men.csv")
    assert code == 2
    assert told.startswith("error: --reference men.csv: only one group, sex = Male, has rows")
    code, _, told = inside(*asked, "unlabelled.csv")
    assert (code, told.count("unlabelled.csv")) == (2, 1)


def test_merit_that_is_the_same_for_everybody_is_said(inside: Run, tmp_path: Path) -> None:
    german = datasets.german()
    german.schema.save(tmp_path / "g.toml")
    merit = [feature.name for feature in german.schema.features if feature.merit]
    table = german.frame.assign(**{name: german.frame[name].iloc[0] for name in merit})
    table.to_csv(tmp_path / "g.csv", index=False)
    asked = ("cec", MODEL, "--schema", "g.toml", "--data", "g.csv", "--protected", "sex", "--rows", 50)
    code, screen, _ = inside(*asked, "--no-within")
    assert code == 0
    assert "note: everybody has the same merit" in screen


def test_proofs_of_an_earlier_run_do_not_stay_in_the_folder(inside: Run, tmp_path: Path) -> None:
    assert inside(*DEMO, "--rows", 40, "--no-within", "--certify", 0, "--out", "o")[0] == 0
    assert (tmp_path / "o" / "certified.csv").exists()
    assert inside(*DEMO, "--rows", 40, "--no-within", "--out", "o")[0] == 0
    assert (tmp_path / "o" / "pairs.csv").exists()
    assert not (tmp_path / "o" / "certified.csv").exists()


@pytest.mark.parametrize(("options", "message"), [
    (("--out", "o.txt"), "--out o.txt: a network is written as NAME.onnx"),
    (("--out", "."), "--out .: is a folder; name a file in it"),
    (("--out", "o.onnx", "--json", "."), "--json .: is a folder; name a file in it"),
    (("--out", "o.onnx", "--json", "o.toml"), "name the same file, o.toml"),
    (("--out", "o.onnx", "--steps", 10**14), f"steps = {10**14}, expected 1 to 1000"),
])
def test_train_says_what_it_cannot_write_before_the_work(
    inside: Run, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    pytest.importorskip("torch")
    code, _, told = inside("train", "--data", "german", "--method", "cec", "--sensitive", "sex", "--epochs", 100_000, *options)
    assert code == 2
    assert message in told
    assert not list(tmp_path.iterdir())
