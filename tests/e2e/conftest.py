"""The command line within the tests' own process: no start of Python for each question."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Run, checked_json, flat, german_files
from verifair import datasets
from verifair.cli import main


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """inside(*arguments): exit code, screen and errors (white space folded), in the test's folder; never a traceback."""
    monkeypatch.chdir(tmp_path)

    def run_it(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["verifair", *map(str, arguments)])
        code: object = 0
        with checked_json(arguments, tmp_path):
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        assert isinstance(code, int)
        return code, flat(told.out), flat(told.err)

    return run_it


@pytest.fixture
def refused(inside: Run) -> Callable[..., str]:
    """refused(*arguments): what the command says when it ends with exit code 2 and nothing on the screen."""

    def run_it(*arguments: object) -> str:
        code, screen, errors = inside(*arguments)
        assert (code, screen) == (2, ""), screen + errors
        return errors

    return run_it


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """ctrl_c(owner, name, call): SIGINT as the call-th call of owner.name begins; after=True: once it has ended."""

    def install(owner: Any, name: str, call: int = 1, *, after: bool = False) -> None:
        whole, calls = getattr(owner, name), []

        def interrupted(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) == call and not after:
                signal.raise_signal(signal.SIGINT)
            found = whole(*arguments, **options)
            if len(calls) == call and after:
                signal.raise_signal(signal.SIGINT)
            return found

        monkeypatch.setattr(owner, name, interrupted)

    return install


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model, schema and the held-out rows of German Credit."""
    return german_files(tmp_path_factory.mktemp("german"), datasets.load("german").test)
