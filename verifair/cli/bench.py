"""verifair bench: the same queries through every method and solver that is installed."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from rich.table import Column
from rich.table import Table as Grid

from verifair.cli.command import app_of, parse_options
from verifair.cli.helps import HELPS
from verifair.errors import Disagreement, QueryError, require
from verifair.notebook.progress import progress_bar
from verifair.screen import Screen
from verifair.systems.settings import Option, Positive, Run, Settings, assignments
from verifair.systems.system import System

if TYPE_CHECKING:
    from verifair.bench.cases.family import BenchCase, Family
    from verifair.bench.competitors import Competitor
    from verifair.bench.peers.process import Tool
    from verifair.bench.tables import BenchResult


class BenchSettings(Settings):
    """The settings of `verifair bench`: questions, competitors, and number of rounds."""

    solvers: str | None = None
    """Only these backends, separated by commas; methods without a backend stay."""
    methods: str | None = None
    """Only these methods, with commas, such as auto,milp,marabou."""
    cases: tuple[str, ...] = ()
    """Only cases with matching names, e.g. 'pba-*/3-*'; repeat."""
    network: Path | None = None
    """Your model, an ONNX file of a network or of trees, instead of the shipped ones."""
    schema_file: Annotated[Path | None, Option(name="--schema")] = None
    """Description of your model's inputs (TOML)."""
    data: Path | None = None
    """Your table; questions are asked about and around its rows."""
    queries: tuple[Path, ...] = ()
    """VNN-LIB queries: files, a folder (instances.csv) or a JSON list; repeat."""
    competitor: tuple[str, ...] = ()
    """Another verifier: NAME='command {onnx} {vnnlib} {timeout} {results}', or a ready NAME; repeat."""
    competitor_home: tuple[str, ...] = ()
    """Folder of a competitor's checkout: NAME=PATH; repeat."""
    seeds: Annotated[int, Field(ge=1)] = 1
    """Draw every case with this number of seeds; tables show mean and spread."""
    quick: bool = False
    """A few small cases of every kind."""
    repeats: Annotated[int | None, Field(ge=1)] = None
    """Rounds, of which medians are compared (default: 3, with --quick 1)."""
    timeout: Positive | None = None
    """Seconds for each run (default: 5, with --quick 1)."""
    patience: Annotated[int, Field(ge=0)] = 2
    """Time-outs in a row after which larger cases are not asked; 0 asks all."""
    out: Path = Path("runs") / "bench"
    """Folder for runs, tables and figures."""
    list_cases: Annotated[bool, Option(name="--list")] = False
    """List cases and competitors, and run nothing."""

    def check_options(self, inputs: Any, run: Run) -> None:
        """Raise ValueError if cases are chosen in two ways."""
        if self.quick and self.cases:
            raise ValueError("--quick chooses its own cases: drop it, or drop --cases")
        if self.quick and (self.network is not None or self.queries):
            raise ValueError("--quick asks about the shipped networks: drop it, or drop --network and --queries")
        if (self.schema_file is None) != (self.data is None):
            raise ValueError("--schema and --data describe one model: give both, or none")
        if self.schema_file is not None and self.network is None:
            raise ValueError("--schema and --data are about your own model: add --network")
        if self.network is not None and self.schema_file is None and not self.queries:
            raise ValueError("--network needs something to ask: --schema and --data, or --queries")


def run(system: System, arguments: dict[str, Any]) -> None:
    """Run all competitors, write and show their answers; raise Disagreement if two contradict each other."""
    from verifair.bench.answer import BenchAnswer, BenchListAnswer
    from verifair.bench.cases import QUICK, chosen
    from verifair.bench.competitors import competitors, processes
    from verifair.bench.records import Journal
    from verifair.bench.run import run as measure
    from verifair.bench.tables import comparison, to_dict
    from verifair.cli.output import alone_in, check_outputs, check_workers, save_answer
    from verifair.engine.cluster import cluster
    from verifair.interrupts import Interrupted
    from verifair.systems.results.files import plain
    from verifair.systems.work import budget

    _, settings, files = parse_options(system, arguments)
    out, seed, json = settings.out, files.seed, files.json_file
    rounds, seconds = (1, 1.0) if settings.quick else (3, 5.0)
    limit = budget(seconds if settings.timeout is None else settings.timeout, files.nodes, files.seed).seconds
    known_families = _families(settings)
    cases = chosen(QUICK if settings.quick else settings.cases, seed, known_families, settings.seeds)
    builtin = competitors()
    tools = _tools(settings)
    entrants = [*selected(builtin, _names(settings.methods), _names(settings.solvers)), *processes(tools, builtin)]
    screen = Screen()
    if settings.list_cases:
        _print_list(known_families, cases, entrants, screen)
        save_answer(json, BenchListAnswer.model_validate(_listing(cases, entrants)))
        return
    require("matplotlib", "plots", "the figures of verifair bench")
    check_outputs({"--json": json, "--out": out / "runs.csv"}, folder=out)
    check_workers(files.jobs, files.cluster)
    available = [competitor for competitor in entrants if competitor.available]
    if not available:
        raise QueryError("none of the competitors chosen is installed; verifair bench --list says how to install them")
    if not any(competitor.takes(question) for question in (case.question() for case in cases) for competitor in available):
        names = ", ".join(competitor.name for competitor in available)
        raise QueryError(f"none of {names} takes any of these cases; leave --methods and --solvers out to ask all that do")
    # The cluster first: without it, no journal with its settings is started.
    with alone_in(out), cluster(files.cluster), Journal(out, _settings(files, limit), resume=files.resume) as journal:
        interrupted = False
        try:
            available = _with_startup_times(available, screen)
            with progress_bar("runs") as bar:
                measure(
                    cases, available, journal, limit=limit, repeats=settings.repeats or rounds, patience=settings.patience,
                    jobs=files.jobs, progress=lambda done, total, current: bar(*([current] if current else []), done, total),
                )
        except KeyboardInterrupt:
            interrupted = True
        labels = {case.name for case in cases}, {competitor.name for competitor in available}
        records = [record for record in journal.records.values() if record.case in labels[0] and record.competitor in labels[1]]
    result = comparison(records, limit)
    files_written = _write(result, cases, out)
    content = {**to_dict(result), "interrupted": interrupted, "seed": seed, **_listing(cases, entrants)}
    answer = BenchAnswer.model_validate(plain(content))
    save_answer(out / "bench.json", answer)
    save_answer(json, answer)
    _print_results(result, entrants, [*files_written, out / "bench.json"], screen)
    if interrupted:
        raise Interrupted(f"interrupted: {out} keeps what was measured; continue with --resume")
    if result.contradictions:
        pair = result.contradictions[0]
        raise Disagreement(
            f"{len(result.contradictions)} disagreements; the first: {pair.first.competitor} and {pair.second.competitor} on "
            f"{pair.first.case}: {pair.what}; both answers are in {out / pair.name}, please report it"
        )


SYSTEM = System(
    verb="bench", help=HELPS["bench"], settings=BenchSettings, inputs=Settings,
    run=("resume", "seed", "jobs", "cluster", "json_file"),
    helps={
        "resume": "Continue the run in --out.",
        "jobs": "Cases measured at once, each by a process on one core; they slow one another a little.",
        "cluster": "Measure on the workers of a dask cluster, each case on one of them: tcp://host:port of its scheduler.",
    },
)
app = app_of(SYSTEM, run)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def _families(settings: BenchSettings) -> Sequence[Family]:
    """Return the families of cases: a user's own, else all."""
    from verifair.bench.cases import families
    from verifair.bench.cases.files import file_families
    from verifair.bench.cases.shipped import own_families

    own: list[Family] = []
    if settings.network is not None and settings.schema_file is not None and settings.data is not None:
        own += own_families(settings.network, settings.schema_file, settings.data)
    return [*own, *file_families(settings.queries, settings.network)] or families()


def _tools(settings: BenchSettings) -> list[Tool]:
    """Return the other verifiers that are named. Raises QueryError for an unknown form."""
    from verifair.bench.peers.process import tool

    try:
        homes = assignments(settings.competitor_home, expected="expected NAME=PATH", once="give each competitor once")
    except ValueError as error:
        raise QueryError(f"--competitor-home {error}") from None
    tools = [tool(text, {name: Path(path) for name, path in homes.items()}) for text in settings.competitor]
    for name in homes:
        if name not in [tool.name for tool in tools]:
            raise QueryError(f"--competitor-home {name}: no --competitor is called so")
    return tools


def _with_startup_times(competitors: Sequence[Competitor], console: Screen) -> list[Competitor]:
    """Measure the start-up time of other verifiers, which is subtracted from their times; report those that fail."""
    result = []
    for peer in competitors:
        if peer.tool is not None:
            peer = replace(peer, tool=peer.tool.measured())
            assert peer.tool is not None
            console.print(f"{peer.name} starts in {peer.tool.startup:.2f} s, which is subtracted." if peer.tool.startup else
                          f"{peer.name}: no start is subtracted (it does not prove a query of one neuron).")
        result.append(peer)
    return result


def selected(known: Sequence[Competitor], methods: Sequence[str], solvers: Sequence[str]) -> list[Competitor]:
    """Return the competitors with the named methods and backends. Raises QueryError for unknown names."""
    for option, names, known_names in (
        ("--methods", methods, {c.method for c in known}), ("--solvers", solvers, {c.solver for c in known if c.solver}),
    ):
        for name in names:
            if name not in known_names:
                raise QueryError(f"{option} {name}: is not known; choose among {', '.join(sorted(known_names))}")
    return [
        c for c in known
        if (not methods or c.method in methods) and (not solvers or c.solver is None or c.solver in solvers)
    ]


def _settings(files: Run, limit: float) -> dict[str, Any]:
    """Return the settings that all runs of a journal share: times under different settings are not comparable."""
    place = "a cluster" if files.cluster is not None else f"{files.jobs} processes"
    measured = {} if files.cluster is None and files.jobs == 1 else {"measured by": place}
    return {
        "verifair": version("verifair"), "python": platform.python_version(), "machine": platform.machine(), "limit": limit,
        "seed": files.seed, **measured,
    }


def _write(result: BenchResult, cases: Sequence[BenchCase], out: Path) -> list[Path]:
    if not result.records:
        return []
    from verifair.bench.contradictions import save
    from verifair.bench.plots import draw
    from verifair.bench.tables import write_tables

    files = write_tables(result, out)
    files += draw(result, out, {case.family.name: case.family.size_is for case in cases})
    names = {record.case for contradiction in result.contradictions for record in (contradiction.first, contradiction.second)}
    return [*files, *save(result.contradictions, out, {case.name: case.question() for case in cases if case.name in names})]


def _listing(cases: Sequence[BenchCase], competitors: Sequence[Competitor]) -> dict[str, Any]:
    return {
        "registry": [
            {"case": case.name, "family": case.family.name, "kind": case.family.kind, "size": case.size} for case in cases
        ],
        "competitors": [
            {"name": c.name, "available": c.available, "version": c.version, "install": c.remedy} for c in competitors
        ],
    }


def _print_list(families: Sequence[Family], cases: Sequence[BenchCase], competitors: Sequence[Competitor], console: Screen) -> None:
    grid = Grid("family", "asks", "sizes", "cases", title=f"{len(cases)} cases (FAMILY/SIZE-NUMBER)", title_justify="left")
    for family in families:
        members = [case for case in cases if case.family.name == family.name]
        if members:
            sizes = ", ".join(dict.fromkeys(str(case.size) for case in members))
            grid.add_row(family.name, family.about, f"{sizes} ({family.size_is})", str(len(members)))
    console.print(grid)
    installed = Grid("competitor", "version", "installed", title=f"{len(competitors)} competitors", title_justify="left")
    for competitor in competitors:
        installed.add_row(competitor.name, competitor.version, "yes" if competitor.available else f"no: {competitor.remedy}")
    console.print(installed)


def _print_results(result: BenchResult, competitors: Sequence[Competitor], files: Sequence[Path], console: Screen) -> None:
    from verifair.bench.records import WRONG_WITNESS
    from verifair.bench.tables import KINDS

    count = len({entry.competitor for entry in result.entries})
    console.print(
        f"{result.cases} cases, {count} competitors, {len(result.records)} runs of at most {result.limit:g} s: {result.decided} of "
        f"{result.asked} answers decided, {len(result.contradictions)} disagreements."
    )
    for kind in dict.fromkeys(entry.kind for entry in result.entries):
        scores = result.scores[(result.scores["kind"] == kind) & (result.scores["family"] == "all")]
        headers = ("competitor", "solved", "claimed", "PAR-2", "median", "MB")
        grid = Grid(*(Column(name, no_wrap=True) for name in headers), title=KINDS[kind], title_justify="left")
        grid.add_column("mostly open for", overflow="fold")  # the rest of the width, wrapped between words
        for line in scores.itertuples(index=False):
            cells = dict(zip(scores.columns, line, strict=True))
            grid.add_row(
                cells["competitor"], f"{cells['solved']} of {cells['cases']}", str(cells["claimed"] or ""),
                f"{cells['PAR-2']:.3f}" + (f" ± {cells['PAR-2 sd']:.3f}" if cells["seeds"] > 1 else ""),
                _number(cells["median s"], 4), _number(cells["peak MB"], 0), cells["mostly open for"].replace("-", " "),
            )
        console.print(grid)
    console.print("PAR-2, median: seconds. MB: peak memory.")
    for choice in result.choices:
        if choice.best != choice.default:
            console.print(
                f"{choice.kind}: {choice.default} is the default of {choice.method} (PAR-2 {choice.default_par2:.3f} s, "
                f"{choice.default_solved} solved); {choice.best} is faster ({choice.best_par2:.3f} s, {choice.best_solved} solved)."
            )
    wrong = [record for record in result.records if record.reason == WRONG_WITNESS]
    if wrong:
        listing = ", ".join(dict.fromkeys(f"{record.competitor} on {record.case}" for record in wrong[:5]))
        console.print(f"{len(wrong)} counterexamples do not meet their queries (wrong-witness): {listing}", soft_wrap=True)
    for record in {r.competitor: r for r in reversed(result.records) if r.reason == "solver-error" and r.note}.values():
        console.print(f"{record.competitor} on {record.case}: solver-error, {record.note}", soft_wrap=True)
    for competitor in competitors:
        if not competitor.available:
            console.print(f"{competitor.name} was not asked: not installed; {competitor.remedy}")
    if files:
        names = [path.name for path in files if not path.name.startswith("disagreement-")]
        saved = f", {len(files) - len(names)} disagreement-*.json" if len(names) < len(files) else ""
        console.print(f"{files[0].parent}: {', '.join(names)}{saved}", soft_wrap=True)


def _number(value: float, digits: int) -> str:
    return "" if value != value else f"{value:.{digits}f}"
