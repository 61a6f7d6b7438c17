"""Each tutorial runs as a notebook, in a kernel of its own, and every cell shows what the page says."""

import doctest
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "notebooks.py"))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def shown(cell: Any) -> str:
    """What is printed, what the last expression gives, or the last line of an error: as plain text."""
    text = ""
    for output in cell["outputs"]:
        match output["output_type"]:
            case "stream" if output["name"] == "stdout":
                text += output["text"]
            case "execute_result":
                text += output["data"]["text/plain"] + "\n"
            case "error":
                text += f"{output['ename']}: {output['evalue']}\n"
    return text


@pytest.mark.parametrize("page", NOTEBOOKS["TUTORIALS"], ids=lambda page: page.stem)
def test_a_tutorial_runs_as_a_notebook(page: Path, tmp_path: Path) -> None:
    book = NOTEBOOKS["notebook"](page)
    nbformat.validate(book)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert sum(bool(cell["metadata"]["shows"]) for cell in cells) >= 2
    for cell in cells:
        wanted = cell["metadata"]["shows"]
        if "raises-exception" in cell["metadata"]["tags"]:
            wanted = wanted[wanted.rindex("verifair.errors.") + len("verifair.errors.") :]
        found = shown(cell)
        assert doctest.OutputChecker().check_output(wanted, found, FLAGS), f"{cell['source']}\n{found}\ninstead of\n{wanted}"


def test_a_bar_is_drawn_in_a_notebook() -> None:
    """By the widgets of Jupyter; without them the error says what to install."""
    pytest.importorskip("ipywidgets", reason='pip install "verifair[notebook]"')
    source = "import verifair as vf\nwith vf.progress_bar('share') as progress:\n    progress('parts', 1, 4)"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(book, timeout=30, kernel_name="python3").execute()  # zmq may wake us by this alone
    drawn = book["cells"][0]["outputs"]
    assert len(drawn) == 1, "no empty block of text stays below the bar"
    assert "application/vnd.jupyter.widget-view+json" in drawn[0]["data"]


def test_what_differs_is_seen() -> None:
    """The comparison above is no rubber stamp."""
    assert not doctest.OutputChecker().check_output("(3, 3)\n", "(3, 4)\n", FLAGS)
