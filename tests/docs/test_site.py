"""The site is built without a warning, and opens in a browser."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import verifair as vf
from tests.browser import Watched, chromium

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.relative_to(DOCS) for page in DOCS.rglob("*.md") if "_build" not in page.parts)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address at which the site is served. Sphinx warns of dead links and of pages that the table of contents lacks."""
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, folder], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_it_opens_finds_and_has_no_barriers(site: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    with chromium() as browser:
        seen = Watched(page=browser.new_page())
        for name in ("README", "start", "which-question", "gallery", "api"):
            seen.page.goto(f"{site}/{name}.html")
            found = axe.Axe().run(seen.page).response["violations"]
            assert [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")] == []
        seen.page.goto(f"{site}/search.html?q=counterexample")
        seen.page.get_by_role("link", name="verifair certify").last.wait_for()
        seen.page.set_viewport_size({"width": 390, "height": 800})
        seen.page.goto(f"{site}/which-question.html")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert seen.said == []
        assert all(request.startswith(site) for request in seen.requests)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_each_page_begins_with_what_it_is_for(page: Path) -> None:
    """A heading, and then a sentence, a command or a whole page that is included: no second heading, no table."""
    lines = [line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines[0].startswith("```{include}"):
        assert lines[0].startswith("# ")
        assert not lines[1].startswith(("#", "|"))


def test_no_line_is_hidden() -> None:
    """MyST takes a line that begins with % for a comment, such as the second one of a percentage that was broken in two."""
    texts = {page: (DOCS / page).read_text(encoding="utf-8").splitlines() for page in PAGES}
    assert [(str(page), line) for page, lines in texts.items() for line in lines if line.lstrip().startswith("%")] == []


@pytest.mark.parametrize("name", vf.__all__)
def test_what_is_public_is_documented(name: str) -> None:
    text = inspect.getdoc(getattr(vf, name))
    assert text
    assert not text.startswith(f"{name}("), f"{name} has only the docstring that a dataclass gets by itself"
    listed = (DOCS / "api.rst").read_text(encoding="utf-8").splitlines()
    assert {f".. autoclass:: {name}", f".. autofunction:: {name}"} & set(listed), f"docs/api.rst lacks {name}"
