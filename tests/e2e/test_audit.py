"""verifair audit on files of one's own: the verbs' numbers, proofs that check, what is skipped, interrupted and resumed."""

import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from solvers.outcome import Budget
from tests.builders import categorical, integer
from tests.command_line import RUN, Run
from verifair import datasets
from verifair.engine.queries import IndividualFairness
from verifair.engine.verdict import Reason, Status, Verdict
from verifair.errors import ClusterError, Disagreement
from verifair.schema.schema import Schema
from verifair.systems.hyfair.certify import solve
from verifair.systems.results.findings import Section
from verifair.training.onnx_writer import onnx_model

HEAD = """
title = "Ours"
effort = 60
timeout = 600
[model]
file = "net.onnx"
[schema]
file = "schema.toml"
[data]
file = "rows.csv"
[sensitive]
features = ["sex"]
"""
PBA = "[analyses.pba]\ndelta = [1]\n"
KMAX = "[analyses.kmax]\neffort = 20\n"
CST = '[analyses.cst]\ncausal = "causal.toml"\nk = [15]\n'


def files(folder: Path, analyses: str, *, head: str = HEAD, rows: int = 250) -> Path:
    """A model, schema, table and causal model under names of their own, and the audit file."""
    data = datasets.network_path("german").parent
    folder.mkdir(exist_ok=True)
    for name, ours in (("german.onnx", "net.onnx"), ("german.toml", "schema.toml"), ("german.causal.toml", "causal.toml")):
        (folder / ours).write_bytes((data / name).read_bytes())
    causal = (folder / "causal.toml").read_text().replace('do = { sex = "Male", age = "Senior" }', 'do = { sex = "Male" }')
    (folder / "causal.toml").write_text(causal.replace("german.onnx", "net.onnx").replace("german.toml", "schema.toml"))
    datasets.german().frame.head(rows).to_csv(folder / "rows.csv", index=False)
    (folder / "audit.toml").write_text(head + analyses)
    return folder / "audit.toml"


def answer(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def section(path: Path, key: str) -> dict[str, Any]:
    return next(one for one in answer(path)["sections"] if one["key"] == key)


def without(content: Any, *names: str) -> Any:
    """The same without some keys, at any depth."""
    if isinstance(content, dict):
        return {key: without(value, *names) for key, value in content.items() if key not in names}
    return [without(one, *names) for one in content] if isinstance(content, list) else content


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """Where two contents differ, as paths with both values."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{at}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [found for n, pair in enumerate(zip(one, other, strict=True)) for found in differences(*pair, f"{at}[{n}]")]
    return [] if one == other else [f"{at}: {str(one)[:200]} | {str(other)[:200]}"]


def test_sections_have_the_verbs_numbers_and_their_proofs_check_as_the_page_says(inside: Run, tmp_path: Path) -> None:
    files(tmp_path, PBA + KMAX + CST + "draws = 2\n")
    code, screen, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert code == 0, errors
    assert "page: report.html" in screen
    own, data = ("net.onnx", "--schema", "schema.toml"), ("--data", "rows.csv")
    assert inside("pba", *own, *data, "--protected", "sex", "--delta", "1", "--json", "pba.json")[0] == 0
    assert inside("kmax", *own, *data, "--protected", "sex", "--timeout", "20", "--json", "kmax.json")[0] == 0
    assert inside("cst", *own, *data, "--causal", "causal.toml", "--k", "15", "--draws", "2", "--json", "cst.json")[0] == 0
    report = tmp_path / "report.json"
    pba = section(report, "pba")["answer"]
    for key in ("counts", "rates", "shares"):
        assert pba[key] == answer(tmp_path / "pba.json")[key]
    kmax, verb = section(report, "kmax")["answer"], answer(tmp_path / "kmax.json")
    for key in ("lower", "upper", "witness", "outcomes"):
        assert kmax[key] == verb[key]
    tests = section(report, "cst")["answer"]["tests"]
    assert tests == without(answer(tmp_path / "cst.json")["tests"], "claims")
    assert tests[0]["draws"]["seeds"] == [0, 1]
    counted = next(one for one in tests[0]["counts"] if one["method"] == "CST")
    said = section(report, "cst")["statements"][0]["text"]
    assert said.startswith(f"For {counted['significant']} of {tests[0]['complainants']} ")
    assert f"more than {kmax['upper']}" in section(report, "kmax")["statements"][1]["text"]
    proofs = [proof for one in answer(report)["sections"] for proof in one["evidence"]]
    assert {proof["checked"] for proof in proofs} == {"accepted"}
    for proof in (proofs[0], proofs[-1]):
        _, *arguments = shlex.split(proof["command"])
        code, printed, errors = inside(*arguments)
        assert (code, "ACCEPTED" in printed) == (0, True), errors
    _, _, every = screen.rpartition(" && verifair ")
    code, printed, errors = inside(*shlex.split(every))
    assert (code, printed.endswith(f" {len(proofs)} files: {len(proofs)} ACCEPTED")) == (0, True), errors
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script src" not in page
    assert "Ours" in page
    assert not (tmp_path / "report.files.part").exists()


def test_counts_of_pba_add_up_and_are_those_of_the_proved_shares(inside: Run, tmp_path: Path) -> None:
    """The sentence counts people by whom a value favours; its proofs are the shares' of both settings together."""
    files(tmp_path, PBA + "robustness = false\n")
    assert inside("audit", "audit.toml", "--out", "report.html")[0] == 0
    found = section(tmp_path / "report.json", "pba")
    proved = sum(one["proved"] for one in found["answer"]["shares"] if one["metric"] == "PBA")
    text = next(one["text"] for one in found["statements"] if one["headline"])
    raises, lowers = (int(found.replace(",", "")) for found in re.findall(r"for ([\d,]+) of", text))
    assert raises + lowers == proved > 0
    (biased,) = found["answer"]["biased"]
    assert biased["proved"] == proved  # of two values


def test_a_question_that_another_step_has_refuted_is_not_called_undecided(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody of the table is decided otherwise: that refutes the question also where its own verdict ran out of time."""
    real = solve.verify

    def late(query: IndividualFairness, *, budget: Budget, method: str, solver: str | None) -> Verdict:
        return replace(real(query, budget=budget), status=Status.UNKNOWN, reason=Reason.TIME, witness=None, certificate=None)

    monkeypatch.setattr(solve, "verify", late)
    for box, known in (("", True), ("box = { duration = 6, credit-amount = 1000, housing = 'own', job = 'skilled' }\n", False)):
        files(tmp_path, f"[analyses.certify]\nmaximise = false\n{box}")
        assert inside("audit", "audit.toml", "--out", "report.html")[0] == 0
        (_, one) = section(tmp_path / "report.json", "certify")["statements"]
        assert one["standing"] == ("refuted" if known else "unknown")
        said = "exact counterexample: a decision changes with sex alone. The person of row " if known else "was not decided (time)"
        assert said in one["text"]


def test_of_three_classes_one_has_a_name(inside: Run, tmp_path: Path) -> None:
    """The favourable class is called as in the schema, the others by their numbers; everybody is counted once."""
    weights = [(np.array([[1, 0.1], [-1, 0.1], [1, -0.1], [0.5, 0]], np.float32), np.array([-7, 3, 0, 0], np.float32)),
               (np.array([[0, 2, 0, 0], [0, 0, 0, 0.8], [3, 0, 0, 0.3]], np.float32), np.zeros(3, np.float32))]
    (tmp_path / "net.onnx").write_bytes(onnx_model(weights, {}).SerializeToString())
    age = integer("age", 0, 10, unit=1)
    sex = categorical("sex", "f", "m", protected=True)
    described = {"features": [age, sex], "label": "y", "positive": "class = 1", "outcomes": ("refused", "granted")}
    Schema.build(described).save(tmp_path / "schema.toml")
    x = np.array([[age, sex] for age in range(11) for sex in (0, 1)], np.float32)
    label = np.maximum(x @ weights[0][0].T + weights[0][1], 0) @ weights[1][0].T
    table = {"age": x[:, 0].astype(int), "sex": np.where(x[:, 1], "m", "f"), "y": label.argmax(axis=1)}
    pd.DataFrame(table).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "audit.toml").write_text(HEAD + PBA)
    code, _, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert code == 0, errors
    asked = section(tmp_path / "report.json", "pba")
    shares = next(one for one in asked["tables"] if one["title"] == "Proved shares")
    place = shares["columns"].index("true outcome")
    assert {row[place] for row in shares["rows"]} <= {"granted", "class 0", "class 2"}
    assert {"class 1"} < {one["label"] for one in asked["answer"]["shares"]} <= {"class 0", "class 1", "class 2"}
    assert "granted" in {row[place] for row in shares["rows"]}


def test_what_fails_only_for_possible_people_is_on_the_first_screen(inside: Run, tmp_path: Path) -> None:
    """Nobody of this table of one row is decided otherwise; the summary must not end there."""
    files(tmp_path, "[analyses.certify]\nmaximise = false\n", rows=1)
    assert inside("audit", "audit.toml", "--out", "report.html")[0] == 0
    first = [one for one in section(tmp_path / "report.json", "certify")["statements"] if one["headline"]]
    assert [one["standing"] for one in first] == ["measured", "refuted"]
    assert first[0]["text"].startswith("Nobody of the table (1 row) would be")


def test_the_share_of_possible_people_is_on_the_page_with_its_proof(inside: Run, tmp_path: Path) -> None:
    fixed = {name: value for name, value in datasets.german().frame.iloc[0].items() if name not in ("sex", "age", "credit")}
    fixed |= {"duration": [6, 9], "credit-amount": [1000, 1100]}
    box = "box = { " + ", ".join(f"{name} = {json.dumps(value, default=int)}" for name, value in fixed.items()) + " }"
    files(tmp_path, f"[analyses.certify]\nshare = true\ntolerance = 0.3\neffort = 10\n{box}\n")
    code, _, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert code == 0, errors
    found = section(tmp_path / "report.json", "certify")
    share = found["answer"]["by_feature"][0]["share"]
    assert 0 <= share["fair"] <= 1 - share["unfair"] <= 1
    (said,) = [one for one in found["statements"] if "all combinations of values alike" in one["text"]]
    assert said["standing"] == "proved"
    assert said["text"].startswith("For at least ")
    assert ("are open" in said["text"]) == (share["reason"] is not None)
    proofs = [one for one in found["evidence"] if "/share-sex-" in one["file"]]
    assert [one["checked"] for one in proofs] == ["accepted"]
    assert any(one["title"].startswith("For how many people") for one in found["pictures"])


def test_a_share_says_where_nobody_of_the_table_can_be_compared(inside: Run, tmp_path: Path) -> None:
    files(tmp_path, "[analyses.certify]\nshare = true\n")
    rule = '[[constraint]]\nnever = { sex = "F", a = { low = 2 } }\n'
    (tmp_path / "schema.toml").write_text(
        '[model]\npositive = "logit > 0"\n[[feature]]\nname = "sex"\nkind = "categorical"\ncategories = ["F", "M"]\n'
        f'[[feature]]\nname = "a"\nkind = "integer"\nrange = [0, 3]\n{rule}'
    )
    weights = [(np.ones((1, 2), np.float32), -np.ones(1, np.float32))]
    (tmp_path / "net.onnx").write_bytes(onnx_model(weights, {}).SerializeToString())
    (tmp_path / "rows.csv").write_text("sex,a\nM,2\nM,3\n")
    code, _, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert code == 0, errors
    found = section(tmp_path / "report.json", "certify")
    assert found["answer"]["by_feature"][0]["share"]["rows"] == {"fair": 0, "unfair": 0, "outside": 2}
    assert [one["standing"] for one in found["statements"] if "Nobody of the table is among them" in one["text"]] == ["proved"]


def test_boxes_parts_ways_and_reasons_have_proofs_that_were_checked(inside: Run, tmp_path: Path) -> None:
    certify = """
[analyses.certify]
effort = 6
epsilon = 0.3
partition = 10
enumerate = 4
tolerance = 0.05
box = { duration = [6, 9], credit-amount = [1000, 1100], housing = "own", job = "skilled", telephone = "no" }
"""
    files(tmp_path, certify + "[analyses.fgce]\nk = 3\ncoverage = 0.5\nrobust = [1]\n[analyses.cec]\ncertify = 1\n")
    code, _, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert code == 0, errors
    found = section(tmp_path / "report.json", "certify")
    assert found["answer"]["by_feature"][0]["partition"]["parts"]["all"] > 1
    listed = found["answer"]["by_feature"][0]["enumerated"]
    assert listed["wanted"] == 4
    assert any("have a probability that moves by more than 0.3" in one["text"] for one in found["statements"]) == bool(
        listed["counterexamples"])
    assert all("duration is 6 months to 9 months" in one["text"] for one in found["statements"] if "anywhere" in one["text"])
    exchanged = found["answer"]["by_feature"][0]["exchanged"]
    rows = [one for one in found["witnesses"] if one["sentence"].startswith("The person of row ")]
    assert len(rows) == exchanged["decided_otherwise"] > 0
    for one in rows:
        assert one["flips"]
        assert set(one["changes"]) == {"sex"}
        assert (one["before"] > 0.5) != (one["after"] > 0.5)
    for key, name in (("fgce", "fgce-sex.json.gz"), ("cec", "cec-sex.json.gz")):
        proof = section(tmp_path / "report.json", key)["evidence"][-1]
        assert (proof["file"], proof["checked"]) == (f"report.files/{name}", "accepted")
        assert any(one["standing"] == "proved" for one in section(tmp_path / "report.json", key)["statements"])


def test_what_cannot_run_says_why_and_the_others_go_on(inside: Run, tmp_path: Path) -> None:
    head = HEAD.replace('[data]\nfile = "rows.csv"\n', "")
    files(tmp_path, PBA + KMAX + "[analyses.cec]\n" + CST, head=head)
    code, screen, _ = inside("audit", "audit.toml", "--out", "report.html", "--exit-verdict")
    assert code == 10  # k-discrimination has a counterexample
    for key in ("pba", "cec", "cst"):
        (one,) = section(tmp_path / "report.json", key)["statements"]
        assert one["standing"] == "skipped"
        assert "add a [data] section" in one["text"]
    assert section(tmp_path / "report.json", "kmax")["evidence"]
    assert section(tmp_path / "report.json", "kmax")["title"] == "How many different outcomes one person can get"
    assert "skipped" in screen


def test_an_analysis_without_time_is_unknown(inside: Run, tmp_path: Path) -> None:
    files(tmp_path, PBA + CST)
    assert inside("audit", "audit.toml", "--out", "report.html", "--only", "cst", "--timeout", "0.001")[0] == 0
    one, cut = section(tmp_path / "report.json", "cst")["statements"]
    assert one["standing"] == cut["standing"] == "unknown"
    assert "Allow more (effort, timeout)" in one["text"]
    assert "(0.001 seconds by the clock) was up before this analysis had done its work" in cut["text"]


def test_what_the_clock_cut_is_asked_again_with_the_same_effort(inside: Run, tmp_path: Path) -> None:
    files(tmp_path, CST)
    command = ("audit", "audit.toml", "--out", "report.html", "--effort", "60")
    assert inside(*command, "--timeout", "0.001")[0] == 0
    assert any("by the clock) was up" in one["text"] for one in section(tmp_path / "report.json", "cst")["statements"])
    assert inside(*command, "--resume")[0] == 0
    assert not any("by the clock) was up" in one["text"] for one in section(tmp_path / "report.json", "cst")["statements"])


def test_mistakes_are_told_before_the_work(refused: Callable[..., str], tmp_path: Path) -> None:
    path = files(tmp_path, PBA)
    assert "--out PAGE.html" in refused("audit", path)
    assert "pass one, try --demo german" in refused("audit", "--out", "r.html")
    assert "the page is HTML" in refused("audit", path, "--out", "r.pdf")
    assert "there is no such analysis; did you mean 'pba'?" in refused("audit", path, "--out", "r.html", "--only", "pbaa")
    assert "add [analyses.kmax]" in refused("audit", path, "--out", "r.html", "--only", "kmax")
    (tmp_path / "r.files").mkdir()
    (tmp_path / "r.files" / "thesis.txt").write_text("mine")
    assert "is in the way and no audit wrote it" in refused("audit", path, "--out", "r.html")
    assert (tmp_path / "r.files" / "thesis.txt").read_text() == "mine"
    (tmp_path / "audit.toml").write_text(HEAD.replace("rows.csv", "../rows.csv") + PBA)
    assert "--root" in refused("audit", path, "--out", "q.html")
    (tmp_path / "audit.toml").write_text(HEAD + CST.replace("causal.toml", "none.toml"))
    assert "[analyses.cst]: causal = 'none.toml': there is no such file" in refused("audit", path, "--out", "q.html")


def test_a_shipped_audit_runs_from_anywhere_and_its_proofs_check(inside: Run, tmp_path: Path) -> None:
    code, screen, errors = inside("audit", "--demo", "german", "--only", "kmax", "--timeout", "20", "--out", "out/german.html")
    assert code == 0, errors
    assert "1 accepted by the separate checker; to check them" in screen
    found = answer(tmp_path / "out" / "german.json")
    assert found["title"] == "German Credit: the shipped network"
    assert (found["rows"], found["protected"], found["favourable"]) == (1000, ["sex", "age"], "good credit")
    (proof,) = found["sections"][0]["evidence"]
    assert proof["command"] == "verifair check german.files/kmax.json.gz --demo german"
    assert inside("check", "out/german.files/kmax.json.gz", "--demo", "german")[0] == 0


def test_engines_that_contradict_each_other_end_the_audit(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def contradicted(*arguments: object) -> None:
        raise Disagreement("two engines contradict each other")

    monkeypatch.setattr("verifair.systems.hyfair.kmax.statements.section", contradicted)
    files(tmp_path, KMAX)
    code, _, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert code == 6
    assert "contradict" in errors
    assert not (tmp_path / "report.html").exists()


def test_a_cluster_that_is_lost_ends_the_audit(inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> Section:
        raise ClusterError("gone")

    files(tmp_path, PBA + KMAX)
    monkeypatch.setattr("verifair.systems.pba.statements.section", lost)
    code, _, errors = inside("audit", "audit.toml", "--out", "report.html")
    assert (code, "gone" in errors) == (4, True)
    assert not (tmp_path / "report.html").exists()


def test_a_starting_file_is_written_once(inside: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    assert inside("audit", "--write-example", "my.audit.toml")[0] == 0
    assert "[analyses.pba]" in (tmp_path / "my.audit.toml").read_text()
    assert "is there already" in refused("audit", "--write-example", "my.audit.toml")


def stopped(folder: Path, command: list[str], how: signal.Signals) -> tuple[int, str]:
    """Stop an audit once its first analysis is kept: exit code and errors."""
    running = subprocess.Popen([*RUN, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kept = folder / "report.files.part" / "resume" / "cst.json"
    deadline = time.monotonic() + 120
    while not kept.exists() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(how)
    _, errors = running.communicate(timeout=60)
    assert "Traceback" not in errors
    if running.returncode == 0:
        pytest.skip("the audit was finished before it could be stopped")
    return running.returncode, errors


def test_an_interrupted_audit_leaves_the_old_page_and_resumes_to_the_same(inside: Run, tmp_path: Path) -> None:
    files(tmp_path, PBA + CST)
    command = ["audit", "audit.toml", "--out", "report.html"]
    assert inside(*command, "--only", "pba")[0] == 0
    old = [(tmp_path / name).read_bytes() for name in ("report.html", "report.json", "report.files/pba-bias-sex.json.gz")]
    code, errors = stopped(tmp_path, command, signal.SIGINT)
    assert code == 130
    assert "--resume" in errors
    stopped(tmp_path, command, signal.SIGKILL)
    assert old == [(tmp_path / name).read_bytes() for name in ("report.html", "report.json", "report.files/pba-bias-sex.json.gz")]
    before = (tmp_path / "report.files.part" / "resume" / "cst.json").stat().st_mtime_ns
    assert inside(*command, "--resume")[0] == 0
    assert (tmp_path / "report.files" / "resume" / "cst.json").stat().st_mtime_ns == before
    assert inside("audit", "audit.toml", "--out", "other.html")[0] == 0
    times = ("seconds", "started", "file", "command", "sha256")  # gzip writes the time; sources are compared below
    resumed, undisturbed = answer(tmp_path / "report.json"), answer(tmp_path / "other.json")
    assert resumed["sources"] == undisturbed["sources"]
    assert not differences(without(resumed, *times), without(undisturbed, *times))


def test_a_changed_question_is_asked_again(inside: Run, tmp_path: Path) -> None:
    files(tmp_path, PBA + "robustness = false\n", rows=120)
    assert inside("audit", "audit.toml", "--out", "report.html")[0] == 0
    first = section(tmp_path / "report.json", "pba")
    assert inside("audit", "audit.toml", "--out", "report.html", "--resume")[0] == 0
    assert section(tmp_path / "report.json", "pba") == first
    files(tmp_path, PBA + "robustness = false\n", rows=100)
    assert inside("audit", "audit.toml", "--out", "report.html", "--resume")[0] == 0
    assert section(tmp_path / "report.json", "pba")["settings"]["rows"] == "all 100 rows of the table"
    kept = tmp_path / "report.files" / "resume" / "pba.json"
    kept.write_text("{")
    assert inside("audit", "audit.toml", "--out", "report.html", "--resume")[0] == 0
