"""Other verifiers as processes: honest, lying, crashing, hanging and silent ones; plug-ins; a user's own questions."""

import gzip
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from solvers import registry
from solvers.outcome import Budget
from solvers.plugins import PluginError, plugins
from tests.bench_support import record
from tests.command_line import verifair
from verifair import datasets
from verifair.bench import cases
from verifair.bench.cases import chosen
from verifair.bench.cases.files import file_families
from verifair.bench.cases.shipped import own_families
from verifair.bench.competitors import competitors, processes
from verifair.bench.contradictions import contradictions
from verifair.bench.peers import process
from verifair.bench.peers.process import Tool, ready, tool
from verifair.bench.processes import PROC, family
from verifair.bench.questions import DecisionQuestion, fingerprint
from verifair.bench.records import NAME, Reply
from verifair.bench.tables import comparison
from verifair.bench.worker import measure
from verifair.errors import QueryError
from verifair.interop.export import question_files

TOY = Path(__file__).parents[3] / "toy_verifier.py"
REFUTED, PROVED = "random-wide/4-1", "random-wide/4-0"


def command(kind: str) -> str:
    return f'"{sys.executable}" "{TOY}" {kind} {{onnx}} {{vnnlib}} {{timeout}} {{results}}'


def toy(kind: str) -> Tool:
    return tool(f"toy={command(kind)}", {})


def said(kind: str, name: str = PROVED, seconds: float = 60.0) -> Reply:
    (one,) = chosen([name], 0)
    return toy(kind).decide(one.question(), Budget(seconds=seconds))


def asked_file(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a drawn question, its rise, as a user's file."""
    (one,) = chosen([name], 0)
    question = one.question()
    assert isinstance(question, DecisionQuestion)
    return question_files(question.problem, 0, 1, folder, two=False)


def test_an_honest_one_finds_what_is_there_and_claims_nothing_else() -> None:
    found = said("honest", REFUTED)
    assert (found.status, found.trust) == ("violated", "exact")
    assert found.upper < 0
    assert found.cpu_seconds is not None
    assert found.cpu_seconds > 0.05
    assert said("honest", PROVED).reason == "unknown"


@pytest.mark.parametrize("kind", ["unsat", "unsat,0.25"])
def test_an_unsat_is_a_claim_also_with_its_seconds_behind_it(kind: str) -> None:
    found = said(kind)
    assert (found.status, found.trust) == ("proved", "claimed")


@pytest.mark.parametrize(("kind", "reason", "note"), [
    ("outside", "wrong-witness", "does not meet"), ("garbage", "wrong-witness", "no number"),
    ("sat", "no-witness", "no counterexample"),
    ("crash", "solver-error", "exit code 1: it broke"), ("nothing", "solver-error", "wrote no results, exit code 0"),
    ("unknown", "unknown", ""),
])
def test_what_a_sat_does_not_prove_or_a_failure_says_is_unknown(kind: str, reason: str, note: str) -> None:
    found = said(kind)
    assert (found.status, found.reason) == ("unknown", reason)
    assert note in found.note


def test_an_unsat_is_a_claim() -> None:
    found = said("unsat")
    assert (found.status, found.trust) == ("proved", "claimed")


def test_a_command_may_name_files_of_the_folder_where_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(TOY, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    (one,) = chosen([PROVED], 0)
    mine = tool(f"mine={command('unsat').replace(str(TOY), 'mine.py')}", {})
    assert mine.decide(one.question(), Budget(seconds=60)).status == "proved"


def test_a_command_that_is_not_there_is_an_error_of_its_own() -> None:
    (one,) = chosen([PROVED], 0)
    found = tool("gone=/nowhere/verifier {onnx} {vnnlib} {results}", {}).decide(one.question(), Budget(seconds=5))
    assert found.reason == "solver-error"
    assert "/nowhere/verifier" in found.note


@pytest.mark.skipif(not PROC.exists(), reason="the tree of a process is read from /proc")
def test_a_hanging_one_is_killed_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.5)
    before = set(family(os.getpid()))
    found = said("hang", seconds=0.5)
    assert (found.reason, found.note) == ("time", "killed: it did not stop at its limit")
    assert found.peak_mb is not None
    end = time.monotonic() + 5
    while set(family(os.getpid())) - before and time.monotonic() < end:
        time.sleep(0.05)
    assert not set(family(os.getpid())) - before


def test_starts_are_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = toy("unsat").measured()
    assert 0 < known.startup < 30
    assert toy("crash").measured().startup == 0
    (competitor,) = processes([known], competitors())
    (one,) = chosen([PROVED], 0)
    question = one.question()
    found = measure(competitor, question, seconds=30, seed=0)
    assert found.reply.startup_seconds == pytest.approx(competitor.startup(question))
    assert found.total_seconds < 30


@pytest.mark.parametrize(("text", "homes", "told"), [
    ("no such", {}, "expected NAME="), ("x", {}, "no command is ready"), ("nnenum", {}, "--competitor-home nnenum=PATH"),
    ("x=run {onnx} {results}", {}, "one of {vnnlib} and {vnnlib2}"), ("x=run {onnx} {vnnlib} {vnnlib2} {results}", {}, "one of"),
    ("x=run {vnnlib} {results}", {}, "{onnx}"), ("x=run '{onnx} {vnnlib} {results}", {}, "cannot be read"),
])
def test_a_command_that_cannot_run_is_refused(text: str, homes: dict[str, Path], told: str) -> None:
    with pytest.raises(QueryError) as caught:
        tool(text, homes)
    assert told in str(caught.value)


def test_ready_commands_are_complete_and_use_a_checkout(tmp_path: Path) -> None:
    assert {"abcrown", "nnenum", "neuralsat"} <= set(ready())
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").touch()
    for name in ready():
        made = tool(name, {name: tmp_path})
        assert made.words[0] == str(tmp_path / "venv" / "bin" / "python")
        assert not any("{home}" in word for word in [*made.words, *(value for _, value in made.environment)])


def test_a_name_that_somebody_has_is_refused() -> None:
    with pytest.raises(QueryError, match="is taken"):
        processes([tool(f"marabou={command('unsat')}", {})], competitors())


def test_other_commands_do_not_continue_a_journal() -> None:
    assert toy("unsat").version != toy("honest").version


def test_a_false_sat_about_what_is_proved_is_a_disagreement() -> None:
    (found,) = contradictions([record(), record(method="toy", status="unknown", reason="wrong-witness", trust="")])
    assert found.what == "proved against sat with a wrong counterexample"
    assert not contradictions([record(), record(method="toy", status="unknown", reason="no-witness", trust="")])


def test_the_command_asks_processes_and_reports_liars(tmp_path: Path) -> None:
    model, written = asked_file(tmp_path, REFUTED)
    query, out = tmp_path / "asked.vnnlib.gz", tmp_path / "out"
    query.write_bytes(gzip.compress(written.read_bytes()))
    given = ["bench", "--network", model, "--queries", query, "--methods", "bnb", "--repeats", 1, "--timeout", 20, "--out", out]
    given += [part for kind in ("unsat", "outside", "honest", "crash") for part in ("--competitor", f"{kind}={command(kind)}")]
    found = verifair(*given)
    assert found.returncode == 6
    assert "wrong-witness" in found.stdout
    assert re.search(r"crash on .*: solver-error, it wrote no results, exit code 1: it broke", found.stdout)
    lines = [json.loads(line) for line in (out / NAME).read_text(encoding="utf-8").splitlines()[1:]]
    assert {line["method"]: line["status"] for line in lines} == {
        "bnb": "violated", "unsat": "proved", "outside": "unknown", "honest": "violated", "crash": "unknown",
    }
    saved = [json.loads(path.read_text(encoding="utf-8")) for path in out.glob("disagreement-*.json")]
    pairs = [{one["method"] for one in content["answers"]} for content in saved]
    assert all("unsat" in pair for pair in pairs)
    assert {"unsat", "bnb"} in pairs
    assert {"unsat", "outside"} in pairs
    (asked,) = saved[0]["cases"].values()
    assert asked["query"] == written.read_text(encoding="utf-8")
    again = verifair(*given, "--resume")
    assert again.returncode == 6
    assert len((out / NAME).read_text(encoding="utf-8").splitlines()) == 1 + 5


def test_two_networks_are_asked_in_version_2(tmp_path: Path) -> None:
    (one,) = chosen([PROVED], 0)
    question = one.question()
    assert isinstance(question, DecisionQuestion)
    model, query = question_files(question.problem, 0, 1, tmp_path, two=True)
    (made,) = file_families([query], model)
    own = made.build(1, 0, 0)
    two = tool("toy=run {onnx} {vnnlib2} {results}", {})
    assert two.takes(own)
    assert not toy("unsat").takes(own)
    assert next(one for one in competitors() if one.name == "bnb").ask(own, Budget(seconds=60)).status == "proved"


def test_lists_of_queries_are_read_and_faults_named(tmp_path: Path) -> None:
    model, query = asked_file(tmp_path, PROVED)
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps([{"network": model.name, "query": query.name, "name": "mine"}] * 2), encoding="utf-8")
    (tmp_path / "instances.csv").write_text(f"{model.name},{query.name},60\n", encoding="utf-8")
    families = file_families([listed, tmp_path], None)
    assert [one.name for one in families] == ["mine", "mine-2", query.stem]
    assert len({fingerprint(one.build(1, 0, 0)) for one in families}) == 1
    assert len(chosen((), 0, families, seeds=3)) == 3  # nothing is drawn
    for text in ("[1]", "no json", '[{"network": "a"}]'):
        listed.write_text(text, encoding="utf-8")
        with pytest.raises(QueryError, match="no list of networks"):
            file_families([listed], None)
    with pytest.raises(QueryError, match="say which network"):
        file_families([query], None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(QueryError, match="holds no"):
        file_families([tmp_path / "empty"], None)


def test_a_users_network_is_asked_the_standard_questions(tmp_path: Path) -> None:
    data, schema = tmp_path / "rows.csv", tmp_path / "schema.toml"
    loaded = datasets.load("german")
    loaded.test.head(40).to_csv(data, index=False)
    schema.write_text(loaded.schema.dumps(), encoding="utf-8")
    families = own_families(datasets.network_path("german"), schema, data)
    assert {"pba-own", "robust-own", "fair-own", "gap-own", "parts-own"} <= {one.name for one in families}
    questions = [one.question() for one in chosen(["*/3-0", "fair-own/2-0", "parts-own/3-*"], 0, families)]
    assert len({fingerprint(one) for one in questions}) == len(questions)


def test_seeds_draw_other_questions_and_spread_is_told() -> None:
    drawn = chosen(["random-wide/4-0"], 3, seeds=2)
    assert [one.name for one in drawn] == ["random-wide/4-0@3", "random-wide/4-0@4"]
    assert len({fingerprint(one.question()) for one in drawn}) == 2
    assert chosen(["random-wide/4-0"], 3)[0].name == "random-wide/4-0"
    found = comparison([record(case="f/1-0@0"), record(case="f/1-0@1", seed=1, total_seconds=3.0)], 10.0).scores
    assert found["seeds"].tolist() == [2, 2]
    np.testing.assert_allclose(found["PAR-2"], 2.0)
    np.testing.assert_allclose(found["PAR-2 sd"], np.sqrt(2))
    assert comparison([record()], 10.0).scores["PAR-2 sd"].isna().all()


MODULE = """
from dataclasses import replace
from solvers import registry
from verifair.bench.cases import random_models
backend = replace(registry.get("highs"), name="{name}")
def cases():
    return [replace(one, name="toy-" + one.name) for one in random_models.families()[:1]]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def install(name: str = "toy-highs", target: str = "toy_bench_plugin") -> None:
        info = tmp_path / "toy_bench_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-bench-plugin\nVersion: 1.0\n", encoding="utf-8")
        points = f"[verifair.backends]\ntoy = {target}:backend\n[verifair.cases]\ntoy = {target}:cases\n"
        (info / "entry_points.txt").write_text(points, encoding="utf-8")
        (tmp_path / "toy_bench_plugin.py").write_text(MODULE.format(name=name), encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        clear()

    def clear() -> None:
        plugins.cache_clear()
        cases.families.cache_clear()
        sys.modules.pop("toy_bench_plugin", None)

    yield install
    monkeypatch.undo()
    clear()


def test_an_installed_package_brings_a_backend_and_cases(installed, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    installed()
    assert "milp:toy-highs" in {one.name for one in competitors()}
    found = verifair(
        "bench", "--cases", "toy-random-wide/4-1", "--methods", "milp", "--solvers", "highs,toy-highs", "--repeats", 1,
        "--timeout", 20, "--out", tmp_path / "out",
    )
    assert found.returncode == 0, found.stdout
    lines = [json.loads(line) for line in (tmp_path / "out" / NAME).read_text(encoding="utf-8").splitlines()[1:]]
    assert {line["solver"]: line["status"] for line in lines} == {"highs": "violated", "toy-highs": "violated"}


@pytest.mark.parametrize(("name", "target", "told"), [
    ("highs", "toy_bench_plugin", "no backend with a name of its own"), ("toy-highs", "not_there", "does not load"),
])
def test_a_package_that_does_not_fit_is_named(installed, name: str, target: str, told: str) -> None:  # type: ignore[no-untyped-def]
    installed(name, target)
    assert registry.get("highs").name == "highs"
    with pytest.raises(PluginError, match=told):
        registry.backends()
