"""Options are declared once: fields of settings, of inputs and of `Run` are their only source."""

import os
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import verifair as vf
from tests.builders import categorical, integer, one_hot, schema_of
from tests.command_line import answered, verifair
from verifair.cli.command import app_of, marker, option_name
from verifair.cli.main import verbs
from verifair.systems.settings import Run, Settings
from verifair.systems.system import SYSTEMS, System, system
from verifair.training.onnx_writer import save_onnx

MADE = [verb for verb in verbs() if verb != "schema"]
"""Verbs that are made from settings; schema has two verbs of its own."""
WRITTEN = {"command.py", "main.py", "schema.py"}
"""Files that may name Typer's options: what makes them of fields, --version, and the two verbs of schema."""


def made(verb: str) -> System:
    found: System = system(verb) if verb in SYSTEMS else import_module(f"verifair.cli.{verb}").SYSTEM
    return found


def declared(found: System) -> list[tuple[str, str, str | None]]:
    """Return group, option and help of every field that is an option of a verb."""
    groups: tuple[type[Settings], ...] = (found.inputs, found.settings, Run)
    return [
        (group.__name__, option_name(name, one), found.helps.get(name, one.description))
        for group in groups for name, one in group.model_fields.items()
        if (group is not Run or name in found.run) and not marker(one).hidden
    ]


def test_options_are_declared_as_fields_alone() -> None:
    package = Path(str(vf.__file__)).parent
    found = {
        file.name for file in package.rglob("*.py") if re.search(r"typer\.(Option|Argument)\(", file.read_text(encoding="utf-8"))
    }
    assert found <= WRITTEN


@pytest.mark.parametrize("verb", MADE)
def test_every_option_has_one_declaration_and_a_help(verb: str) -> None:
    found = made(verb)
    assert set(found.run) <= set(Run.model_fields)
    options = Counter(option for _, option, _ in declared(found))
    assert not [option for option, count in options.items() if count > 1]
    assert not [option for _, option, help_text in declared(found) if not help_text]
    fields = [one for group in (found.inputs, found.settings) for one in group.model_fields.values()]
    assert not [one for one in fields if one.default is True and marker(one).without is None], "such an option needs a --no- form"
    shown = [name for one in get_command(app_of(found)).params for name in (one.opts if one.opts[0].startswith("--") else [])]
    assert set(shown) == {option for option in options if option.startswith("--")}


def test_the_range_of_an_option_is_written_in_full() -> None:
    (k,) = (one for one in get_command(app_of(system("fgce"))).params if one.name == "k")
    assert str(getattr(k, "help", "")).endswith("(at least 1, at most 1,048,576)")


@pytest.mark.parametrize("verb", MADE)
def test_a_verb_without_a_table_takes_no_options_about_its_rows(verb: str) -> None:
    options = {option for _, option, _ in declared(made(verb))}
    assert "--data" in options or not options & {"--missing", "--outside"}


LEAVE_OUT = {
    "pba": ("--delta", 0, "--no-robustness"), "explain": ("--iterations", 20, "--samples", 300), "guard": ("--iterations", 5),
    "fgce": ("--k", 1, "--too-few", "most", "--empty", "skip"), "cec": ("--no-within",),
}


@pytest.mark.parametrize("verb", sorted(LEAVE_OUT))
def test_rows_that_are_left_out_are_counted_on_the_screen(verb: str, tmp_path: Path) -> None:
    schema = schema_of(
        integer("income", 0, 9, merit=True, unit=1), one_hot("job", "a", "b"), categorical("sex", "F", "M", protected=True),
        label="y", positive_label="1",
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "income": rng.integers(0, 10, 60), "job": rng.choice(list("ab"), 60), "sex": rng.choice(["F", "M"], 60), "y": [0, 1] * 30,
    })
    frame.loc[[3, 7], "income"], frame.loc[20, "job"] = 99, "c"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    schema.save(tmp_path / "schema.toml")
    save_onnx(tmp_path / "model.onnx", [(np.float32([[1, 1, 0, 2]]), np.float32([-6.5]))], {})
    (tmp_path / "rules.json").write_text('{"rules": [{"when": {"income": {"high": 1}}}]}', encoding="utf-8")
    where = {"explain": ("--out", "found"), "guard": ("--rules", "rules.json", "--out", "guarded.onnx")}.get(verb, ())
    files = ("model.onnx", "--schema", "schema.toml", "--data", "rows.csv", "--protected", "sex", *where)
    done = answered(verb, *files, "--outside", "drop", *LEAVE_OUT[verb], cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert re.search(r"3 rows outside the schema (were )?left out|Left out, as outside the schema: 3\.", said), said


@pytest.mark.parametrize("verb", MADE)
def test_every_setting_is_described(verb: str) -> None:
    fields = made(verb).settings.model_fields
    assert not [name for name, one in fields.items() if not one.description and not marker(one).hidden]


@pytest.mark.parametrize("verb", verbs())
def test_help_is_shown_before_anything_heavy_is_imported(verb: str) -> None:
    program = f"""
import sys
from verifair.cli import main
sys.argv = ["verifair", {verb!r}, "--help"]
try:
    main()
finally:
    print("loaded:", {{"numpy", "pandas", "onnx", "sklearn", "torch"}} & set(sys.modules))
"""
    wide = os.environ | {"COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=wide)
    assert "loaded: set()" in done.stdout
    assert f"verifair {verb}" in done.stdout, "the help has an example"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", [*((verb,) for verb in verbs()), ("schema", "infer"), ("schema", "json")])
def test_help_fills_its_lines_and_cuts_no_word(words: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a paragraph ends where the next word does not fit."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [line.rstrip() for line in answered(*words, "--help").stdout.splitlines()]
    assert "…" not in "".join(lines)
    text = lines[: next(k for k, line in enumerate(lines) if line.startswith("╭"))]
    early = [line for line, after in pairwise(text) if line and after and len(line) + len(after.split()[0]) + 1 <= width - 2]
    assert not early


@pytest.mark.parametrize(("words", "told"), [
    (("pba", "--demo", "german", "--timeout", 0), "--timeout 0: expected a number above 0, such as 3600"),
    (("kmax", "--demo", "german", "--seed", -1), "--seed -1: expected a whole number of at least 0, such as 0"),
    (("pba", "--demo", "german", "--nodes", 0), "--nodes 0: expected a whole number of at least 1"),
    (("audit", "--demo", "german", "--effort", 0, "--out", "p.html"), "--effort 0: expected a number above 0"),
    (("fgce", "--demo", "german", "--out", "file/out"), "--out file/out: nothing can be written in {}; name a folder elsewhere"),
    (("certify", "--demo", "german", "--protected", "sex", "--epsilon", 2), "epsilon = 2: expected a gap between two"),
])
def test_an_option_out_of_range_is_named_alone(words: tuple[object, ...], told: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = verifair(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {told.format(tmp_path / 'file')}")
    assert len(done.stderr.splitlines()) == 1
