"""Names, categories and files of others: nothing of them controls the terminal, is a formula in a table, or markup on a page."""

import csv
import json
import re
import unicodedata
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from tests.command_line import flat, verifair
from verifair import _packages, datasets
from verifair.datasets import read_table
from verifair.schema.drafts.infer import DraftWarning
from verifair.schema.schema import Schema
from verifair.systems.system import SYSTEMS, system
from verifair.training.onnx_writer import onnx_model

SEX, FEMALE = "@se\u00adx\x1b[2J", "=cmd|' /C calc'!A0"
MALE = '"><script>alert(1)</script><b style="x" onclick=y>\x1b]0;owned\x07\u202e\u2060[red]'
AGE = "@age\x9b31m\u180e"
JUNIOR, SENIOR = "+1;[/]\x0b\x1b[1A", "<style>*{}</style>\U000e0041\ufff9"
NEW = {"sex": SEX, "Female": FEMALE, "Male": MALE, "age": AGE, "Junior": JUNIOR, "Senior": SENIOR}
MODEL, SCHEMA, ROWS, CAUSAL = ("m\x1b[31m.onnx", "s\x1b[31m.toml", "=d\x1b[31m.csv", "c\x1b[31m.toml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German Credit with such names: model, schema, table, causal model, audit file, rules."""
    where = tmp_path_factory.mktemp("hostile")
    data = datasets.network_path("german").parent
    (where / MODEL).write_bytes((data / "german.onnx").read_bytes())
    for name, ours in (("german.toml", SCHEMA), ("german.causal.toml", CAUSAL)):
        text = (data / name).read_text(encoding="utf-8").replace('{ sex = "Male", age = "Senior" }', '{ "age" = "Senior" }')
        text = re.sub(r"\b(model|schema|network) = .*\n", "", text) if ours == CAUSAL else text
        text = re.sub(r'"(\w+)"', lambda word: json.dumps(NEW.get(word[1], word[1]), ensure_ascii=False), text)
        (where / ours).write_text(text, encoding="utf-8")
    frame = datasets.german().frame.head(120)
    frame.rename(columns=NEW).replace({SEX: NEW, AGE: NEW}).to_csv(where / ROWS, index=False)
    return where


QUICK = ("--iterations", 20, "--samples", 500, "--rounds", 3, "--delta", 0.05)
BRIEF = ("--methods", "auto", "--timeout", 1, "--repeats", 1, "--patience", 1)
HELD = (MODEL, "--schema", SCHEMA)
TABLE = (*HELD, "--data", ROWS)
ASKED: dict[str, tuple[object, ...]] = {
    "pba": ("pba", *TABLE, "--protected", SEX, "--delta", 1, "--limit", 4, "--intersections", "--protected", AGE),
    "certify": ("certify", *HELD, "--protected", SEX, "--timeout", 20),
    "enumerate": ("certify", *HELD, "--protected", SEX, "--enumerate", 5, "--timeout", 20),
    "partition": ("certify", *TABLE, "--protected", SEX, "--partition", 3, "--timeout", 5, "--store", "p\x1b[1m.sqlite"),
    "check": ("check", "p\x1b[1m.sqlite", "--model", MODEL, "--schema", SCHEMA, "--partial"),
    "maximise": ("certify", *HELD, "--protected", SEX, "--maximise", "--timeout", 2, "--certificate", "b\x1b[1m.json.gz"),
    "share": ("certify", *TABLE, "--protected", SEX, "--share", "--timeout", 2, "--store", "h\x1b[1m.json.gz"),
    "check of a share": ("check", "h\x1b[1m.json.gz", "--model", MODEL, "--schema", SCHEMA),
    "kmax": ("kmax", *HELD, "--protected", SEX, "--chains", 4, "--no-bound"),
    "explain": ("explain", *HELD, "--protected", SEX, "--protected", AGE, "--lime", *QUICK),
    "guard": ("guard", *HELD, "--rules", "explain/rules.json", "--out", "g\x1b[m.onnx"),
    "fgce": ("fgce", *TABLE, "--protected", SEX, "--k", 6),
    "cec": ("cec", *TABLE, "--protected", SEX),
    "cst": ("cst", *TABLE, "--causal", CAUSAL, "--do", f"{AGE}={SENIOR}", "--k", 15, "--cases", 1),
    "export": ("export", *HELD, "--protected", SEX, "--vnnlib", "v\x1b[m", "--relaxed"),
    "bench": ("bench", "--network", MODEL, "--schema", SCHEMA, "--data", ROWS, *BRIEF, "--out", "bench"),
    "doctor": ("doctor", "--model", MODEL),
    "schema": ("schema", "infer", ROWS, "--target", "credit", "--protected", SEX),
    "train": ("train", "--data", ROWS, "--schema", SCHEMA, "--out", "t\x1b[m.onnx", "--epochs", 1, "--hidden", "3"),
    "no such file": ("certify", "no\x1b[2J.onnx", "--schema", "no\x1b[2J.toml", "--protected", SEX),
    "no such feature": ("certify", *HELD, "--protected", "\x1b[2Jno"),
    "no such verb": ("\x1b[2Jno",),
    "no such option": ("certify", *HELD, "--no\x1b[2J"),
    "one too many": ("certify", *HELD, "\x1b[2Jno", "--protected", SEX),
    "a file of another kind": ("check", SCHEMA, "--model", MODEL, "--schema", SCHEMA),
    "no such competitor": ("bench", "--competitor", "@peer\x1b[2J=true {onnx} {vnnlib} {timeout} {results}"),
    "no query": ("verify", CAUSAL, "--network", MODEL),
}
"""A question of every verb; `audit` has a test of its own."""
FIRST = {
    "check": ("partition", "p\x1b[1m.sqlite"), "check of a share": ("share", "h\x1b[1m.json.gz"),
    "guard": ("explain", "explain/rules.json"),
}
"""Question -> the question whose file it needs, and that file: they may run in different processes."""
REFUSED = {word for word in ASKED if word.startswith("no ")} | {"one too many", "a file of another kind"}


def controls(text: str) -> set[str]:
    """The letters of a text that are none, lines and tabs apart."""
    return {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") and letter not in "\n\t"}


def formulas(folder: Path) -> list[str]:
    """The cells of all CSV files below a folder that a spreadsheet takes for formulas."""
    return [
        cell
        for file in folder.rglob("*.csv")
        for row in csv.reader(StringIO(file.read_text(encoding="utf-8"), newline=""))
        for cell in row
        if re.match(r"[=+@\t\r]|-(?![\d.])", cell) and not re.fullmatch(r"[+-]?[\d.e+-]+|[+-]inf", cell)
    ]


def ask(asked: str, folder: Path) -> CompletedProcess[str]:
    words = ASKED[asked]
    out = ("--out", asked) if words[0] in SYSTEMS and "--out" not in words and "out" in system(str(words[0])).run else ()
    return verifair(*words, *(() if asked in REFUSED else out), cwd=folder)


@pytest.mark.parametrize("asked", ASKED)
def test_nothing_controls_the_terminal_and_no_cell_is_a_formula(
    asked: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked == "train":
        pytest.importorskip("torch")
    # `doctor` imports each package in a process of its own, 11 s of CPU; test_package.py does.
    monkeypatch.setattr(_packages, "broken", lambda modules: dict.fromkeys(modules, f"ImportError: {MALE}"))
    first, file = FIRST.get(asked, ("", ""))
    if first and not (folder / file).exists():
        ask(first, folder)
    done = ask(asked, folder)
    assert done.returncode in ((2, 3) if asked in REFUSED else (0, 1)), done.stderr
    assert (done.stdout + done.stderr).strip()
    assert controls(done.stdout + done.stderr) == set()
    assert formulas(folder / asked) == []


def test_files_whose_names_are_no_text_are_written_and_read(folder: Path) -> None:
    """Linux has names of any bytes; Python shows those outside UTF-8 as half characters."""
    name = "o\udcfft"
    words = ("pba", *TABLE, "--protected", SEX, "--delta", 1, "--limit", 2, "--out", name, "--store", f"{name}.sqlite")
    done = verifair(*words, "--json", f"{name}.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {"verdicts.parquet", "verdicts.jsonl", "outcomes.png"} <= {file.name for file in (folder / name).iterdir()}
    assert len(read_table(folder / name / "verdicts.parquet"))


def test_an_audit_file_cannot_name_a_file_whose_name_is_no_text(folder: Path, tmp_path: Path) -> None:
    """TOML is UTF-8: such a name is refused before anything is written. In Python, where nothing names it, it is escaped."""
    name = tmp_path / "m\udcff.onnx"
    name.write_bytes((folder / MODEL).read_bytes())
    words = ("audit", "--model", name, "--schema", SCHEMA, "--data", ROWS, "--out", tmp_path / "out" / "page.html")
    done = verifair(*words, cwd=folder)
    assert (done.returncode, "cannot name it, as its name is not" in flat(done.stderr)) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()
    schema, frame = Schema.load(folder / SCHEMA), read_table(folder / ROWS)
    assert vf.audit(name, frame, schema=schema, analyses=["pba"], effort=1).result.title == r"Audit of m\udcff.onnx"


def test_a_network_trained_on_a_table_whose_name_is_no_text_names_it_escaped() -> None:
    weights = [(np.ones((2, 3), np.float32), np.zeros(2, np.float32))]
    (found,) = onnx_model(weights, {"dataset": "t\udcff.csv"}).metadata_props
    assert found.value == r"t\udcff.csv"


def test_nothing_that_python_shows_controls_the_terminal(folder: Path) -> None:
    """Lines and tables of objects and audits, as Python and notebooks show them."""
    schema, network, frame = Schema.load(folder / SCHEMA), vf.read(folder / MODEL), read_table(folder / ROWS)
    verdict = vf.verify(vf.IndividualFairness(model=network, schema=schema, protected=[SEX]), budget=vf.Budget(seconds=20))
    audit = vf.audit(network, frame, schema=schema, sensitive=[SEX], analyses=["kmax"], effort=1)
    for one in (schema, verdict, verdict.witness, audit):
        assert controls(f"{one} {one!r} {one._repr_html_()}") == set()
    three = frame[[AGE, "credit"]].assign(**{SEX: frame[SEX].where(frame.index > 20, "other")})
    columns = pd.get_dummies(three, columns=[SEX], drop_first=True)
    with pytest.warns(DraftWarning, match="unnamed") as warned:
        vf.Schema.infer(columns, target="credit", positive="good", protected=[SEX])
    assert controls(" ".join(str(one.message) for one in warned)) == set()


AUDIT: dict[str, dict[str, object]] = {
    "model": {"file": MODEL}, "schema": {"file": SCHEMA}, "data": {"file": ROWS}, "sensitive": {"features": [SEX, AGE]},
    "analyses.pba": {"delta": [1]}, "analyses.certify": {}, "analyses.kmax": {}, "analyses.fgce": {"k": 4},
    "analyses.cec": {}, "analyses.cst": {"causal": CAUSAL, "k": [15]}, "gate": {"four_fifths": 0.8, "flips_in_data": 0.0},
}  # fmt: skip
TITLE = "=<img src=x onerror=alert(1)>\x1b[2J"


class Markup(HTMLParser):
    """The names of a page's elements and attributes, and what its scripts and styles hold."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: set[str] = set()
        self.code: dict[str, list[str]] = {"script": [], "style": []}
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in self.code:
            self.code[self.inside].append(data)


def test_an_audit_shows_such_names_as_they_are_and_nothing_else(folder: Path) -> None:
    lines = [f"title = {json.dumps(TITLE)}"]
    for name, keys in AUDIT.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    (folder / "a.audit.toml").write_text("\n".join(lines), encoding="utf-8")
    others = {"--junit": "gate.xml", "--sarif": "gate.sarif", "--summary": "summary.md", "--model-card": "card.md"}
    more = [word for pair in others.items() for word in pair]
    done = verifair("audit", "a.audit.toml", "--out", "audit/p\x1b[2J.html", "--effort", 4, *more, cwd=folder)
    assert done.returncode in (0, 10, 20), done.stderr
    assert controls(done.stdout + done.stderr) == set()
    assert formulas(folder / "audit") == []
    page = (folder / "audit" / "p\x1b[2J.html").read_text(encoding="utf-8")
    for text in (page, *((folder / name).read_text(encoding="utf-8") for name in others.values())):
        assert controls(text) == set()
    found = Markup(page)
    assert not {name for name in found.attributes if name.startswith("on")} | ({"style"} & found.attributes)
    assert len(found.code["style"]) == 1
    assert all("alert(1)" not in code for code in found.code["style"])
    assert "default-src &#39;none&#39;" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for name in ("summary.md", "card.md"):
        assert "<script" not in (folder / name).read_text(encoding="utf-8")
    ElementTree.parse(folder / "gate.xml")
    places = re.findall(r'"uri": "(.*)"', (folder / "gate.sarif").read_text(encoding="utf-8"))
    assert set(places) == {quote(MODEL)}
