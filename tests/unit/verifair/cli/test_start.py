"""How the program starts: what is loaded when, its version, its public names, and modules that hide its packages."""

import ast
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import verifair as vf
from tests.command_line import flat
from tests.command_line import verifair as command
from verifair import _siblings, datasets
from verifair.cli.main import first_sentence, verbs

ROOT = Path(str(vf.__file__)).parents[1]


@pytest.mark.parametrize("name", vf.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(vf, name).__module__.split(".")[0] in ("verifair", "encoders", "solvers")


def test_dir_shows_the_public_names_and_no_submodule() -> None:
    assert dir(vf) == sorted(vf.__all__)
    assert not {"schema", "engine", "checker", "systems", "cli"} & set(dir(vf))
    with pytest.raises(AttributeError, match="no attribute 'unfair'"):
        vf.__getattr__("unfair")


def test_type_checkers_and_users_see_the_same_names() -> None:
    """Type checkers export from a stub what is imported as itself."""
    nodes = ast.walk(ast.parse(Path(str(vf.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")))
    shown = [name for one in nodes if isinstance(one, ast.ImportFrom) for name in one.names]
    assert [name.name for name in shown] == [name.asname for name in shown] == list(vf.HOMES)
    for name, home in vf.HOMES.items():
        assert getattr(vf, name) is getattr(import_module(home), name)


@pytest.mark.parametrize(("program", "loaded"), [
    ("import verifair", ("numpy", "onnx", "typer", "pydantic")),
    ("import verifair.systems.hyfair.certify.solve, verifair.systems.hyfair.kmax.solve", ("numba",)),
    ("from verifair.cli import main; sys.argv = ['verifair', '--help']; main()", ("numpy", "pandas", "onnx", "sklearn")),
    ("from verifair.cli import main; sys.argv = ['verifair', 'pba', '--help']; main()", ("numpy", "pandas", "onnx", "sklearn")),
])
def test_a_start_loads_little(program: str, loaded: tuple[str, ...]) -> None:
    told = f"import sys, atexit; atexit.register(lambda: print('loaded:', set({loaded}) & set(sys.modules))); {program}"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "loaded: set()" in done.stdout


def test_the_version_is_shown() -> None:
    assert command("--version").stdout == f"verifair {vf.__version__}\n"


@pytest.mark.parametrize("name", ["encoders", "solvers"])
@pytest.mark.parametrize("start", [["-c", "import verifair"], ["-m", "verifair", "--version"], ["script.py"]])
def test_a_module_that_hides_ours_is_told_in_one_line(start: list[str], name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "script.py").write_text("import verifair")
    done = subprocess.run([sys.executable, *start], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    remedy = "rename that file or folder, or start Python in another folder"
    assert done.stderr == f"error: {tmp_path / name}.py hides verifair's own package {name!r}; {remedy}\n"


@pytest.mark.parametrize("there", ["a package of somebody else", None])
def test_a_package_installed_over_ours_is_told(there: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install solvers` writes into the same folder, and uninstalling it takes our file away."""
    (tmp_path / "solvers").mkdir()
    if there is not None:
        (tmp_path / "solvers" / "__init__.py").write_text(f'"""{there}"""')
    origin = None if there is None else str(tmp_path / "solvers" / "__init__.py")
    spec = SimpleNamespace(origin=origin, submodule_search_locations=[str(tmp_path / "solvers")])
    monkeypatch.setattr(_siblings, "__file__", str(tmp_path / "verifair" / "_siblings.py"))
    monkeypatch.setattr(_siblings, "SIBLINGS", ("solvers",))
    monkeypatch.delitem(sys.modules, "solvers", raising=False)
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=lambda name, path: spec)])
    with pytest.raises(_siblings.HiddenPackage, match="pip uninstall solvers, then install verifair anew"):
        _siblings.check_siblings()


def test_the_help_names_every_verb_and_a_typo_gets_a_suggestion() -> None:
    screen = command("--help").stdout
    assert all(f" {verb} " in screen for verb in verbs())
    words = flat(screen.replace("│", ""))
    for verb in verbs():  # each with one sentence, whose lines fill the screen
        assert re.fullmatch(r"[A-Z][^\n]+\.", sentence := first_sentence(verb))
        assert ". " not in sentence
        assert sentence in words
    wrong = command("aduit")
    assert wrong.returncode == 2
    assert "Did you mean 'audit'?" in flat(wrong.stderr)


@pytest.fixture
def program() -> Iterator[ModuleType]:
    """The module of the program, which answers signals from when it is imported; they are given back afterwards."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield import_module("verifair.__main__")
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_the_program_loads_next_to_nothing_before_it_answers_signals() -> None:
    """A signal that comes before its first line shows a traceback of Python's."""
    told = "import os, sys; before = set(sys.modules); import verifair.__main__; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", told], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["__future__", "types", "verifair", "verifair.__main__", "verifair._siblings"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_anything_has_begun_ends_the_program(number: int) -> None:
    told = f"import signal; import verifair.__main__; signal.raise_signal({int(number)})"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False, preexec_fn=_answered)
    assert (done.returncode, done.stderr) == (130, "interrupted: nothing is kept\n")


def _answered() -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)  # which are ignored in the background


def test_a_signal_waits_until_an_import_is_over(tmp_path: Path, program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a module fails in many ways; a moment later Ctrl-C is KeyboardInterrupt as ever."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append(number))
    monkeypatch.setattr(threading, "Timer", lambda seconds, call, given: SimpleNamespace(start=lambda: call(*given), daemon=True))
    module = "import sys\nfrom verifair.__main__ import _interrupt\n_interrupt(2, sys._getframe())\n"
    (tmp_path / "interrupted.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("interrupted")
    assert sent == [2]
    with pytest.raises(KeyboardInterrupt):
        program._interrupt(2, sys._getframe())


def test_a_signal_that_meets_a_finaliser_is_sent_again() -> None:
    """Python tells of an exception there, and goes on as if nothing had been."""
    told = """if True:
        import signal, sys, time
        from verifair import __main__ as program, cli
        class Held:
            def __del__(self): signal.raise_signal(signal.SIGINT)
        def command():
            Held()
            time.sleep(10)
        cli.main = command
        program.main()
    """
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False, preexec_fn=_answered)
    assert (done.returncode, done.stderr) == (130, "interrupted: nothing is kept\n")


def test_a_command_that_is_interrupted_at_once_says_so(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("verifair.cli.main", lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted: nothing is kept\n"


@pytest.mark.filterwarnings("default::verifair.schema.rows.LabelWarning")
def test_our_warnings_are_shown_without_code(tmp_path: Path) -> None:
    """As those of the label, which every command that reads one may give."""
    frame, schema = datasets.load("german").frame.head(300), datasets.load("german").schema
    frame["credit"] = frame["credit"].mask(frame.index < 3, "open")
    frame.to_csv(tmp_path / "three.csv", index=False)
    schema.save(tmp_path / "german.toml")
    files = (datasets.network_path("german"), "--schema", tmp_path / "german.toml", "--data", tmp_path / "three.csv")
    done = command("pba", *files, "--protected", "sex", "--delta", 0, "--no-robustness", "--nodes", 1)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: label 'credit': rows with bad, open all count as not 'good'\n") == 1
    assert "rows.py" not in done.stderr
