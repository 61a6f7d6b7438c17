"""A real browser without a screen, for tests of pages; absent, they are skipped and say so."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser, started from the system's Chromium with a profile of its own."""
    program = next((path for path in map(shutil.which, NAMES) if path), None)
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium, to test pages in a browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright: pip install playwright")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(kw_only=True)
class Watched:
    """A page, with all that it said on the console and asked the network for."""

    page: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def opened(browser: Any, file: Path, *, width: int = 1280, height: int = 800, **context: Any) -> Iterator[Watched]:
    """The file in a window of its own. context: of playwright's new_context."""
    window = browser.new_context(viewport={"width": width, "height": height}, **context)
    try:
        watched = Watched(page=window.new_page())
        watched.page.goto(file.as_uri())
        yield watched
    finally:
        window.close()
