"""A disk that is full or read-only, two runs on one output, a clock that is set back: a message, exit code 2, nothing is lost."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from tests.command_line import Run, german_files
from verifair import datasets
from verifair.locks import alone
from verifair.systems.hyfair.certify import solve as certify
from verifair.systems.hyfair.explain import plots as explain_plots
from verifair.systems.pba import plots as pba_plots
from verifair.systems.pba import solve

PBA = ("pba", "--demo", "german", "--protected", "sex", "--delta", "1", "--delta", "2", "--limit", "60")
Mounted = Callable[[str], Path]
ONE = ("certify", "--demo", "german", "--protected", "sex", "--box", "duration=4:8")
PARTS = (*ONE[:5], "--partition", "10", "--store", "{}/full")
GUARD = ("guard", *ONE[1:5], "--rules", "rules.json", "--iterations", "10")
SAFE = (
    "duration=6,credit-amount=1169,savings=unknown,status=no account,credit-history=critical,purpose=television,"
    "employment=>= 7 years,property=real estate"
)
NO_ROOM = "No space left on device; make room there, or name another place"
FILES = ("verdicts.jsonl", "rates.csv", "shares.csv", "certificate.json.gz", "certificate-robustness.json.gz")


def same(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in FILES)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """mounted(options): a file system in memory, or the same with other options."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    there = False

    def mount(options: str) -> Path:
        nonlocal there
        words = ["mount", "-t", "tmpfs", "-o", f"{'remount,' * there}{options}", "tmpfs", str(folder)]
        if os.name != "posix" or os.geteuid() or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("only root may mount a file system")
        there = True
        return folder

    yield mount
    if there:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def undisturbed(inside: Run, tmp_path: Path) -> Path:
    assert inside(*PBA, "--out", tmp_path / "undisturbed")[0] == 0
    return tmp_path / "undisturbed"


def test_a_store_whose_disk_is_full_goes_on_once_there_is_room(inside: Run, mounted: Mounted, undisturbed: Path) -> None:
    out = mounted("size=120k") / "out"
    code, _, errors = inside(*PBA, "--out", out)
    assert (code, errors) == (
        2, f"error: {out}/verdicts.sqlite: database or disk is full; what was decided before is kept: make room there, then run "
        "the same command with --resume",
    )
    mounted("size=50m")
    assert inside(*PBA, "--out", out, "--resume")[0] == 0
    assert same(out, undisturbed)


def test_an_answer_that_no_file_can_hold_is_shown_and_leaves_older_files(inside: Run, mounted: Mounted) -> None:
    folder = mounted("size=32k")
    (folder / "old.json").write_text("{}")
    (folder / "rest").write_bytes(bytes(28_000))
    code, screen, errors = inside(*ONE, "--json", folder / "old.json")
    assert (code, errors) == (2, f"error: {folder}/old.json: {NO_ROOM}")
    assert screen.startswith("VIOLATED: the same person, another value of sex, another decision")
    assert (folder / "old.json").read_text() == "{}"
    assert sorted(os.listdir(folder)) == ["old.json", "rest"]


@pytest.mark.parametrize(("words", "room", "told"), [
    (PARTS, 0, "full: no store of partitions (database or disk is full); make room, or name another with --store"),
    (PARTS, 8_192, "full: no store of partitions (disk I/O error); make room, or name another with --store"),
    (
        (*PBA, "--store", "{}/full"), 8_192,
        "full: disk I/O error; what was decided before is kept: make room there, then run the same command with --resume",
    ),
    (("export", *ONE[1:5], "--relaxed", "--vnnlib", "{}/full"), 0, "full/1.0/onnx/product.onnx: " + NO_ROOM),
    (("schema", "infer", "german.csv", "--target", "credit", "--positive", "good", "--out", "{}/full"), 0, "full: " + NO_ROOM),
    ((*PBA, "--limit", "5", "--store", "pba.sqlite", "--out", "{}/full"), 24_576, "full/verdicts.jsonl: " + NO_ROOM),
    ((*PBA, "--limit", "5", "--store", "pba.sqlite", "--out", "{}/full"), 40_960, "full/verdicts.parquet: " + NO_ROOM),
    ((*ONE[:5], "--targeted", SAFE, "--certificate", "{}/full"), 0, "full/targeted-1.json.gz: " + NO_ROOM),
    ((*GUARD, "--out", "{}/full.onnx"), 0, "full.toml: " + NO_ROOM),
    ((*GUARD, "--out", "{}/full.onnx"), 8_192, "full.onnx: " + NO_ROOM),
    (("explain", *ONE[1:5], "--iterations", "50", "--rounds", "1", "--out", "{}/full"), 12_288, "full/rules.json: " + NO_ROOM),
])
def test_a_disk_that_is_full_names_the_file_and_the_remedy(
    inside: Run, mounted: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], room: int, told: str
) -> None:
    for plots in (pba_plots, explain_plots):  # pictures come first
        monkeypatch.setattr(plots, "plots", lambda result: {})
    german_files(tmp_path, datasets.german().frame.head(60))
    Path("rules.json").write_text('{"rules": [{"when": {"duration": {"low": 4, "high": 8}}}]}')
    folder = mounted("size=64k")
    (folder / "rest").write_bytes(bytes(65_536 - room))
    code, _, errors = inside(*(word.format(folder) for word in words))
    assert (code, errors) == (2, f"error: {folder}/{told}")
    assert not list(folder.rglob(".part-*"))


@pytest.mark.parametrize("words", [
    (*PBA, "--out", "{}/out"), (*ONE, "--certificate", "{}/proof.json"), (*ONE, "--json", "{}/a.json"),
    ("certify", "--demo", "german", "--protected", "sex", "--partition", "10", "--store", "{}/parts.sqlite"),
    ("audit", "--demo", "german", "--out", "{}/page.html"), ("bench", "--quick", "--out", "{}/bench"),
])
def test_a_folder_that_is_read_only_costs_no_time(inside: Run, mounted: Mounted, words: tuple[str, ...]) -> None:
    mounted("size=1m")
    folder = mounted("ro")
    code, screen, errors = inside(*(word.format(folder) for word in words))
    assert (code, screen) == (2, "")
    what = "folder" if words[0] in ("pba", "bench") else "file"
    option, named = words[-2:]
    assert errors == f"error: {option} {named.format(folder)}: nothing can be written in {folder}; name a {what} elsewhere"


@pytest.mark.parametrize("words", [
    (*PBA, "--out", "out"), (*PBA, "--store", "out/verdicts.sqlite"),
    ("certify", "--demo", "german", "--protected", "sex", "--partition", "10", "--store", "out/verdicts.sqlite"),
    ("certify", "--demo", "german", "--protected", "sex", "--share", "--store", "out/verdicts.sqlite"),
])
def test_a_store_that_another_run_is_writing_is_left_alone(inside: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    with alone(tmp_path / "out" / ".verdicts.sqlite.lock", "in use"):
        code, _, errors = inside(*words)
        assert os.listdir(tmp_path / "out") == [".verdicts.sqlite.lock"]
    remedy = "wait until that has ended, and go on with --resume, or name another file with --store"
    assert (code, errors) == (2, f"error: out/verdicts.sqlite: another run is writing it; {remedy}")


def test_a_clock_that_is_set_back_changes_nothing(
    inside: Run, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour at a time, also between an interrupted run and the one that goes on with it."""
    now, hours = time.time(), count()
    monkeypatch.setattr(time, "time", lambda: now - 3600 * next(hours))
    whole, asked = solve.decide_rows, iter((True, False, False))
    with monkeypatch.context() as once:
        once.setattr(solve, "decide_rows", lambda *words, **named: whole(*words, **named) if next(asked) else interrupt())
        assert inside(*PBA, "--out", tmp_path / "out")[0] == 130
    assert inside(*PBA, "--out", tmp_path / "out", "--resume")[0] == 0
    assert next(hours) > 0
    assert same(tmp_path / "out", undisturbed)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("words", [
    ("pba", "--demo", "german", "--delta", "1"), ("fgce", "--demo", "german", "--protected", "sex", "--k", "1"),
    ("explain", "--demo", "german", "--protected", "sex", "--box", "age=nothing"),
], ids=lambda words: words[0])
def test_a_run_that_fails_before_it_writes_leaves_no_folder(inside: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert inside(*words, "--out", tmp_path / "new" / "out")[0] == 2
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    assert inside(*words, "--out", tmp_path / "old")[0] == 2
    assert os.listdir(tmp_path / "old") == []


@pytest.mark.parametrize(("module", "step", "words"), [
    (certify, "sampled_share", (*ONE[:5], "--share", "--nodes", "1")),
    (certify, "partition_summary", (*ONE[:5], "--partition", "1000")),
    (solve, "proved_shares", PBA),
], ids=("share", "partition", "pba"))
def test_an_interrupt_once_the_work_is_kept_says_where_it_is(
    module: ModuleType, step: str, words: tuple[str, ...], inside: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as once:
        once.setattr(module, step, lambda *arguments, **options: interrupt())
        code, _, errors = inside(*words, "--store", "kept")
    assert code == 130
    assert errors.endswith("interrupted: kept keeps finished work; pass the same command with --resume to go on")
    assert inside(*words, "--store", "kept", "--resume")[0] == 0
