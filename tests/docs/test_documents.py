"""What the documents show is what comes out: Python blocks run, and outputs are compared. Tutorials: test_notebooks.py."""

import doctest
import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [one for one in DOCUMENTS if one.parent.name != "tutorials" and "```python" in one.read_text(encoding="utf-8")]


@pytest.mark.parametrize("document", RUN, ids=[str(document.relative_to(ROOT)) for document in RUN])
def test_what_a_document_shows_is_what_comes_out(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # tutorials write files
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    examples = list(Sybil(parsers=[PythonCodeBlockParser(doctest_optionflags=flags)]).parse(document).examples())
    assert examples
    for example in examples:
        example.evaluate()


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(document.relative_to(ROOT)) for document in DOCUMENTS])
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)\)", document.read_text(encoding="utf-8"))
    assert [link for link in targets if "://" not in link and not (document.parent / link).exists()] == []
