"""kmax, explain and guard on the shipped models: what is found, written, checked, and refused."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_logits
from tests.command_line import answered, german_files, verifair
from verifair import datasets
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.hyfair.explain.rules import refused
from verifair.systems.hyfair.kmax.tables import SEARCHES
from verifair.systems.hyfair.search import annealing
from verifair.training.onnx_writer import onnx_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German Credit as files, explained with everything written."""
    folder = tmp_path_factory.mktemp("german")
    german_files(folder, datasets.load("german").frame)
    done = answered(
        "explain", "german.onnx", "--schema", "german.toml", "--data", "german.csv", "--protected", "sex", "--protected", "age",
        "--iterations", 100, "--samples", 3000, "--lime", "--out", "explain", "--json", "explain.json", cwd=folder,
    )
    assert "not proofs" in done.stdout
    assert "verifair guard german.onnx --schema german.toml --rules explain/rules.json" in done.stdout
    return folder


def test_explain_writes_rules_text_and_picture(folder: Path) -> None:
    answer = json.loads((folder / "explain" / "rules.json").read_text())
    assert answer["rules"]
    for rule in answer["rules"]:
        assert rule["evidence"]["difference"] >= 0.05 * 4
        assert rule["size"] == len(rule["when"])
        assert rule["evidence"]["difference"] == pytest.approx(rule["evidence"]["inside"] - rule["evidence"]["negated"])
    text = (folder / "explain" / "rules.txt").read_text()
    assert answer["rules"][0]["words"] in text
    assert text.startswith("k: the number of outcome buckets that a person falls into if only ")
    assert (folder / "explain" / "rules.png").read_bytes().startswith(b"\x89PNG")
    assert {line["method"] for line in answer["lime"]} == {"LIME", "rules"}
    written = json.loads((folder / "explain.json").read_text())
    assert written["proof"] is False
    assert written["rules"] == answer["rules"]


def test_the_same_seed_explains_the_same(folder: Path) -> None:
    for name, seed in (("again", 0), ("other", 1)):
        answered(
            "explain", "german.onnx", "--schema", "german.toml", "--data", "german.csv", "--protected", "sex", "--protected", "age",
            "--iterations", 100, "--samples", 3000, "--seed", seed, "--out", name, cwd=folder,
        )
    folders = ("explain", "again", "other")
    first, again, other = (json.loads((folder / name / "rules.json").read_text())["rules"] for name in folders)
    assert first == again
    assert first != other


def test_guard_refuses_what_the_rules_say_and_its_schema_too(folder: Path) -> None:
    answered(
        "guard", "german.onnx", "--schema", "german.toml", "--rules", "explain/rules.json", "--data", "german.csv",
        "--out", "guarded.onnx", "--iterations", 50, "--json", "guard.json", cwd=folder,
    )
    dataset = datasets.load("german")
    raw = dataset.schema.raw(dataset.frame)
    rules = rules_file.load(folder / "explain" / "rules.json", dataset.schema).rules
    session = onnxruntime.InferenceSession((folder / "guarded.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    logits, abstain = session.run(["logits", "abstain"], {"x": dataset.schema.encode(raw).astype(np.float32)})
    assert (abstain == refused(rules, raw)).all()
    assert np.isnan(logits[abstain]).all()
    assert np.isfinite(logits[~abstain]).all()
    assert (Schema.load(folder / "guarded.toml").inside(raw) == ~abstain).all()
    before, after = json.loads((folder / "guard.json").read_text())["effects"]
    assert (before["intervention"], after["intervention"]) == ("original", "original + rules")
    assert before["abstained"] == 0
    held_out = dataset.schema.raw(dataset.test)
    assert after["abstained"] == pytest.approx(refused(rules, held_out).mean())
    assert after["local_success"] < before["local_success"]


def test_explain_and_guard_combine_the_values_that_are_listed(folder: Path) -> None:
    listed = ("--protected", "sex", "--protected", "duration", "--values", "duration=6:36:6")
    answered(
        "explain", "german.onnx", "--schema", "german.toml", *listed, "--data", "german.csv", "--iterations", 30,
        "--samples", 1000, "--out", "listed", cwd=folder,
    )
    query = json.loads((folder / "listed" / "rules.json").read_text())["query"]
    assert query["values"] == {"duration": [6, 12, 18, 24, 30, 36]}
    guard = ("guard", "german.onnx", "--schema", "german.toml", "--rules", "listed/rules.json", "--iterations", 30)
    largest = []
    for name, extra in (("same", ()), ("two", ("--values", "duration=6,7"))):
        answered(*guard, *extra, "--out", f"{name}.onnx", "--json", f"{name}.json", cwd=folder)
        largest.append(json.loads((folder / f"{name}.json").read_text())["effects"][0]["max_k"])
    assert largest[1] <= 4 < largest[0] <= 12, "the rules' own values are asked again, unless the command line lists others"


def test_guard_retrains(folder: Path) -> None:
    pytest.importorskip("torch")
    answered(
        "guard", "german.onnx", "--schema", "german.toml", "--rules", "explain/rules.json", "--data", "german.csv",
        "--out", "g/guarded.onnx", "--retrain", "g/retrained.onnx", "--iterations", 50, "--json", "retrain.json", cwd=folder,
    )
    answer = json.loads((folder / "retrain.json").read_text())
    assert [e["intervention"] for e in answer["effects"]] == ["original", "original + rules", "retrained", "retrained + rules"]
    assert answer["instances"]["rows"] == 4 * answer["instances"]["people"] > 0
    assert (folder / "g" / "retrained.onnx").stat().st_size > 0


SMALL = {
    "duration": "12:24", "status": "no account", "age": "Senior", "housing": "own", "purpose": "television",
    "savings": "< 100 DM", "other-debtors": "no other", "installment-plans": "no plans", "people-liable": 1,
    "foreign-worker": "yes", "telephone": "no", "credit-amount": "1000:3000", "job": "skilled",
}
"""A part of German Credit in which gaps between sexes are small, and small targets are proved soon."""


def test_guard_answers_where_the_target_is_proved_and_keeps_to_a_box(folder: Path) -> None:
    box = [word for name, value in SMALL.items() for word in ("--box", f"{name}={value}")]
    done = answered(
        "guard", "german.onnx", "--schema", "german.toml", "--data", "german.csv", "--protected", "sex", "--target", 0.12, *box,
        "--out", "tight.onnx", "--timeout", 120, "--iterations", 10, "--json", "tight.json",
        "--certificate", "new/folder/tight.json.gz", cwd=folder,
    )
    assert "The certified gap falls to 0.12" in done.stdout
    assert "outcome buckets" not in done.stdout, "of two sexes k is 2 at most"
    assert "--protected sex --box duration=12:24 --box 'status=no account'" in " ".join(done.stdout.split())
    answer = json.loads((folder / "tight.json").read_text())
    assert answer["certified"]["upper"] == 0.12 < answer["certified"]["before"]["lower"]
    rules = rules_file.load(folder / "tight.rules.json", datasets.load("german").schema).rules
    assert len(rules) == len(answer["rules"]) > 0
    checked = verifair("check", "new/folder/tight.json.gz", "--model", "german.onnx", "--schema", "tight.toml", cwd=folder)
    assert checked.returncode == 0, checked.stdout
    assert "where status = no account, duration = 12 .. 24" in checked.stdout


def test_proofs_of_a_target_besides_rules_are_about_the_schema_that_is_written(folder: Path) -> None:
    box = [word for name, value in SMALL.items() for word in ("--box", f"{name}={value}")]
    (folder / "given.json").write_text(json.dumps({"rules": [{"when": {"duration": {"low": 22}}}]}))
    answered(
        "guard", "german.onnx", "--schema", "german.toml", "--data", "german.csv", "--protected", "sex", "--target", 0.12, *box,
        "--rules", "given.json", "--out", "both.onnx", "--timeout", 60, "--iterations", 10, "--certificate", "both.json.gz",
        cwd=folder,
    )
    checked = verifair("check", "both.json.gz", "--model", "german.onnx", "--schema", "both.toml", cwd=folder)
    assert checked.returncode == 0, checked.stdout


def test_a_written_rule_needs_only_its_conditions(folder: Path) -> None:
    (folder / "hand.json").write_text(json.dumps({"rules": [{"when": {"duration": {"high": 60}}}]}))
    done = answered(
        "guard", "german.onnx", "--schema", "german.toml", "--rules", "hand.json", "--out", "by hand.onnx", "--iterations", 10,
        cwd=folder,
    )
    assert "wrote by hand.onnx (1 rule) and by hand.toml" in done.stdout
    assert "verifair certify german.onnx --schema 'by hand.toml' --protected" in done.stdout
    schema = Schema.load(folder / "by hand.toml")
    raw = np.tile(schema.domain.lower, (2, 1))
    raw[:, schema.index("duration")] = (60, 61)
    assert schema.inside(raw).tolist() == [False, True]


def test_explain_keeps_to_a_box(folder: Path) -> None:
    box = ("--box", "duration=6:24", "--box", "status=no account")
    done = answered(
        "explain", "german.onnx", "--schema", "german.toml", "--protected", "sex", "--protected", "age", "--iterations", 30,
        "--samples", 1000, *box, "--out", "boxed", cwd=folder,
    )
    assert "within the box" in done.stdout
    (cluster,) = json.loads((folder / "boxed" / "rules.json").read_text())["clusters"]
    assert 6 <= cluster["x"]["duration"] <= 24
    assert cluster["x"]["status"] == "no account"


def test_a_guarded_schema_is_guarded_again(folder: Path) -> None:
    """Three times; the last network refuses all that its schema forbids, so that proofs about the schema hold for its answers."""
    schema = "german.toml"
    for k, when in enumerate(({"duration": {"low": 60}}, {"credit-amount": {"high": 1000}}, {"housing": "rent"})):
        (folder / "again.json").write_text(json.dumps({"rules": [{"when": when}]}))
        done = answered(
            "guard", "german.onnx", "--schema", schema, "--rules", "again.json", "--out", f"again{k}.onnx", "--iterations", 10,
            cwd=folder,
        )
        assert (f"and {k} of an earlier guardrail" in " ".join(done.stdout.split())) == (k > 0)
        schema = f"again{k}.toml"
    dataset = datasets.load("german")
    raw = dataset.schema.raw(dataset.frame)
    session = onnxruntime.InferenceSession((folder / "again2.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    (abstain,) = session.run(["abstain"], {"x": dataset.schema.encode(raw).astype(np.float32)})
    assert (Schema.load(folder / "again2.toml").inside(raw) == ~abstain).all()
    assert 0 < abstain.mean() < 1
    done = verifair("guard", "again0.onnx", "--schema", schema, "--rules", "again.json", "--out", "more.onnx", cwd=folder)
    assert done.returncode == 3
    assert "again0.onnx: is guarded already; pass the model itself" in done.stderr
    names = [constraint.name for constraint in Schema.load(folder / "again2.toml").constraints]
    assert len(set(names)) == len(names) == 3


@pytest.mark.parametrize(("module", "function", "call", "command", "said"), [
    ("explain.rounds", "search_clusters", 1, ("explain", "--rounds", 2, "--out", "cut"), "interrupted: no cluster was explained"),
    ("explain.rounds", "explain", 2, ("explain", "--rounds", 3, "--out", "cut"), "1 of 3 clusters were explained"),
    ("guard.tighten", "verify", 2, ("guard", "--target", 0.3, "--out", "cut.onnx"), "interrupted: nothing was written"),
    (
        "guard.effects", "search_clusters", 2, ("guard", "--rules", "one.json", "--out", "cut2.onnx"),
        "cut2.onnx and cut2.toml are written",
    ),
])
def test_ctrl_c_ends_it_and_says_what_stands(
    module: str, function: str, call: int, command: tuple[object, ...], said: str, folder: Path,
    ctrl_c: Callable[..., None],
) -> None:
    (folder / "one.json").write_text(json.dumps({"rules": [{"when": {"duration": {"low": 40}}}]}))
    ctrl_c(importlib.import_module(f"verifair.systems.hyfair.{module}"), function, call)
    done = verifair(*command, "--demo", "german", "--iterations", "60", "--timeout", "20", cwd=folder)
    assert (done.returncode, said in " ".join(done.stderr.split())) == (130, True), done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "cut" / "rules.json").exists() == ("1 of 3" in said) or command[0] == "guard"
    assert not (folder / "cut.onnx").exists()


BAD = {
    "no rules": (("guard", "--demo", "german", "--out", "x.onnx"), "--rules"),
    "missing file": (("guard", "--demo", "german", "--rules", "no.json", "--out", "x.onnx"), "no.json"),
    "empty": (("guard", "--demo", "german", "--rules", "empty.json", "--out", "x.onnx"), "no rule"),
    "all refused": (("guard", "--demo", "german", "--rules", "all.json", "--out", "x.onnx"), "no row"),
    "data refused": (("guard", "--demo", "german", "--rules", "rows.json", "--out", "x.onnx"), "refuse all"),
    "name": (("guard", "--demo", "german", "--rules", "one.json", "--out", "x.pb"), ".onnx"),
    "protected": (("guard", "--demo", "german", "--rules", "sex.json", "--out", "x.onnx"), "protected"),
    "retrain": (("guard", "german.onnx", "--schema", "german.toml", "--rules", "one.json", "--out", "x.onnx",
                 "--retrain", "r.onnx"), "--data"),
    "no data": (("guard", "german.onnx", "--schema", "german.toml", "--target", 0.3, "--out", "x.onnx"), "--data"),
    "target": (("guard", "--demo", "german", "--target", 3, "--out", "x.onnx"), "target"),
    "measure": (("explain", "--demo", "german", "--measure", "spread"), "k or gap"),
    "nothing to search": (("explain", "--demo", "german", "--protected", "gender"), "gender"),
    "samples": (("explain", "--demo", "german", "--samples", 3), "samples"),
    "no high leaf": (("explain", "--demo", "german", "--purity", 1, "--depth", 1, "--iterations", 5), "no leaf"),
    "delta": (("explain", "--demo", "german", "--delta", "nan"), "delta"),
    "out is a file": (("explain", "--demo", "german", "--out", "german.toml"), "is a file; name a folder"),
    "iterations": (("guard", "--demo", "german", "--rules", "one.json", "--out", "x.onnx", "--iterations", -5), "at least 1"),
    "proof": (("guard", "--demo", "german", "--rules", "one.json", "--out", "x.onnx", "--certificate", "p.json"), "add --target"),
    "same file": (("guard", "--demo", "german", "--rules", "one.json", "--out", "x.onnx", "--retrain", "./x.onnx"), "same file"),
    "protected here": (("guard", "--demo", "german", "--rules", "one.json", "--out", "x.onnx", "--protected", "duration"),
                       "'duration', which is protected"),
    "query": (("guard", "--demo", "german", "--rules", "query.json", "--out", "x.onnx"), "query.json: query is not as"),
    "box": (("guard", "--demo", "german", "--rules", "box.json", "--out", "x.onnx"), "box.json: query.box is not as"),
    "clusters": (("guard", "--demo", "german", "--rules", "clusters.json", "--out", "x.onnx"), "a list of people"),
    "two sources": (("explain", "german.onnx", "--demo", "german"), "--demo"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_clear_line(case: str, folder: Path) -> None:
    rules = {
        "empty": [], "one": [{"when": {"duration": {"low": 40}}}], "sex": [{"when": {"sex": "Male"}}],
        "all": [{"when": {"duration": {"high": 30}}}, {"when": {"duration": {"low": 31}}}],
        "rows": [{"when": {"credit-amount": {"high": 18424, "low": 250}, "people-liable": {"high": 2}, "duration": {"high": 71}}},
                 {"when": {"duration": {"low": 72}, "credit-amount": {"high": 10000}}}],
    }
    for name, listed in rules.items():
        (folder / f"{name}.json").write_text(json.dumps({"rules": listed}))
    for name, more in (("query", {"query": 3}), ("box", {"query": {"box": 3}}), ("clusters", {"clusters": 5})):
        (folder / f"{name}.json").write_text(json.dumps({"rules": rules["one"], **more}))
    arguments, word = BAD[case]
    done = verifair(*arguments, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "x.onnx").exists()


def test_help_shows_an_example() -> None:
    for verb in ("explain", "guard"):
        assert f"Example: verifair {verb}" in " ".join(verifair(verb, "--help").stdout.split())


# verifair kmax as a user meets it.


def test_kmax_has_no_bucket_for_a_combination_that_a_constraint_forbids(tmp_path: Path) -> None:
    features = (("sex", "F", "M"), ("relation", "husband", "wife"))
    text = "".join(f'[[feature]]\nname = "{name}"\nkind = "categorical"\ncategories = {json.dumps(of)}\n' for name, *of in features)
    rule = '[[constraint]]\nif = { relation = "husband" }\nthen = { sex = "M" }\n'
    (tmp_path / "s.toml").write_text(f'[model]\npositive = "logit > 0"\n{text}[[feature]]\nname = "age"\nkind = "integer"\n'
                                     f"range = [0, 1]\n{rule}")
    weights = [(np.ones((1, 3), np.float32), np.zeros(1, np.float32))]
    (tmp_path / "m.onnx").write_bytes(onnx_model(weights, {}).SerializeToString())
    asked = ("--protected", "sex", "--protected", "relation", "--timeout", 2, "--json", "k.json")
    assert "(3 combinations" in answered("kmax", "m.onnx", "--schema", "s.toml", *asked, cwd=tmp_path).stdout
    found = json.loads((tmp_path / "k.json").read_text())
    by = {tuple(one["combination"].values()): one["bucket"] for one in found["bound"]["outcomes"]}
    assert [pair for pair, bucket in by.items() if bucket is None] == [("F", "husband")]
    assert len(set(by.values()) - {None}) == found["bound"]["lower"] == found["lower"]
    assert len(found["outcomes"]) == 3


def where(folder: Path) -> tuple[object, ...]:
    return folder / "german.onnx", "--schema", folder / "german.toml", "--protected", "sex", "--protected", "age"


def test_answer_plot_and_json_agree_with_the_runtime(german: Path, tmp_path: Path) -> None:
    done = answered(
        "kmax", *where(german), "--data", german / "german.csv", "--buckets", 10, "--timeout", 4,
        "--json", tmp_path / "k.json", "--plot", tmp_path / "k.png", "--certificate", tmp_path / "proof.json.gz",
    )
    answer = json.loads((tmp_path / "k.json").read_text())
    assert f"k = {answer['lower']}: this person falls into {answer['lower']} of 10 outcome buckets" in " ".join(done.stdout.split())
    assert 1 <= answer["lower"] <= answer["upper"] <= answer["query"]["combinations"]
    assert answer["gap"] == answer["upper"] - answer["lower"]
    assert answer["search"]["proof"] is False
    assert answer["search"]["k"] <= answer["lower"]
    for name in ("k.png", "proof.json.gz"):
        assert (tmp_path / name).stat().st_size > 0
    network, schema = read_onnx(german / "german.onnx"), Schema.load(german / "german.toml")
    names = [feature.name for feature in schema.features]
    people = [{**answer["witness"], **{p: line[p] for p in ("sex", "age")}} for line in answer["outcomes"]]
    raw = np.array([[schema.raw_value(name, person[name]) for name in names] for person in people])
    assert schema.inside(raw).all()
    logits = runtime_logits(network, schema.encode(raw))
    values = logits[:, 0] if network.outputs == 1 else logits[:, 1] - logits[:, 0]
    probability = 1 / (1 + np.exp(-values))
    assert probability == pytest.approx([line["probability"] for line in answer["outcomes"]], abs=1e-5)
    assert len(set(np.floor(10 * probability))) == answer["runtime_k"]


def test_nobody_depends_on_protected_values(german: Path, tmp_path: Path) -> None:
    """Two wide buckets and one person whose two probabilities lie in the same one: k = 1 is all there is."""
    dataset = datasets.load("german")
    row = dataset.test.iloc[10]
    box = [part for name in row.index if name not in ("credit", "sex") for part in ("--box", f"{name}={row[name]}")]
    files = german / "german.onnx", "--schema", german / "german.toml"
    done = answered("kmax", *files, "--protected", "sex", *box, "--buckets", 2, "--timeout", 2, "--plot", tmp_path / "k.png")
    assert "if only sex changes (" in " ".join(done.stdout.split())
    assert "k = 1" in done.stdout
    assert "none had k >= 2" in " ".join(done.stdout.split())
    assert "nan" not in done.stdout
    assert (tmp_path / "k.png").stat().st_size > 0


@pytest.mark.parametrize("method", ["rw", "sa-knn"])
def test_every_search_runs(german: Path, tmp_path: Path, method: str) -> None:
    done = answered(
        "kmax", *where(german), "--data", german / "german.csv", "--search", method, "--no-bound", "--timeout", 1,
        "--json", tmp_path / "k.json",
    )
    assert "No upper bound was certified" in " ".join(done.stdout.split())
    assert f"Search ({SEARCHES[method]}, seed 0)" in " ".join(done.stdout.split())
    answer = json.loads((tmp_path / "k.json").read_text())
    assert answer["upper"] is None
    assert answer["search"]["method"] == method
    assert answer["search"]["statistics"]["rows"] > 0


@pytest.mark.parametrize(("extra", "message"), [
    (["--search", "hill"], "--search hill: expected rw, sa or sa-knn"),
    (["--search", "sa-knn"], "pass --data TABLE"),
    (["--values", "age"], "expected feature=low:high:step"),
    (["--values", "age=Senior"], "at least two different legal values"),
    (["--values", "credit-amount=300:500:0"], "positive step"),
    (["--box", "age=Senior"], "the feature is protected"),
    (["--buckets", "1"], "--buckets 1: expected a whole number"),
    (["--chains", "0"], "--chains 0: expected a whole number from 1 to 100000, such as 64"),
    (["--timeout", "0"], "--timeout 0: expected a number above 0"),
    (["--no-bound", "--certificate", "x.json"], "--certificate and --no-bound exclude each other: drop one"),
    (["--data", "missing.csv"], "no such file"),
    (["--protected", "sex"], "named twice"),
    (["--values", "credit-amount=300:1e300:1"], "more than 1,000 values"),
    (["--certificate", "."], "--certificate .: is a folder; name a file in it"),
    (["--json", "x.json", "--certificate", "x.json"], "--json and --certificate name the same file"),
])
def test_mistakes_are_one_line(german: Path, extra: list[str], message: str) -> None:
    done = verifair("kmax", *where(german), *extra)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_protected_feature_it_says_which_there_are(german: Path) -> None:
    done = verifair("kmax", german / "german.onnx", "--schema", german / "german.toml")
    assert done.returncode == 2
    assert "pass --protected NAME (protected in the schema:" in done.stderr


def test_help_has_an_example() -> None:
    assert "Example: verifair kmax" in " ".join(verifair("kmax", "--help").stdout.split())


def test_ctrl_c_shows_the_best_so_far(german: Path, tmp_path: Path, ctrl_c: Callable[..., None]) -> None:
    ctrl_c(annealing._Walk, "step", 20, after=True)
    row = datasets.load("german").test.iloc[0]
    fixed = [name for name in row.index if name not in ("credit", "sex", "age", "credit-amount")]
    box = [part for name in fixed for part in ("--box", f"{name}={row[name]}")]  # where two buckets are not to be had
    command = ["kmax", *map(str, where(german)), "--buckets", "2", "--timeout", "200", *box, "--json", str(tmp_path / "k.json")]
    done = verifair(*command, "--certificate", tmp_path / "proof.json")
    assert done.returncode == 130, done.stderr
    assert "k = 1: this person" in done.stdout
    assert "no certificate was written: the search was interrupted" in done.stdout
    assert "interrupted: this is the best found until then" in " ".join(done.stderr.split())
    answer = json.loads((tmp_path / "k.json").read_text())
    assert answer["search"]["statistics"]["stopped"] == "interrupted"
    assert answer["search"]["statistics"]["iterations"] == 20
    assert answer["bound"] is None
