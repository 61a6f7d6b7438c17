"""verifair fgce as a user meets it: screens, files, plots, JSON, errors and Ctrl-C."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import predictions, runtime_logits
from tests.command_line import answered, flat, is_drawn, verifair
from verifair import datasets, figures
from verifair.systems.fgce import plots
from verifair.systems.fgce.measures import burden
from verifair.systems.fgce.space import FeatureSpace, Moves
from verifair.systems.groups import SMALL

DEMO = ("fgce", "--demo", "german", "--protected", "sex", "--audit", "test")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """One run with everything written: screen, JSON, folder."""
    folder = tmp_path_factory.mktemp("fgce")
    out = folder / "out"
    files = ("--out", out, "--json", folder / "a.json", "--plot", folder / "p.png")
    done = answered(*DEMO, "--k", 6, "--measures", "--timeout", 60, *files)
    assert is_drawn(folder / "p.png")
    return done.stdout, json.loads((folder / "a.json").read_text()), out


def test_no_picture_cuts_the_names_of_groups_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three protected features, 48 letters each."""
    cut = []

    @contextmanager
    def measured(path: Path, *size: Any, **more: Any) -> Iterator[Any]:
        with figures.figure(path, *size, **more) as drawn:
            yield drawn
        FigureCanvasAgg(drawn).draw()
        width = drawn.bbox.width
        boxes = [(text.get_text(), text.get_window_extent()) for text in drawn.findobj(Text) if text.get_visible()]
        cut.extend(word for word, box in boxes if re.search(r"[a-z]{3}", word) and (box.x0 < -1 or box.x1 > width + 1))

    monkeypatch.setattr(plots, "figure", measured)
    groups = ("--protected", "age", "--protected", "foreign-worker", "--empty", "skip")
    answered(*DEMO, *groups, "--k", 20, "--measures", "--timeout", 4, "--out", tmp_path, "--plot", tmp_path / "p.png")
    assert not cut


def test_the_documented_example_proves_its_optimum() -> None:
    done = answered("fgce", "--demo", "german", "--protected", "sex", "--k", 20)
    assert flat(done.stdout).count("optimal, proved") == 2
    for words in ("sex = Female", "sex = Male", "weak components", "100.0%", "credit-amount = "):
        assert words in flat(done.stdout)


def test_too_few_counterfactuals_are_an_error_or_cover_the_most_that_they_can(tmp_path: Path) -> None:
    asked = ("fgce", "--demo", "german", "--protected", "sex", "--k", 6)
    done = verifair(*asked)
    assert done.returncode == 2
    assert "sex = Male: k = 6 is too few to cover all 136 people who can be helped: they are in 3 parts" in flat(done.stderr)
    assert 'pass k = 8, or a coverage below 1, or too_few = "most"' in flat(done.stderr)
    proof = tmp_path / "proof.json.gz"
    done = answered(*asked, "--too-few", "most", "--json", tmp_path / "a.json", "--certificate", proof)
    said = "sex = Male: k = 6 is too few to cover 136 of the 136 people who can be helped: it covers 134 at most; k = 8 covers "
    said += "everybody."
    assert said in flat(done.stdout)
    assert "it is not about sex = Male: k is too few there" in flat(done.stdout)
    answer = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert (answer["query"]["coverage"], answer["query"]["too_few"]) == (1.0, "most")
    assert [(one["covered"], one["factuals"], one["short"]) for one in answer["groups"]] == [
        (89, 89, None), (134, 136, {"asked": 136, "needed": 8})
    ]
    assert answered("check", proof, "--demo", "german").returncode == 0


def test_screen_and_json_tell_the_same(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, _ = run
    assert [group["name"] for group in answer["groups"]] == ["sex = Female", "sex = Male"]
    for group in answer["groups"]:
        assert group["negatives"] == group["hopeless"] + group["factuals"]
        assert group["certainty"]["optimal"]
        assert group["certainty"]["trust"] == "proved"
        assert group["cost"] == group["certainty"]["value"] == group["certainty"]["bound"]
        assert f"{group['cost']:.4g}" in screen
        assert group["mean"]["low"] <= group["mean"]["mean"] <= group["mean"]["high"] <= group["cost"]
        assert 0 < len(group["advice"]) <= 6
        assert sum(advice["serves"] for advice in group["advice"]) == group["covered"] == group["factuals"]
        assert sum(part["covered"] for part in group["subgroups"]) == group["covered"]
    assert answer["versions"]["verifair"]
    assert answer["seed"] == 0
    assert len(answer["trust"]["proved"]) == 2
    assert not answer["trust"]["claimed"]


def test_every_explanation_is_positive_allowed_and_as_dear_as_told(run: tuple[str, dict[str, Any], Path]) -> None:
    """Told again from the table alone: the runtime's decisions, distances in the space, and what moves may never change."""
    _, answer, _ = run
    german = datasets.load("german")
    network, space = read_onnx(datasets.network_path("german")), FeatureSpace.of(german.schema)
    raw = german.schema.raw(german.frame)
    logits = runtime_logits(network, german.schema.encode(raw))
    good = (logits[:, 0] > 0) if network.outputs == 1 else logits[:, 1] > logits[:, 0]
    points, moves = space.points(raw), Moves.of(space)
    lines = answer["explanations"]
    test = set(german.split[1].tolist())
    assert {line["row"] for line in lines} == {row for row in test if not good[row]}
    for line in lines:
        before, after = line["row"], line["counterfactual"]
        if after is None:
            assert line["changes"] == "no feasible counterfactual"
            continue
        assert good[after]
        assert german.frame["sex"][before] == german.frame["sex"][after] == line["group"].removeprefix("sex = ")
        assert np.linalg.norm(points[before] - points[after]) == pytest.approx(line["cost"])
        assert (points[before, moves.fixed] == points[after, moves.fixed]).all()
        assert ((points[after] - points[before]) * moves.direction >= 0).all()
        told = {part.split(":")[0] for part in line["changes"].split("; ")}
        assert told == {f.name for v, f in enumerate(german.schema.features) if raw[before, v] != raw[after, v]}
    for group in answer["groups"]:
        own = [line for line in lines if line["group"] == group["name"] and line["counterfactual"] is not None]
        assert len(own) == group["covered"]
        assert max(line["cost"] for line in own) == pytest.approx(group["cost"])
        shares = answer["attribute_changes"][group["name"]]
        assert shares["duration"] == pytest.approx(np.mean(["duration: " in f"; {line['changes']}" for line in own]))
        assert shares["sex"] == 0


def test_measures_fit_each_other(run: tuple[str, dict[str, Any], Path]) -> None:
    _, answer, _ = run
    measures = answer["measures"]
    assert measures["stopped"] is None
    coverage, cost = pd.DataFrame(measures["coverage"]), pd.DataFrame(measures["cost"])
    for name, reach in measures["reach"].items():
        assert reach["d_least"] <= reach["d0"]
        full = cost[(cost["group"] == name) & (cost["c"] == 1)].set_index("k")["cost"]
        assert full[reach["k0"]] == reach["d0"]
        assert full.loc[: reach["k0"] - 1].isna().all(), "fewer than k0 cannot cover everybody"
        own = coverage[coverage["group"] == name]
        wide = own.pivot(index="k", columns="d", values="coverage")
        assert (wide.diff().iloc[1:] >= 0).all(axis=None)
        assert (wide.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
        assert (own["greedy"] >= (1 - 1 / np.e) * own["coverage"] - 1e-12).all()
        assert (own["greedy"] <= own["coverage"]).all()
        k0s = [part["k0"] for part in measures["subgroups"][name].values()]
        assert sum(k0s) == reach["k0"], "nobody of one subgroup helps another"
    k_auc = pd.DataFrame(measures["kauc"])
    assert k_auc["score"].between(0, 1).all()
    assert set(k_auc["k"]) == set(range(1, 11))
    assert (pd.DataFrame(measures["cauc"])["score"].dropna() >= 1 - 1e-12).all()
    by_measure = {line["measure"]: line for line in answer["comparison"]}
    for line in by_measure.values():
        assert line["worst"] is None or line["worst"] in line["values"]
    mean = by_measure["mean least cost"]
    assert all(mean["values"][group["name"]] <= group["mean"]["mean"] for group in answer["groups"])
    assert min(mean["people"].values()) < SMALL, "the test rows have few men refused"
    assert mean["worst"] is None
    assert mean["chance"] is None


def test_the_folder_holds_tables_and_figures(run: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, out = run
    assert flat((out / "fgce.txt").read_text())[:60] == flat(screen)[:60]
    for name in ("acf", "components", "coverage-by-cost", "coverage-by-k", "cost-by-k"):
        assert is_drawn(out / f"{name}.png")
    explained = pd.read_csv(out / "explanations.csv")
    assert len(explained) == len(answer["explanations"])
    chosen = pd.read_csv(out / "counterfactuals.csv", keep_default_na=False)
    frame = datasets.load("german").frame
    for _, line in chosen.iterrows():
        assert all(str(frame.loc[line["row"], name]) == str(line[name]) for name in ("purpose", "duration", "sex"))
    for name in ("groups", "subgroups", "attribute-changes", "coverage", "cost", "kauc", "dauc", "cauc"):
        assert len(pd.read_csv(out / f"{name}.csv"))


def test_methods_agree_and_say_who_vouches(tmp_path: Path) -> None:
    found = {}
    for method in ("exact", "components", "mip"):
        done = answered(*DEMO, "--factuals", "false-negatives", "--k", 3, "--method", method, "--json", tmp_path / f"{method}.json")
        found[method] = json.loads((tmp_path / f"{method}.json").read_text())
        assert ("is the solver's claim" in flat(done.stdout)) == (method == "mip")
    costs = [[group["cost"] for group in answer["groups"]] for answer in found.values()]
    assert costs[0] == pytest.approx(costs[1], abs=1e-9)
    assert costs[0] == pytest.approx(costs[2], abs=1e-9)
    assert found["mip"]["trust"]["proved"] == []
    assert [line.split(": ")[1][:24] for line in found["mip"]["trust"]["claimed"]] == 2 * ["optimal, claimed by high"]


def test_a_cost_limit_covers_the_most(tmp_path: Path) -> None:
    shares = {}
    for method in ("greedy", "exact"):
        answered(*DEMO, "--k", 3, "--max-cost", 2.8, "--method", method, "--json", tmp_path / "a.json")
        answer = json.loads((tmp_path / "a.json").read_text())
        shares[method] = [group["certainty"]["value"] for group in answer["groups"]]
        assert all(line["cost"] is None or line["cost"] <= 2.8 for line in answer["explanations"])
        assert [group["coverage"]["mean"] for group in answer["groups"]] == pytest.approx(shares[method])
    assert all(g <= e for g, e in zip(shares["greedy"], shares["exact"], strict=True))
    near = answered(*DEMO, "--max-cost", 0.001)
    assert "nothing so near covers anybody" in flat(near.stdout)


def test_a_number_is_split_and_features_are_constrained(tmp_path: Path) -> None:
    answered(
        "fgce", "--demo", "german", "--audit", "test", "--protected", "duration", "--split", "duration=12,24", "--k", 40,
        "--change", "credit-amount=decrease", "--change", "duration=fixed", "--coverage", 0.5, "--empty", "skip",
        "--json", tmp_path / "a.json",
    )
    answer = json.loads((tmp_path / "a.json").read_text())
    names = {group["name"] for group in answer["groups"]} | set(answer["left_out"])
    assert names == {"duration = at most 12", "duration = above 12 to 24", "duration = above 24"}
    assert answer["graph"]["moves"]["credit-amount"] == "decrease"
    frame = datasets.load("german").frame
    served = [line for line in answer["explanations"] if line["counterfactual"] is not None]
    assert served
    for line in served:
        before, after = frame.loc[line["row"]], frame.loc[line["counterfactual"]]
        assert after["duration"] == before["duration"]
        assert after["credit-amount"] <= before["credit-amount"]


BAD: dict[str, tuple[str, tuple[object, ...]]] = {
    "unknown feature": ("did you mean 'age'", ("--change", "agee=fixed")),
    "unknown change": ("increase, decrease, fixed, free", ("--change", "age=up")),
    "k too few": ("sex = Male: k = 1 is too few", ("--k", 1)),
    "default weighting": ("--weighting belongs to --cost path: add --cost path, or drop --weighting", ("--weighting", "inverse")),
    "default solver": ("--solver belongs to --method mip: add --method mip, or drop --solver", ("--solver", "highs")),
    "eps not positive": ("--eps -1: expected a number above 0", ("--eps", -1)),
    "no way out": ("feasible counterfactual at eps = 0.001", ("--eps", 0.001)),
    "coverage": ("--coverage 2: expected a number above 0 and at most 1, such as 1", ("--coverage", 2)),
    "unknown group": ("did you mean 'sex'", ("--protected", "sexx")),
    "cuts that fall": ("--split sex=60,25: expected numbers that rise, such as 25,60", ("--split", "sex=60,25")),
    "a cut that is no number": ("--split sex=nan: expected a finite number", ("--split", "sex=nan")),
    "cuts of words": ("--split sex: 'sex' holds words, and only numbers can be cut; drop --split", ("--split", "sex=5")),
    "cuts of no group": ("--split age: 'age' is not in --protected (sex); add it there", ("--split", "age=5")),
    "a number": ("--split duration=", ("--protected", "duration")),
    "idle solver": ("--method mip", ("--solver", "scip")),
    "idle weighting": ("--cost path", ("--weighting", "literal")),
    "folder is a file": ("is a file", ("--out", "file.txt")),
    "nowhere to write": ("nothing can be written", ("--json", "file.txt/a.json")),
    "no picture": (".png, .pdf or .svg", ("--plot", "plot.txt")),
    "no such rows": ("no row has this value", ("--audit", "credit=poor")),
    "no such column": ("the table has no column 'sx'; did you mean 'sex'?", ("--audit", "sx=Female")),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_named_with_their_remedy(case: str, tmp_path: Path) -> None:
    words, options = BAD[case]
    (tmp_path / "file.txt").write_text("")
    done = verifair(*DEMO, *options, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in flat(done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_k_that_is_named_does() -> None:
    done = verifair(*DEMO, "--k", 1)
    needed = max(int(k) for k in re.findall(r"pass k = (\d+)", flat(done.stderr)))
    assert verifair(*DEMO, "--k", needed - 1).returncode == 2
    assert verifair(*DEMO, "--k", needed).returncode == 0


def test_a_group_without_anybody_is_refused_or_left_out(tmp_path: Path) -> None:
    german = datasets.load("german")
    frame = german.frame.assign(ask=np.where(german.frame["sex"] == "Male", "yes", "no"))
    frame.to_csv(tmp_path / "german.csv", index=False)
    german.schema.save(tmp_path / "german.toml")
    files = (datasets.network_path("german"), "--schema", tmp_path / "german.toml", "--data", tmp_path / "german.csv")
    options = ("--protected", "sex", "--audit", "ask=yes", "--k", 20)
    refused = verifair("fgce", *files, *options)
    assert refused.returncode == 2
    assert "sex = Female: nobody in it is to be explained" in flat(refused.stderr)
    done = answered("fgce", *files, *options, "--empty", "skip")
    assert "left out: sex = Female" in flat(done.stdout)
    assert "sex = Male: counterfactuals" in flat(done.stdout)


def test_interrupted_measures_keep_what_is_done(tmp_path: Path, ctrl_c: Callable[..., None]) -> None:
    ctrl_c(burden, "coverage_table", 9)  # two groups, so at the fifth cost
    command = [*DEMO, "--k", 4, "--measures", "--timeout", 3600, "--json", tmp_path / "a.json", "--out", tmp_path / "out"]
    done = verifair(*command)
    assert done.returncode == 130, done.stderr
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["measures"]["stopped"] == "interrupted"
    assert len(pd.DataFrame(answer["measures"]["coverage"])["d"].unique()) == 4
    assert answer["measures"]["kauc"] == [], "not over all costs, so no area"
    assert len(answer["measures"]["dauc"]) == 8
    assert "not finished (Ctrl-C)" in flat(done.stdout)
    assert (tmp_path / "out" / "coverage-by-k.png").is_file()


# verifair fgce --robust, --only-robust and --certificate as a user meets them.


@pytest.fixture(scope="module")
def robustly(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("robust")
    files = ("--out", folder / "out", "--json", folder / "a.json", "--certificate", folder / "proof.json.gz")
    done = answered(*DEMO, "--k", 12, "--robust", 40, "--robust", 1, "--robust", 5, *files)
    return done.stdout, json.loads((folder / "a.json").read_text()), folder


def test_verdicts_stand_on_the_screen_in_json_and_in_files(robustly: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, folder = robustly
    verdicts = pd.DataFrame(answer["robust"])
    assert set(verdicts["delta"]) == {1, 5, 40}
    assert set(verdicts["status"]) == {"proved", "violated"}
    for delta, part in verdicts.groupby("delta"):
        assert f"delta {delta:g}: {(part['status'] == 'proved').sum()} of {len(part)} proved to stay good credit" in screen
    advised = {(group["name"], advice["row"]) for group in answer["groups"] for advice in group["advice"]}
    assert set(zip(verdicts["group"], verdicts["row"], strict=True)) == advised
    assert {(line["group"], line["row"]) for line in answer["re_evaluated"]} == advised
    assert all(line["positive"] and line["float32"] and line["agrees"] for line in answer["re_evaluated"])
    assert "onnxruntime (float32) says the same of each" in screen
    stored = pd.read_csv(folder / "out" / "robust.csv")
    assert stored["status"].tolist() == verdicts["status"].tolist()
    assert sum("proved to stay good credit" in line for line in answer["trust"]["proved"]) == 3


def test_every_witness_is_near_and_decided_badly(robustly: tuple[str, dict[str, Any], Path]) -> None:
    _, answer, _ = robustly
    network, dataset = read_onnx(datasets.network_path("german")), datasets.load("german")
    refuted = [line for line in answer["robust"] if line["status"] == "violated"]
    assert refuted
    for line in refuted:
        own, there = dataset.frame.iloc[line["row"]], line["witness"]
        moved = {name for name in there if str(there[name]) != str(own[name])}
        assert moved <= {"duration", "credit-amount"}
        assert abs(there["duration"] - own["duration"]) <= line["delta"]
        assert abs(there["credit-amount"] - own["credit-amount"]) <= 100 * line["delta"]
        x = dataset.schema.encode(dataset.schema.raw(pd.DataFrame([there])))
        assert (predictions(network, x)[0] == 0) == line["float32_agrees"]


def test_the_certificate_is_accepted_and_says_what_it_states(robustly: tuple[str, dict[str, Any], Path]) -> None:
    screen, answer, folder = robustly
    proved = len({(line["row"], line["delta"]) for line in answer["robust"] if line["status"] == "proved"})
    done = answered("check", folder / "proof.json.gz", "--demo", "german")
    assert f"statements about robustness within 1, 5, 40 units, {proved} proved, " in flat(done.stdout)
    assert "\nACCEPTED: " in done.stdout
    assert "verifair check" in screen


def test_only_robust_counterfactuals_cost_more_and_hold(robustly: tuple[str, dict[str, Any], Path], tmp_path: Path) -> None:
    _, before, _ = robustly
    done = answered(*DEMO, "--k", 12, "--only-robust", 40, "--coverage", 0.9, "--json", tmp_path / "a.json")
    assert done.stdout.count("refuted") == 0
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["query"]["only_robust"] == 40
    assert {line["status"] for line in answer["robust"]} == {"proved"}
    assert any(line["status"] == "violated" and line["delta"] == 40 for line in before["robust"])
    for group in answer["groups"]:
        assert group["certainty"]["text"] == "optimal among robust rows, proved"
        assert group["covered"] >= 0.9 * group["factuals"]


@pytest.mark.parametrize(("options", "told"), [
    (("--robust", "-1"), "--robust -1: expected a number of at least 0"),
    (("--only-robust", "nan"), "--only-robust nan: expected a finite number"),
    (("--cost", "hops", "--certificate", "proof.json"), "for --cost l2 and methods exact and components"),
    (("--robust", "1", "--certificate", "."), "is a folder; name a file"),
    (("--only-robust", "1000"), "have a counterfactual that may be robust"),
])
def test_mistakes_are_one_line(options: tuple[str, ...], told: str) -> None:
    done = verifair(*DEMO, "--k", 12, *options)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_schema_without_units_says_so(tmp_path: Path) -> None:
    text = datasets.load("german").schema.dumps()
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("unit"))
    (tmp_path / "s.toml").write_text(bare)
    datasets.load("german").frame.to_csv(tmp_path / "d.csv", index=False)
    files = (datasets.network_path("german"), "--schema", tmp_path / "s.toml", "--data", tmp_path / "d.csv")
    done = verifair("fgce", *files, "--protected", "sex", "--k", 12, "--robust", 1)
    assert done.returncode == 2
    assert "no feature that may move has one" in " ".join(done.stderr.split())
    rows = answered("fgce", *files, "--protected", "sex", "--k", 20, "--robust", 0, "--certificate", tmp_path / "c.json").stdout
    assert "delta 0: 25 of 25 proved to stay good credit" in rows  # the rows themselves need no unit
    assert "One unit of delta" not in rows
    answered("check", tmp_path / "c.json", "--model", files[0], "--schema", files[2])


def test_a_time_out_before_the_first_group_is_one_clear_error() -> None:
    done = verifair(*DEMO, "--k", 12, "--cost", "path", "--measures", "--timeout", 1e-6)
    assert done.returncode == 2
    assert "the time was up after" in flat(done.stderr)
    assert "Traceback" not in done.stderr


def test_a_time_out_keeps_what_is_done() -> None:
    done = verifair(*DEMO, "--k", 12, "--cost", "path", "--measures", "--timeout", 8)
    screen = flat(done.stdout)  # on a busy machine the time may be up before the first group
    assert done.returncode == 0 or "the time was up after" in flat(done.stderr)
    assert done.returncode or "The measures were not finished (the time was up)" in screen or "Groups compared" in screen
