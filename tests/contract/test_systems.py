"""What every system has by itself, once it is a folder and a line in the registry; a toy of the tests is such a system too."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.command_line import answered, flat, is_drawn, verifair
from tests.contract.toy import solve as toy_solve
from verifair.cli import schema as json_schemas
from verifair.errors import QueryError
from verifair.systems.results.result import part
from verifair.systems.system import SYSTEMS, system

TOY = "tests.contract.toy"
QUESTIONS: dict[str, tuple[object, ...]] = {
    "certify": ("--demo", "german", "--protected", "sex", "--timeout", 5),
    "kmax": ("--demo", "german", "--protected", "sex", "--chains", 4, "--no-bound"),
    "cec": ("--demo", "german", "--protected", "sex", "--audit", "test"),
    "fgce": ("--demo", "german", "--protected", "sex", "--k", 6, "--audit", "test"),
    "cst": ("--demo", "loan"),
    "pba": ("--demo", "german", "--protected", "age", "--delta", 1, "--limit", 5),
    "explain": ("--demo", "german", "--protected", "sex", "--iterations", 20, "--samples", 500, "--rounds", 1),
    "toy": ("--demo", "german", "--times", 2),
}
"""A small question of each; guard needs the rules that explain writes, and `tests/e2e` asks it."""
NEEDED: dict[str, tuple[object, ...]] = {
    "certify": ("--protected", "sex"), "kmax": ("--protected", "sex"), "explain": ("--protected", "sex", "--out", "out"),
    "pba": ("--protected", "age", "--delta", 1), "guard": ("--rules", "rules.json", "--out", "guarded.onnx"),
    "cec": ("--protected", "sex"), "fgce": ("--protected", "sex"), "cst": (), "toy": (),
}
"""What a system wants to know in any case."""
ALL = [*SYSTEMS, "toy"]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line more in the list of systems."""
    monkeypatch.setitem(SYSTEMS, "toy", TOY)


def wrong(folder: Path, *arguments: object) -> str:
    """What a command says that ends with exit code 2: one line, and no file."""
    before = sorted(folder.rglob("*"))
    done = verifair(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
    return flat(done.stderr)


@pytest.mark.parametrize("verb", ALL)
def test_the_help_has_an_example_and_every_option(verb: str) -> None:
    screen = flat(verifair(verb, "--help").stdout)
    assert f"verifair {verb}" in screen
    assert "--json" in screen
    assert "The model, an ONNX file: a network or trees." in screen
    assert f" {verb} " in verifair("--help").stdout


def in_a_notebook(result: Any) -> None:
    """A result is shown in a line, as a table and, where its system draws, as a picture."""
    package = type(result).__module__.rpartition(".")[0]
    assert len(result.to_frame()) > 0
    assert f"<strong>{type(result).__name__}" in result._repr_html_()
    assert "Query" not in result._repr_html_()
    assert "<table" in result._repr_html_()
    assert len(repr(result)) <= 180
    assert len(result._repr_html_()) < 30_000
    if any(part(package, "plots", name) for name in ("plot", "plots")):
        assert "<svg" in result.plot()._repr_svg_()
    else:
        with pytest.raises(QueryError, match="has no picture"):
            result.plot()._repr_svg_()


@pytest.mark.parametrize("verb", QUESTIONS)
def test_files_are_written_before_the_screen_and_the_json_is_as_its_schema(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    show = system(verb).part("tables", "show")

    def shown(result: Any, console: Any) -> None:
        there.append((tmp_path / "answer.json").is_file())
        in_a_notebook(result)
        show(result, console)

    monkeypatch.setattr(f"{system(verb).package}.tables.show", shown)
    out = ("--out", "out") if "out" in system(verb).run else ()
    done = answered(verb, *QUESTIONS[verb], *out, "--json", "answer.json", cwd=tmp_path)
    assert there[-1]
    assert done.stdout.strip()
    answer = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    Draft202012Validator(json_schemas.schema(verb)).validate(answer)
    assert answer["versions"]["verifair"]
    if out:
        assert any((tmp_path / "out").iterdir())


CERTIFY = ("certify", "--demo", "german", "--protected", "sex")
LATE: list[tuple[object, ...]] = [
    *((verb, *question) for verb, question in QUESTIONS.items()),
    *((*CERTIFY, *more) for more in (("--epsilon", 0.3), ("--maximise",), ("--share",), ("--partition", 10), ("--enumerate", 50))),
    ("cec", "--demo", "german", "--protected", "sex", "--certify", 1),
    ("explain", "--demo", "german", "--protected", "sex", "--measure", "gap", "--lime"),
]
"""The questions above, and others of the same verbs."""


@pytest.mark.parametrize("asked", LATE, ids=lambda asked: " ".join(map(str, asked)))
def test_without_time_nothing_is_decided_and_the_command_says_so(asked: tuple[object, ...], tmp_path: Path) -> None:
    done = verifair(*asked, "--timeout", 1e-6, "--json", "answer.json", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert "time" in done.stderr
        assert not (tmp_path / "answer.json").exists()
        return
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "answer.json").read_text(encoding="utf-8")
    assert not {"proved", "violated", "certified"} & {str(value).lower() for value in _words(json.loads(text))}


def _words(answer: Any) -> list[str]:
    """All words that stand as values, at any depth."""
    if isinstance(answer, dict):
        return [word for value in answer.values() for word in _words(value)]
    if isinstance(answer, list):
        return [word for value in answer for word in _words(value)]
    return [answer] if isinstance(answer, str) else []


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize("inputs", [("--demo", "nobody"), ("missing.onnx", "--schema", "missing.toml")])
def test_inputs_that_are_not_there_are_told_in_a_line(verb: str, inputs: tuple[str, ...], tmp_path: Path) -> None:
    told = wrong(tmp_path, verb, *inputs, *NEEDED[verb])
    assert told.startswith("error: ")
    assert len(told) < 400


@pytest.mark.parametrize("verb", ALL)
def test_a_json_file_that_cannot_be_written_is_told_before_the_work(verb: str, tmp_path: Path) -> None:
    demo = "loan" if verb == "cst" else "german"
    told = wrong(tmp_path, verb, "--demo", demo, *NEEDED[verb], "--json", tmp_path)
    assert "is a folder; name a file in it" in told


def test_the_toy_writes_its_text_table_and_picture(tmp_path: Path) -> None:
    done = verifair("toy", *QUESTIONS["toy"], "--out", "out", cwd=tmp_path)
    assert (tmp_path / "out" / "toy.txt").read_text(encoding="utf-8") == done.stdout
    with (tmp_path / "out" / "decisions.csv").open(encoding="utf-8") as file:
        assert [row["side"] for row in csv.DictReader(file)] == ["positive"]
    assert is_drawn(tmp_path / "out" / "decisions.png")


def test_the_schema_of_the_toy_is_generated() -> None:
    made = json.loads(verifair("schema", "json", "toy").stdout)
    assert made["properties"]["counted"]["description"] == "Rows, each as often as asked."
    assert made["title"] == "verifair toy --json"


@pytest.mark.parametrize(("arguments", "said"), [
    (("--times", 0), "--times 0: expected a whole number from 1 to 100"),
    (("--times", 101), "--times 101: expected a whole number from 1 to 100"),
    (("--side", "left"), "--side left: expected positive or negative"), (("--timeout", 1e-9), "--timeout: the time was up after"),
    (("--out", "file"), "--out file: is a file; name a folder"), (("--seed", -1), "--seed"),
])
def test_what_the_toy_cannot_do_is_told_in_a_line(arguments: tuple[object, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert said in wrong(tmp_path, "toy", "--demo", "german", *arguments, "--json", "answer.json")


def test_ctrl_c_ends_the_toy_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(toy_solve, "solve", interrupted)
    done = verifair("toy", *QUESTIONS["toy"], "--json", "answer.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted: nothing is kept\n")
    assert not any(tmp_path.iterdir())


def audit(folder: Path, section: str) -> Any:
    text = f'title = "Toy"\n\n[model]\ndemo = "german"\n\n[analyses.toy]\n{section}\n'
    (folder / "toy.audit.toml").write_text(text, encoding="utf-8")
    return verifair("audit", "toy.audit.toml", "--out", "page.html", cwd=folder)


def test_the_toy_has_a_section_of_the_audit(tmp_path: Path) -> None:
    done = audit(tmp_path, "times = 3")
    assert done.returncode == 0, done.stderr
    page, answer = (tmp_path / "page.html").read_text(encoding="utf-8"), json.loads((tmp_path / "page.json").read_text("utf-8"))
    (section,) = answer["sections"]
    sentence = section["statements"][0]["text"]
    assert section["key"] == "toy"
    assert sentence in page
    assert "Decisions that are counted" in page
    assert sentence in flat(done.stdout)


def test_a_wrong_key_of_its_section_is_told_in_a_line(tmp_path: Path) -> None:
    done = audit(tmp_path, "times = 0")
    assert (done.returncode, "[analyses.toy]: times" in flat(done.stderr)) == (2, True), done.stderr
    assert not (tmp_path / "page.html").exists()
