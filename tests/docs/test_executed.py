"""Pages of the site that run a command: with the papers' data what it prints and draws, without them the command alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
DATA = os.environ.get("VERIFAIR_DATA", "")
COMMAND = "verifair reproduce cst --table 1"


def page(folder: Path, data: str) -> str:
    source = folder / "source"
    source.mkdir()
    shutil.copy(DOCS / "executed.py", source)
    settings = "import sys\nsys.path.append('.')\nextensions = ['myst_parser', 'executed']\nroot_doc = 'one'\n"
    (source / "conf.py").write_text(settings)
    (source / "one.md").write_text(f"# One\n\n```{{executed}}\n{COMMAND}\n```\n")
    options = ["-q", "-W", "-b", "html", "-D", f"papers_data={data}"]
    subprocess.run([sys.executable, "-m", "sphinx", *options, ".", folder / "site"], check=True, cwd=source)
    return (folder / "site" / "one.html").read_text(encoding="utf-8")


@pytest.mark.skipif(not DATA, reason="VERIFAIR_DATA names no folder")
def test_a_page_shows_what_a_command_prints_and_draws(tmp_path: Path) -> None:
    shown = page(tmp_path, DATA)
    assert "288 / 288" in shown  # cases of CST without centers at k = 15, and the paper's
    assert "_images/table-1.png" in shown
    assert (tmp_path / "site" / "_images" / "table-1.png").is_file()


def test_without_the_data_a_page_shows_the_command(tmp_path: Path) -> None:
    shown = page(tmp_path, "")
    assert COMMAND in shown
    assert "_images" not in shown


def test_what_is_missing_is_named_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "cst/LoanApplication_v2.csv.gz" in page(tmp_path, str(tmp_path / "empty"))
