"""The figures of a benchmark: cactus plots, performance profiles, and the best solver for each job.

Colours are backends (Okabe and Ito's), dashes are methods; black is a method without a solver.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verifair.bench.competitors import DEFAULTS
from verifair.bench.scores import NEAR, SHORTEST, Job, cactus, par2, profile, ratios, times
from verifair.bench.tables import KINDS, BenchResult
from verifair.checker.words import counted
from verifair.figures import figure

COLORS = {
    "highs": "#0072B2", "gurobi": "#D55E00", "scip": "#009E73", "z3": "#CC79A7", "cbc": "#E69F00", "ortools-scip": "#56B4E9",
    "ortools-glop": "#8C6D31", "ortools-pdlp": "#7B4FA3", "ortools-cpsat": "#A0A000",
}
PEERS = {"marabou": "#B22222", "fairify:z3": "#8B3A8B"}
OTHER_COLORS = ("#B8860B", "#2F4F4F", "#C71585", "#556B2F", "#4169E1", "#A0522D")
"""Colours of competitors that a user adds."""
DASHES: dict[str, Any] = {
    "auto": "-", "exact": "-", "bnb": "--", "components": "--", "lp": ":", "milp": "-", "mip": "-", "smt": "-.",
    "marabou": (0, (5, 1, 1, 1, 1, 1)), "fairify": (0, (1, 1)),
}


def cactus_plot(result: BenchResult, path: Path) -> None:
    """Draw the number of cases that a competitor solves within a time for each; further right and lower is better."""
    _panels(result, path, _cactus, "cases solved", "seconds for each of them")


def profile_plot(result: BenchResult, path: Path) -> None:
    """Draw the share of cases that a competitor solves within tau times the fastest; the left end is how often it is the
    fastest."""
    _panels(result, path, _profile, "tau: times as long as the fastest", "share of cases within tau")


def _panels(result: BenchResult, path: Path, draw: Any, x: str, y: str) -> None:
    kinds = [kind for kind in KINDS if any(entry.kind == kind for entry in result.entries)]
    columns = min(2, len(kinds))
    rows = -(-len(kinds) // columns)
    with figure(path, (7.6 * columns, 4.6 * rows), rows, columns) as picture:
        for axis in picture.axes[len(kinds) :]:
            axis.set_axis_off()
        for kind, axis in zip(kinds, picture.axes, strict=False):
            measured = [entry for entry in result.entries if entry.kind == kind]
            seconds = times(measured)
            scores = par2(seconds, result.limit)
            best_first = sorted(seconds, key=lambda name: scores[name])
            draw(axis, {name: seconds[name] for name in best_first}, result.limit, DEFAULTS[kind])
            axis.set_title(f"{KINDS[kind]}: {counted(len({entry.case for entry in measured}), 'case', 'cases')}")
            axis.set_xlabel(x)
            axis.set_ylabel(y)
            axis.grid(alpha=0.25)
            axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="least PAR-2 first")


def _cactus(axis: Any, seconds: Mapping[str, Mapping[str, float]], limit: float, default: str) -> None:
    for name, secs in cactus(seconds).items():
        axis.step([0, *range(1, len(secs) + 1)], [*secs[:1], *secs] or [math.nan], where="pre", label=name, **_line(name, default))
    axis.axhline(limit, color="#999999", lw=0.8)
    axis.set_yscale("log")
    axis.set_xlim(left=0)


def _profile(axis: Any, seconds: Mapping[str, Mapping[str, float]], limit: float, default: str) -> None:
    ratios_of = ratios(seconds)
    finite = [ratio for values in ratios_of.values() for ratio in values if math.isfinite(ratio)]
    end = max([2.0, *finite]) * 1.3
    for name, values in ratios_of.items():
        taus = sorted({1.0, *(ratio for ratio in values if math.isfinite(ratio)), end})
        axis.step(taus, [profile(values, tau) for tau in taus], where="post", label=name, **_line(name, default))
    axis.set_xscale("log")
    axis.set_xlim(1, end)
    axis.set_ylim(-0.02, 1.02)


def _line(name: str, default: str) -> dict[str, Any]:
    """Return the line's style; the default is thick and above the others."""
    method, _, _ = name.partition(":")
    thick = name == default
    return {"color": _color(name), "ls": DASHES.get(method, "-"), "lw": 2.6 if thick else 1.3, "zorder": 3 if thick else 2}


def _color(name: str) -> str:
    _, _, backend = name.partition(":")
    color = PEERS.get(name) or COLORS.get(backend)
    is_own = name.partition(":")[0] in DASHES
    return color or ("#000000" if is_own else OTHER_COLORS[zlib.crc32(name.encode()) % len(OTHER_COLORS)])


def jobs_plot(result: BenchResult, path: Path, sizes_are: Mapping[str, str]) -> None:
    """Draw the competitor with the least PAR-2 for each job: each family (a row) at each of its sizes.

    sizes_are: family -> what its sizes count. A thick frame: the default is the best there, or within NEAR times. If it is
    not the best, the text below says how much longer it takes. A small circle: the best one's proofs are a solver's claims.
    """
    families = list(dict.fromkeys(job.family for job in result.jobs))
    max_jobs = max(sum(job.family == family for job in result.jobs) for family in families)
    with figure(path, (max(3.0 + 2.0 * max_jobs, 7.5), 1.6 + 0.72 * len(families))) as picture:
        axis = picture.axes[0]
        for row, family in enumerate(families):
            for column, job in enumerate(job for job in result.jobs if job.family == family):
                _draw_job(axis, column, row, job)
        labels = [f"{family}\n{sizes_are.get(family, '')}" for family in families]
        axis.set_yticks(np.arange(len(families)), labels)
        axis.set_xticks([])
        axis.set_xlim(-0.5, max_jobs - 0.5)
        axis.set_ylim(len(families) - 0.5, -0.5)
        axis.set_xlabel("larger cases  →", loc="left")
        for side in axis.spines.values():
            side.set_visible(False)
        axis.tick_params(length=0)
        axis.set_title(
            "Which solver for which job: who has the least PAR-2, and its seconds.\n"
            f"Thick frame: the default is the best, or within {NEAR:g} times. ° its proofs are a solver's claims.",
            loc="left", fontsize=9,
        )


def _draw_job(axis: Any, column: int, row: int, job: Job) -> None:
    from matplotlib.patches import Rectangle

    has_best = job.best is not None
    serves = job.default_serves
    axis.add_patch(
        Rectangle(
            (column - 0.48, row - 0.44), 0.96, 0.88, facecolor=_color(job.best) if job.best else "white", alpha=0.22, zorder=1
        )
    )
    axis.add_patch(
        Rectangle(
            (column - 0.48, row - 0.44), 0.96, 0.88, fill=False, edgecolor="black" if serves else "#BBBBBB",
            lw=2.2 if serves else 0.8, zorder=2,
        )
    )
    mark = "°" if job.trust == "claimed" else ""
    title = f"{job.best}{mark}  {short(job.seconds)}" if has_best else "nobody"
    subtitle = "" if job.best == job.default or not has_best else f"{job.default} {times_as_long(job)}"
    axis.text(column, row - 0.16, title, ha="center", va="center", fontsize=8.5, weight="bold" if serves else "normal")
    axis.text(column, row + 0.14, subtitle, ha="center", va="center", fontsize=8, color="#333333")
    axis.text(column - 0.46, row + 0.38, f"{job.size}", ha="left", va="bottom", fontsize=8, color="#666666")


def times_as_long(job: Job) -> str:
    """Return, in words, how much longer the default takes than the best."""
    if not math.isfinite(job.default_seconds):
        return "was not asked"
    return f"{job.default_seconds / max(job.seconds, SHORTEST):.1f} x"


def short(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def draw(result: BenchResult, folder: Path, sizes_are: Mapping[str, str]) -> list[Path]:
    """Write cactus.png, profile.png and jobs.png, if they are not empty."""
    if not result.entries:
        return []
    paths = [folder / "cactus.png", folder / "profile.png", folder / "jobs.png"]
    cactus_plot(result, paths[0])
    profile_plot(result, paths[1])
    jobs_plot(result, paths[2], sizes_are)
    return paths

