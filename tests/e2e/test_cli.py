"""The command line as a user meets it: real files in, screens, files and exit codes out."""

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from matplotlib.figure import Figure
from onnx import TensorProto, helper, numpy_helper

from tests.bench_support import Fake, record
from tests.command_line import RUN, Run, answered, is_drawn, verifair
from verifair import datasets
from verifair.bench import competitors, plots
from verifair.bench.competitors import Competitor
from verifair.bench.tables import comparison
from verifair.checker.certificates.certificate import Certificate
from verifair.cli.bench import _print_results
from verifair.errors import ClusterError
from verifair.screen import Screen


@pytest.fixture(scope="module")
def audit(german: Path) -> Path:
    """One PBA run with everything written."""
    out = german / "out"
    done = answered(
        "pba", german / "german.onnx", "--schema", german / "german.toml", "--data", german / "german.csv",
        "--protected", "age", "--delta", 1, "--delta", 2, "--out", out, "--json", out / "answer.json",
    )
    assert "0 unknown" in " ".join(done.stdout.split())
    return out


def test_pba_decides_everything_and_writes_its_evidence(audit: Path) -> None:
    for name in ("table.txt", "rates.csv", "shares.csv", "verdicts.sqlite", "outcomes.png", "certificate.json.gz"):
        assert (audit / name).stat().st_size > 0
    verdicts = pd.read_parquet(audit / "verdicts.parquet")
    assert set(verdicts["status"]) <= {"proved", "violated"}
    proved = verdicts[(verdicts["status"] == "proved") & verdicts["goal"].isin(["observed", "flipped"])]
    assert not proved.duplicated(["delta", "row", "to"]).any(), "no row is proved in both directions"
    wider, narrower = (set(proved[proved["delta"] == d][["goal", "row"]].itertuples(index=False)) for d in (2.0, 1.0))
    assert wider <= narrower, "a larger neighbourhood proves no more"
    assert len(pd.read_json(audit / "verdicts.jsonl", lines=True)) == len(verdicts)
    answer = json.loads((audit / "answer.json").read_text())
    assert answer["counts"]["unknown"] == 0
    assert answer["versions"]["verifair"]


def test_pba_leaves_an_earlier_run_in_its_folder_as_it_is(german: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "out", tmp_path / "table.csv"
    asked = ("pba", german / "german.onnx", "--schema", german / "german.toml", "--limit", 20, "--delta", 1, "--out", out)
    pd.read_csv(german / "german.csv").head(40).drop(columns="age").to_csv(table, index=False)
    assert verifair(*asked, "--protected", "sex", "--data", table).returncode == 2  # leaves nothing that blocks
    assert verifair(*asked, "--protected", "sex", "--data", german / "german.csv", "--resume").returncode == 2  # there is none
    answered(*asked, "--protected", "sex", "--data", german / "german.csv")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    refused = verifair(*asked, "--protected", "age", "--data", german / "german.csv")
    assert refused.returncode == 2
    assert "verdicts.sqlite: is there already; continue it with --resume, or name another folder with --out" in refused.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    mixed = verifair(*asked, "--protected", "sex", "--data", german / "german.csv", "--store", tmp_path / "other.sqlite")
    assert (mixed.returncode, "an earlier run stands there, and --store names another file" in mixed.stderr) == (2, True)
    answered(*asked, "--protected", "sex", "--data", german / "german.csv", "--resume")


def test_pba_of_several_features_says_what_their_intersections_are(tmp_path: Path) -> None:
    done = answered(
        "pba", "--demo", "german", "--limit", 60, "--protected", "age", "--protected", "sex", "--delta", 1, "--intersections",
        "--out", tmp_path, "--json", tmp_path / "answer.json",
    )
    said = " ".join(done.stdout.split())
    assert "Fairness by age & sex" in said
    assert "groups of fewer than 30 people not compared" in said
    answer = json.loads((tmp_path / "answer.json").read_text())
    both = [one for one in answer["verdicts"] if one["sensitive"] == "age & sex"]
    assert {one["group"] for one in both} <= {f"{age}, {sex}" for age in ("Junior", "Senior") for sex in ("Female", "Male")}
    biased = [one for one in both if one["goal"] in ("observed", "flipped")]
    assert all(not set(one["group"].split(", ")) & set(one["to"].split(", ")) for one in biased)
    assert {one["label"] for one in (*both, *answer["shares"])} <= {"good credit", "bad credit"}
    assert {one["sensitive"] for one in answer["gaps"]} == {"age", "sex", "age & sex"}
    accepted = answered("check", tmp_path / "certificate-age-sex.json.gz", "--demo", "german")
    assert "statements about persistent-bias by age and sex within 1 unit, " in accepted.stdout
    assert "equal rows count once" in accepted.stdout


def test_a_feature_that_is_not_there_is_refused_before_anything_is_said_of_it() -> None:
    done = verifair("pba", "--demo", "german", "--protected", "gender")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no feature 'gender' in the schema" in done.stderr


def test_check_accepts_what_was_proved_and_rejects_what_was_touched(german: Path, audit: Path, tmp_path: Path) -> None:
    where = ("--model", german / "german.onnx", "--schema", german / "german.toml")
    accepted = answered("check", audit / "certificate.json.gz", *where)
    payload = json.loads(gzip.decompress((audit / "certificate.json.gz").read_bytes()))
    proved = sum("tree" in one for one in payload["proofs"])
    wrong = len(payload["proofs"]) - proved
    assert f", {proved:,} proved, {wrong:,} refuted (a counterexample of each is in the file)" in accepted.stdout
    assert f"ACCEPTED: {proved:,} proofs, {wrong:,} counterexamples, " in accepted.stdout
    payload["proofs"][0]["margin"] += 0.5
    (tmp_path / "nudged.json").write_text(json.dumps(payload))
    assert verifair("check", tmp_path / "nudged.json", *where).returncode == 1
    (tmp_path / "broken.json").write_text("{")
    broken = verifair("check", tmp_path / "broken.json", *where)
    assert broken.returncode == 2
    assert "Traceback" not in broken.stderr
    good = tmp_path / "sound.json.gz"
    good.write_bytes((audit / "certificate.json.gz").read_bytes())
    (tmp_path / "notes.txt").write_text("not one of them")
    every = verifair("check", tmp_path, *where, "--json", tmp_path / "answer.txt")
    assert (every.returncode, every.stderr) == (1, "")
    model, schema, empty, first, *_ = every.stdout.splitlines()
    assert model.startswith("Model german.onnx: SHA-256 ")
    assert schema.startswith("Schema german.toml: SHA-256 of its content ")
    assert (empty, first) == ("", str(tmp_path / "broken.json"))
    assert every.stdout.splitlines()[-1] == "3 files: 1 NOT READ, 1 REJECTED, 1 ACCEPTED"
    answer = json.loads((tmp_path / "answer.txt").read_text())
    assert answer["accepted"] is False
    accepts = {str(tmp_path / "nudged.json"): False, str(good): True}
    assert {file: one["accepted"] for file, one in answer["files"].items()} == accepts
    assert [*answer["unread"]] == [str(tmp_path / "broken.json")]
    twice = answered("check", good, audit / "certificate.json.gz", good, *where)
    assert twice.stdout.splitlines()[-1] == "2 files: 2 ACCEPTED"
    (tmp_path / "broken.json").unlink()
    (tmp_path / "nudged.json").unlink()
    assert "1 file: 1 ACCEPTED" in answered("check", tmp_path, *where).stdout


def test_check_of_a_folder_tells_each_file_on_its_own_lines(german: Path, audit: Path, tmp_path: Path) -> None:
    """The store of verdicts that pba keeps beside its proofs holds none; named itself it is refused."""
    where = ("--model", german / "german.onnx", "--schema", german / "german.toml")
    (tmp_path / "a\nREJECTED.json.gz").write_bytes((audit / "certificate.json.gz").read_bytes())
    store = tmp_path / "verdicts.sqlite"
    store.write_bytes((audit / "verdicts.sqlite").read_bytes())
    lines = answered("check", tmp_path, *where).stdout.splitlines()
    assert lines[-1] == "2 files: 1 ACCEPTED, 1 WITHOUT PROOFS"
    assert not any(line.startswith("REJECTED") for line in lines)
    assert verifair("check", tmp_path, store, *where).returncode == 1
    (tmp_path / "gone.json").symlink_to("nowhere.json")
    (tmp_path / "unreadable.json").symlink_to("/proc/self/mem")
    every = verifair("check", tmp_path, *where)
    assert (every.returncode, every.stderr) == (1, "")
    assert every.stdout.splitlines()[-1] == "4 files: 1 ACCEPTED, 2 NOT READ, 1 WITHOUT PROOFS"
    for name in ("a\nREJECTED.json.gz", "gone.json", "unreadable.json"):
        (tmp_path / name).unlink()
    assert verifair("check", tmp_path, *where).returncode == 1  # nothing is accepted


def test_resume_asks_nothing_twice(german: Path, tmp_path: Path) -> None:
    command = (
        "pba", german / "german.onnx", "--schema", german / "german.toml", "--data", german / "german.csv",
        "--protected", "sex", "--delta", 1, "--store", tmp_path / "v.sqlite",
    )
    # In a process of its own: one that is warm decides everything before it looks at the clock.
    cold = [*RUN, *map(str, command), "--timeout", "0.001", "--json", str(tmp_path / "first.json")]
    first = subprocess.run(cold, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    assert json.loads((tmp_path / "first.json").read_text())["counts"]["unknown"] > 0, "a time-out is unknown"
    second = verifair(*command, "--resume", "--json", tmp_path / "second.json")
    fresh = verifair(*command[:-2], "--json", tmp_path / "fresh.json")
    assert second.returncode == fresh.returncode == 0
    resumed, whole = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("second", "fresh"))
    assert resumed["counts"] == whole["counts"]
    key = ("goal", "delta", "row", "to", "status")
    assert [[v[k] for k in key] for v in resumed["verdicts"]] == [[v[k] for k in key] for v in whole["verdicts"]]


def test_certify_gives_both_answers(german: Path, tmp_path: Path) -> None:
    where = (german / "german.onnx", "--schema", german / "german.toml", "--protected", "sex", "--exit-verdict")
    assert verifair("certify", *where).returncode == 10
    row = datasets.load("german").test.iloc[0]
    box = [part for name in row.index if name not in ("credit", "sex") for part in ("--box", f"{name}={row[name]}")]
    single = verifair("certify", *where, *box, "--certificate", tmp_path / "p.json.gz")
    assert single.returncode in (0, 10), single.stderr
    if single.returncode == 0:
        where = ("--model", german / "german.onnx", "--schema", german / "german.toml")
        assert verifair("check", tmp_path / "p.json.gz", *where).returncode == 0


def test_schema_infer_drafts_a_schema_that_loads(german: Path, tmp_path: Path) -> None:
    answered(
        "schema", "infer", german / "german.csv", "--target", "credit", "--positive", "good", "--protected", "sex",
        "--out", tmp_path / "draft.toml",
    )
    from verifair.schema.schema import Schema

    drafted = Schema.load(tmp_path / "draft.toml")
    assert drafted.protected_names == ("sex",)
    drafted.raw(pd.read_csv(german / "german.csv"))
    again = verifair("schema", "infer", german / "german.csv", "--target", "credit", "--out", tmp_path / "draft.toml")
    assert (again.returncode, "is there already; name another file" in " ".join(again.stderr.split())) == (2, True)
    assert Schema.load(tmp_path / "draft.toml").protected_names == ("sex",)  # what somebody corrected stays
    guessed = verifair("schema", "infer", german / "german.csv", "--target", "credit")
    assert "'good' is taken as the favourable value, as none was named" in " ".join(guessed.stderr.split())
    assert Schema.loads(guessed.stdout).positive_label == "good"


def _model(path: Path, op: str) -> Path:
    weight = numpy_helper.from_array(np.ones((56, 2), dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(op, ["h"], ["y"], name="bend")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 56])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _table(german: Path, path: Path, **changes: object) -> Path:
    frame = pd.read_csv(german / "german.csv", keep_default_na=False).astype(object)
    for column, value in changes.items():
        frame.loc[frame.index[3], column.replace("_", "-")] = value
    frame.to_csv(path, index=False)
    return path


BAD = {
    "missing model": (2, "no.onnx", {"model": "no.onnx"}),
    "missing schema": (2, "no.toml", {"schema": "no.toml"}),
    "missing table": (2, "no.csv", {"data": "no.csv"}),
    "truncated model": (2, "cut.onnx", {"model": "cut.onnx"}),
    "unsupported op": (3, "bend", {"model": "sin.onnx"}),
    "unknown category": (2, "housing", {"data": "category.csv"}),
    "missing value": (2, "duration", {"data": "missing.csv"}),
    "text in a number": (2, "duration", {"data": "text.csv"}),
    "unknown feature": (2, "gender", {"protected": "gender"}),
    "real protected": (2, "duration", {"protected": "amount"}),
    "reversed range": (2, "reversed", {"schema": "reversed.toml"}),
    "no units": (2, "unit", {"schema": "unitless.toml"}),
    "wrong width": (2, "columns", {"schema": "narrow.toml"}),
    "negative delta": (2, "delta", {"delta": -1}),
    "unknown method": (2, "method", {"method": "magic"}),
    "unknown solver": (4, "nosuch", {"method": "milp", "solver": "nosuch"}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_with_the_right_exit_code(case: str, german: Path, tmp_path: Path) -> None:
    code, word, change = BAD[case]
    _bad_files(german, tmp_path)
    given = {"model": "german.onnx", "schema": "german.toml", "data": "german.csv", "protected": "age", "delta": 1} | change
    if given["protected"] == "amount":
        whole, real = 'name = "duration"\nkind = "integer"', 'name = "duration"\nkind = "real"'
        (tmp_path / "german.toml").write_text((german / "german.toml").read_text().replace(whole, real))
        given["protected"] = "duration"
    more = [part for key in ("method", "solver") if key in given for part in (f"--{key}", given[key])]
    done = verifair(
        "pba", given["model"], "--schema", given["schema"], "--data", given["data"], "--protected", given["protected"],
        "--delta", given["delta"], *more, cwd=tmp_path,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or "error" not in done.stdout


def _bad_files(german: Path, folder: Path) -> None:
    for name in ("german.onnx", "german.toml", "german.csv"):
        (folder / name).write_bytes((german / name).read_bytes())
    (folder / "cut.onnx").write_bytes((german / "german.onnx").read_bytes()[:300])
    _model(folder / "sin.onnx", "Sin")
    _table(german, folder / "category.csv", housing="castle")
    _table(german, folder / "missing.csv", duration="")
    _table(german, folder / "text.csv", duration="long")
    schema = (german / "german.toml").read_text()
    (folder / "reversed.toml").write_text(schema.replace("range = [4, 72]", "range = [72, 4]"))
    (folder / "unitless.toml").write_text("\n".join(line for line in schema.splitlines() if not line.startswith("unit = ")))
    head, *features = schema.split("[[feature]]")
    (folder / "narrow.toml").write_text("[[feature]]".join([head, *features[1:]]))


@pytest.mark.parametrize(("verb", "typed", "own"), [
    (("audit",), "--protected", "--sensitive"), (("train",), "--protected", "--sensitive"),
    (("schema", "infer", "t.csv", "--target", "y"), "--sensitive", "--protected"), (("fgce",), "--sensitive", "--protected"),
])
def test_the_other_name_of_a_sensitive_feature_is_told_with_that_of_the_verb(verb: tuple[str, ...], typed: str, own: str) -> None:
    """The nearest spelling was told: --positive for --sensitive."""
    said = " ".join(verifair(*verb, typed, "sex").stderr.split())
    told = said.partition(f"No such option: {typed}")[2]
    assert own in told
    assert "--positive" not in told
    assert own not in verifair("check", "p.json", typed, "sex").stderr


def test_a_table_of_one_group_is_refused(german: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(german / "german.csv", keep_default_na=False)
    frame[frame["age"] == "Senior"].to_csv(tmp_path / "seniors.csv", index=False)
    done = verifair(
        "pba", german / "german.onnx", "--schema", german / "german.toml", "--data", tmp_path / "seniors.csv",
        "--protected", "age", "--delta", 1,
    )
    assert done.returncode == 2
    assert "there is none of Junior" in done.stderr


def test_a_network_that_predicts_the_opposite_is_doubted(german: Path, tmp_path: Path) -> None:
    """PyTorch's files name no classes: exchanged ones show in what the network gets right."""
    rows = pd.read_csv(german / "german.csv").head(60)
    other = {value: next(v for v in rows["credit"].unique() if v != value) for value in rows["credit"].unique()}
    for doubted, labels in ((False, rows["credit"]), (True, rows["credit"].map(other))):
        rows.assign(credit=labels).to_csv(tmp_path / "rows.csv", index=False)
        done = verifair(
            "pba", german / "german.onnx", "--schema", german / "german.toml", "--data", tmp_path / "rows.csv",
            "--protected", "sex", "--delta", 1,
        )
        assert (done.returncode, "is its positive class really the outcome" in " ".join(done.stderr.split())) == (0, doubted)


# `verifair bench` from the command line: one small run, its files, its refusals, and a solver that lies.


SMALL = ("bench", "--cases", "random-wide/4-*", "--cases", "center-german/10-0", "--timeout", 20)


def test_a_small_run_leaves_tables_and_figures(inside: Run, tmp_path: Path) -> None:
    few = ("--methods", "auto,bnb,milp,exact,mip", "--solvers", "highs", "--repeats", 2, "--out", "out")
    code, screen, _ = inside(*SMALL, *few, "--json", "answer.json")
    assert code == 0, screen
    assert "3 cases, 5 competitors, 16 runs of at most 20 s: 8 of 8 answers decided, 0 disagreements." in screen
    out = tmp_path / "out"
    assert all(is_drawn(out / name) for name in ("cactus.png", "profile.png", "jobs.png"))
    runs = pd.read_csv(out / "runs.csv")
    assert len(runs) == 16
    assert set(runs.loc[runs["case"] == "random-wide/4-0", "status"]) == {"proved"}
    assert set(runs.loc[runs["case"] == "random-wide/4-1", "status"]) == {"violated"}
    assert (runs["total_seconds"] > 0).all()
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    assert answer["disagreements"] == []
    assert {job["family"] for job in answer["jobs"]} == {"random-wide", "center-german"}
    assert json.loads((out / "bench.json").read_text(encoding="utf-8"))["records"] == answer["records"]

    code, _, errors = inside(*SMALL, *few)
    assert code == 2
    assert "--resume" in errors
    code, screen, _ = inside(*SMALL, *few, "--resume")
    assert code == 0
    assert (out / "runs.jsonl").read_text(encoding="utf-8").count("\n") == 17
    assert "16 runs" in screen


def test_reasons_stand_in_full_in_a_screen_of_80_columns() -> None:
    names = {("milp", "ortools-scip"): "witness-rejected", ("lp", "ortools-glop"): "relaxation-too-weak"}
    records = [
        record(case=f"pba-german/3-{n}", method=method, solver=solver, status="unknown", reason=reason, total_seconds=0.1234)
        for n in range(6) for (method, solver), reason in names.items()
    ]  # fmt: skip
    screen = StringIO()
    _print_results(comparison(records, 10.0), [], [], Screen(file=screen, width=80))
    lines = [[cell.strip() for cell in line.split("│")] for line in screen.getvalue().splitlines()]
    assert sorted(
        (cells[7] for cells in lines if len(cells) == 9), key=["relaxation too", "weak", "witness", "rejected"].index
    ) == ["relaxation too", "weak", "witness", "rejected"]


def test_without_a_terminal_a_long_run_says_how_far_it_is(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifair.notebook.progress.FIRST", 0.05)
    code, _, errors = inside("bench", "--cases", "random-wide/4-*", "--methods", "bnb", "--repeats", 1, "--out", "out")
    assert code == 0
    assert re.search(r"runs: random-wide/4-\d bnb: \d of 2 \(\d+%\), after \d+ s", errors), errors


def test_the_picture_of_one_case_says_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *where, **how: (
        titles.extend(axis.get_title(loc="left") for axis in figure.axes), save(figure, *where, **how)
    ))  # fmt: skip
    plots.draw(comparison([record()], 10.0), tmp_path, {"f": "size"})
    assert "decisions (PBA, robustness, 2-fairness): 1 case" in titles


def test_a_lie_is_a_disagreement(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(competitors, "competitors", lambda: [Competitor(method="bnb"), Fake(method="lie")])
    code, _, errors = inside("bench", "--cases", "random-wide/4-1", "--repeats", 1, "--out", "out")
    assert code == 6
    assert "proved against violated" in errors
    (saved,) = (tmp_path / "out").glob("disagreement-*.json")
    content = json.loads(saved.read_text(encoding="utf-8"))
    assert {answer["method"] for answer in content["answers"]} == {"bnb", "lie"}
    assert content["cases"]["random-wide/4-1"]["layers"]


def test_the_list_names_cases_competitors_and_what_is_missing(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Competitor(method="marabou", package="no_such_package", remedy='pip install "verifair[peers]"')
    monkeypatch.setattr(competitors, "competitors", lambda: [Competitor(method="auto"), absent])
    code, screen, _ = inside("bench", "--list")
    assert code == 0
    assert "118 cases" in screen
    assert 'pip install "verifair[peers]"' in screen
    code, screen, _ = inside("bench", "--cases", "random-wide/4-0", "--repeats", 1, "--out", "out")
    assert code == 0
    assert 'marabou was not asked: not installed; pip install "verifair[peers]"' in screen


@pytest.mark.parametrize(("wrong", "said"), [
    (("--cases", "nothing/*"), "no case is called so"), (("--solvers", "cplex"), "--solvers cplex: is not known"),
    (("--methods", "magic"), "--methods magic: is not known"), (("--timeout", 0), "--timeout 0: expected a number above 0"),
    (("--quick", "--cases", "pba-*"), "--quick chooses its own cases"),
    (("--cases", "center-german/10-0", "--methods", "lp"), "takes any of these cases; leave --methods and --solvers out"),
])
def test_what_cannot_be_asked_is_refused(refused: Callable[..., str], wrong: tuple[object, ...], said: str) -> None:
    assert said in refused("bench", *wrong)


def test_a_bench_whose_cluster_is_not_there_begins_nothing(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="--cluster needs dask: pip install 'verifair[distributed]'")

    def refused(address: str) -> None:
        raise ClusterError(f"--cluster {address}: no dask scheduler answers there")

    monkeypatch.setattr("verifair.engine.cluster._connected", refused)
    words = ("bench", "--cases", "random-wide/4-0", "--methods", "auto", "--repeats", 1, "--out", "b")
    assert inside(*words, "--cluster", "tcp://127.0.0.1:9")[0] == 4
    assert inside(*words)[0] == 0
    code, _, errors = inside(*words, "--jobs", 2, "--resume")
    assert (code, "measured by 1 process there, 2 processes now" in errors) == (2, True), errors


CUT = {
    "check": ("verifair.checker.check.check", ("proof.json", "--demo", "german"), "interrupted: nothing is accepted"),
    "verify": ("encoders.vnnlib.reader.read_vnnlib", ("query.vnnlib",), "interrupted: nothing is kept"),
    "train": ("verifair.training.train", ("--data", "german", "--out", "n.onnx"), "interrupted: nothing is kept"),
    "export": (
        "verifair.interop.export.export", ("--demo", "german", "--protected", "sex", "--vnnlib", "q"),
        "interrupted: q holds some of the queries only: delete it",
    ),
    "audit": ("verifair.auditing.run.run", ("--demo", "german", "--out", "a.html"), "interrupted: finished analyses are kept"),
    "bench": ("verifair.bench.run.run", ("--quick", "--out", "b"), "interrupted: b keeps what was measured; continue with"),
    "doctor": ("verifair.cli.output.ending", (), "interrupted: nothing is kept"),
}
"""Verb -> what Ctrl-C ends (of doctor: modules being loaded), arguments, and what is told."""


@pytest.mark.parametrize("verb", CUT)
def test_ctrl_c_ends_every_verb_alike(verb: str, inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    where, arguments, told = CUT[verb]
    (tmp_path / "proof.json").write_text(f'{{"format": "{Certificate.FORMAT}"}}', encoding="utf-8")
    monkeypatch.setattr(where, cut)
    code, _, errors = inside(verb, *arguments)
    assert (code, errors.count("interrupted")) == (130, 1), errors
    assert told in errors
