"""The tutorials as notebooks: `make notebooks` writes docs/tutorials/NAME.md as docs/_build/notebooks/NAME.ipynb.

Markdown becomes text. The examples of a Python block become a code cell up to and with the next one that shows an output.
"""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

HERE = Path(__file__).parent
TUTORIALS = sorted((HERE / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def notebook(path: Path) -> Any:
    """Return the notebook of a page. Its code cells hold what they should show, under metadata.shows."""
    cells: list[Any] = []
    for n, part in enumerate(BLOCK.split(path.read_text(encoding="utf-8"))):
        if n % 2:
            cells += _code(part)
        elif part.strip():
            cells.append(v4.new_markdown_cell(part.strip()))
    for n, cell in enumerate(cells):
        cell["id"] = f"cell-{n}"  # the same file for the same page
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _code(block: str) -> Iterator[Any]:
    source = ""
    for example in doctest.DocTestParser().get_examples(block):
        source += example.source
        if example.want:
            yield _cell(source, example.want, fails=example.exc_msg is not None)
            source = ""
    if source:
        yield _cell(source, "", fails=False)


def _cell(source: str, shows: str, *, fails: bool) -> Any:
    tags = ["raises-exception"] if fails else []
    return v4.new_code_cell(source.rstrip(), metadata={"shows": shows, "tags": tags})


def write(folder: Path) -> None:
    """Write all notebooks into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in TUTORIALS:
        nbformat.write(notebook(path), folder / f"{path.stem}.ipynb")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "_build" / "notebooks")
