"""What people read, on a terminal and in a spreadsheet: names are text and nothing else."""

import ast
import pickle
import re
import sys
import time
import traceback
import unicodedata
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.table import Table
from rich.text import Text

import verifair
from encoders.errors import ModelError
from encoders.text import visible, visible_lines
from tests.builders import linear_network
from verifair.errors import QueryError
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.results.spreadsheets import cell, save_table

ROOT = Path(verifair.__file__).parent


def test_letters_that_are_not_seen_become_a_sign() -> None:
    assert visible("a\x1b[2J\x9b\x00\r\u202eb\u2028\n\tc") == "a�[2J���\ufffdb���c"
    assert visible_lines("a\n\tb\r\x07") == "a\n\tb��"
    for text in ("Zoë", "日本", "≤ 5", "a b", "👩‍🔬", "Français : 5"):
        assert visible(text) == visible_lines(text) == text
    assert visible("Ma\u2060le\u00ad\U000e0041\u180e\u2065") == "Ma�le����"
    assert visible("Ma\u034fle\u115f\u1160\u17b4\u3164\uffa0\ufff0") == "Ma�le������", "fillers, which are letters by their kind"


def test_of_all_letters_of_format_only_those_that_are_seen_or_join_others_stay() -> None:
    """Signs of Arabic, Syriac, Kaithi and hieroglyphs are seen."""
    letters = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cf"]
    kept = {letter for letter in letters if visible(letter) == letter}
    assert all(re.match("ARABIC|SYRIAC|KAITHI|EGYPTIAN|ZERO WIDTH (NON-)?JOINER", unicodedata.name(letter)) for letter in kept)
    assert {"\u200c", "\u200d"} < kept


@pytest.mark.parametrize("shown", ["x\x1b]0;t\x07[red]y[/]", Text("x\x1b]0;t\x07[red]y[/]")])
def test_only_our_own_styles_reach_a_terminal_as_codes(shown: str | Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = StringIO()
    screen = Screen(file=file, width=80)
    grid = Table("a", title="\x1b[1m")
    grid.add_row(shown)
    screen.print(shown, style="bold")
    screen.print(grid)
    screen.print("Done", style="red")
    text = file.getvalue()
    assert "\x1b[1mx�]0;t[red]y[/]\x1b[0m" in text, "rich takes out the bell itself"
    assert all(re.fullmatch(r"\x1b\[[\d;]*m.*", "\x1b" + code, re.DOTALL) for code in text.split("\x1b")[1:])


def test_nothing_is_printed_past_the_screen() -> None:
    """Machine-readable answers go out with `typer.echo`: of names only what `visible_lines` gives."""
    past = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Console" | "print" as name)) if path.name not in ("_siblings.py", "__main__.py"):
                    past.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}()")
                case ast.Call(func=ast.Attribute(attr="echo"), args=[shown, *_]):
                    if "visible_lines" not in ast.unparse(shown) and "FormattedValue" in ast.dump(shown):
                        past.append(f"{path.relative_to(ROOT)}:{node.lineno}: echo of names")
    assert [line for line in past if "cli/main.py" not in line] == []


def test_tracebacks_and_notebooks_show_no_raw_names() -> None:
    """Python prints `str` of an error, and a notebook the table of a model."""
    name = "a\x1b[2J\u202eb"
    for error in (QueryError(f"group {name}"), ModelError(name, "is damaged")):
        assert "a�[2J�b" in "".join(traceback.format_exception(error))
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    network = linear_network(1.0, 2.0, classes=(name, "c"), source=name)
    shown = network._repr_html_()
    assert "a�[2J�b, c" in shown
    assert all(visible_lines(part) == part for part in (shown, repr(network)))


def test_a_bar_is_drawn_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        monkeypatch.setattr(Screen, "is_terminal", terminal)
        monkeypatch.setattr("sys.stderr", file := StringIO())
        with progress_bar("share") as progress:
            progress(1, 4)
            progress("certify", "[red]", 2, 4)
        assert ("share: certify: [red]" in file.getvalue()) == terminal
        monkeypatch.setattr("sys.stderr", file := StringIO())
        with progress_bar("bound") as progress:
            progress(3, 0)
        assert ("3/?" in file.getvalue()) == terminal


def test_a_pipe_is_told_the_stage_and_the_share_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between two reports. Short work prints nothing."""
    monkeypatch.setattr("sys.stderr", file := StringIO())
    with progress_bar("groups") as progress:
        progress(1, 4)
    assert file.getvalue() == ""
    monkeypatch.setattr("verifair.notebook.progress.FIRST", 0.01)
    with progress_bar("measures") as progress:
        progress(300, 1200)
        for _ in range(1000):
            if file.getvalue():
                break
            time.sleep(0.01)
    assert re.match(r"measures: 300 of 1,200 \(25%\), after \d+ s\n", file.getvalue())


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@a", " =a", "\tx", "\r=1", "\n=1", "＝1", "+1;2"])
def test_text_that_a_spreadsheet_takes_for_a_formula_is_text(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["a=b", "-5", "+3.5e2", "-inf", "-", "", "5-6", -5, 2.5, None, True, "'=x", "<=50K"])
def test_other_cells_stay(value: object) -> None:
    assert cell(value) is value


def test_a_table_is_written_without_formulas(tmp_path: Path) -> None:
    parts = [pd.DataFrame({"=n": ["=a", "b", None], "-m": [-1, 2, 3], "k": pd.Categorical(["+c", "d", None])})] * 2
    save_table(tmp_path / "t.csv", parts)
    assert (tmp_path / "t.csv").read_text() == "'=n,'-m,k\n" + 2 * "'=a,-1,'+c\nb,2,d\n,3,\n"
    for empty in (pd.DataFrame(), pd.DataFrame({"=a": []})):
        save_table(tmp_path / "t.csv", [empty])
        assert (tmp_path / "t.csv").read_text().strip() == "'=a" * len(empty.columns)
