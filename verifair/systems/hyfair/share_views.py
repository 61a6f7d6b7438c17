"""The certified share on the screen and on paper."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as Grid

from verifair.engine.verdict import Witness
from verifair.schema.schema import Schema
from verifair.systems.figures import figure
from verifair.systems.hyfair.share import Blocks, PartitionSummary
from verifair.systems.words import percent

SHOWN = {
    "proved": ("proved", "#2166ac"), "violated": ("refuted", "#b2182b"), "unknown": ("unknown", "#fdae61"),
    "not_reached": ("not reached", "#bdbdbd"), "outside": ("outside", "#ededed"),
}  # fmt: skip
"""How outcomes are called and coloured, in the order in which they stand."""
MEASURES = {"parts": "parts", "volume": "domain", "rows": "data rows"}
STRIPS = 3
"""So many features are drawn, those along which the refuted share varies most."""
NOTICEABLE = 0.005**2
"""A share that varies by less than half a percent is not worth a picture."""
LABELLED = 16
"""Blocks of one feature that still can be labelled one by one."""



def shares_table(found: PartitionSummary) -> Grid:
    """One line a measure: parts, share of the domain, rows of the table."""
    shares = found.shares
    outcomes = [outcome for outcome in SHOWN if outcome != "outside" or found.rows is not None]
    grid = Grid(title="Certified share", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    grid.add_column("", no_wrap=True)
    for outcome in outcomes:
        grid.add_column(SHOWN[outcome][0], justify="right", no_wrap=True)
    for measure, label in MEASURES.items():
        share, counts = shares[measure], {"parts": found.parts, "rows": found.rows}.get(measure)
        if share is None:
            continue
        cells = [(counts[o] if counts else None, share[o]) if o in share else None for o in outcomes]
        grid.add_row(label, *map(_cell, cells))
    return grid


def _cell(found: tuple[int | None, float] | None) -> str:
    """A count with its share, or the share alone."""
    if found is None or found[1] == 0:
        return "-" if found is None else "0"
    count, share = found
    return percent(share) if count is None else f"{count:,} ({percent(share)})"


def people_table(schema: Schema, examples: Sequence[Witness]) -> Grid:
    """Witnesses side by side, one column a person; what differs between the two copies in bold."""
    grid = Grid("feature", *(f"person {k}" for k in range(1, len(examples) + 1)), title="Some of those treated differently")
    grid.title_justify = "left"
    for feature in schema.features:
        cells = [_change(one.x[feature.name], one.x_prime[feature.name]) for one in examples]
        grid.add_row(escape(feature.name), *cells)
    grid.add_section()
    grid.add_row("decision", *(_change(*(schema.outcomes[int(g > 0)] for g in one.outputs)) for one in examples))
    grid.add_row(escape(f"probability of {schema.outcomes[1]}"), *(_change(*map(_digits, one.probabilities)) for one in examples))
    return grid


def _change(first: Any, second: Any) -> str:
    return escape(f"{first}") if first == second else f"[bold]{escape(f'{first} → {second}')}[/]"


def _digits(probability: float) -> str:
    return f"{probability:.4f}"


def partition_plot(found: PartitionSummary, schema: Schema, question: str, path: Path) -> None:
    """Above: the shares, by measure.   Below: the refuted share by blocks of the features along which it varies most."""
    varied = [one for one in found.blocks if one.variation[1] > NOTICEABLE]
    strips = sorted(varied, key=lambda one: one.variation, reverse=True)[:STRIPS]
    bars = [name for name in MEASURES if found.shares[name] is not None]
    heights = [0.5 * len(bars) + 0.2, *([0.45] * len(strips))]
    size = (10, 1.3 + sum(heights) + 0.45 * len(strips))
    with figure(path, size, 1 + len(strips), heights=heights) as drawn:
        above, *below = drawn.axes
        _draw_shares(above, found, bars)
        drawn.suptitle(f"{question}: {percent(found.volume['proved'])} of the domain certified", fontsize=13)
        image = None
        for axis, one in zip(below, strips, strict=True):
            image = _draw_strip(axis, schema, one)
        if image is not None:
            title = "Refuted share of the parts reached, along the features where it varies most"
            below[0].set_title(title, fontsize=10, loc="left")
            bar = drawn.colorbar(image, ax=below, fraction=0.03, pad=0.01)
            bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def _draw_shares(axis: Any, found: PartitionSummary, bars: list[str]) -> None:
    left = np.zeros(len(bars))
    place = np.arange(len(bars))
    for outcome, (label, colour) in SHOWN.items():
        width = np.array([(found.shares[name] or {}).get(outcome, 0.0) for name in bars])
        if not width.any():
            continue
        axis.barh(place, width, 0.7, left=left, color=colour, label=label, edgecolor="white")
        for y, start, share in zip(place, left, width, strict=True):
            if share >= 0.05:
                ink = "white" if outcome in ("proved", "violated") else "black"
                axis.text(start + share / 2, y, percent(share), ha="center", va="center", color=ink, fontsize=10)
        left = left + width
    counted = {"parts": sum(found.parts.values()), "rows": sum((found.rows or {}).values())}
    axis.set_yticks(place, [f"{MEASURES[name]}\n({counted[name]:,})" if name in counted else MEASURES[name] for name in bars])
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(SHOWN), frameon=False)


def _draw_strip(axis: Any, schema: Schema, one: Blocks) -> Any:
    import matplotlib

    colours = matplotlib.colormaps["OrRd"].with_extremes(bad="#bdbdbd")
    count = len(one.low)
    image = axis.imshow(np.ma.masked_invalid(one.refuted)[None, :], aspect="auto", cmap=colours, vmin=0, vmax=1)
    shown = range(count) if count <= LABELLED else np.unique(np.linspace(0, count - 1, 9).astype(int)).tolist()
    axis.set_xticks(list(shown), [_label(schema, one, k, short=count > 6) for k in shown], fontsize=8)
    axis.set_yticks([0], [textwrap.fill(one.feature, 18)])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if count <= LABELLED:
        for k in np.flatnonzero(np.isfinite(one.refuted)).tolist():
            ink = "white" if one.refuted[k] > 0.6 else "black"
            axis.text(k, 0, percent(float(one.refuted[k])), ha="center", va="center", fontsize=8, color=ink)
    return image


def _label(schema: Schema, one: Blocks, k: int, *, short: bool) -> str:
    ends = [schema.format(one.feature, float(end)) for end in (one.low[k], one.high[k])]
    if schema[one.feature].numeric:
        return "–".join(dict.fromkeys(ends)) if len(one.low) <= LABELLED else ends[0]
    return "\n… ".join(textwrap.shorten(end, 12 if short else 22, placeholder="…") for end in dict.fromkeys(ends))
