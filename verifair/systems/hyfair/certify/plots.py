"""The figures of certify: certified shares, the largest gap, counterexamples."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from verifair.errors import QueryError
from verifair.figures import HATCHED, NOT_REACHED, OUTSIDE, PROVED, REFUTED, figure
from verifair.schema.schema import Schema
from verifair.systems.hyfair.certify.result import (
    Block,
    CertifyResult,
    EnumerationResult,
    MaximumResult,
    PartitionResult,
    PartitionSummary,
    ShareResult,
    TargetedResult,
    VerdictResult,
)
from verifair.systems.hyfair.certify.tables import MEASURES, SHOWN, headline
from verifair.systems.results.words import percent

FILLS: dict[str, dict[str, Any]] = {
    "proved": {"facecolor": PROVED}, "violated": {"facecolor": REFUTED}, "unknown": HATCHED,
    "not_reached": {"facecolor": NOT_REACHED}, "outside": {"facecolor": OUTSIDE},
}
STRIPS = 3
"""So many features are drawn, those along which the refuted share varies most."""
NOTICEABLE = 0.005**2
"""A share that varies by less than half a percent is not worth a picture."""
LABELLED = 16
"""Blocks of one feature that still can be labelled one by one."""


def plot(result: CertifyResult, path: Path) -> None:
    """Draw the certified share, the largest gap, or the people who are treated differently. Raises QueryError for several boxes."""
    match result:
        case ShareResult():
            bracket_plot(result, path)
        case PartitionResult():
            partition_plot(result, result.question.schema, headline(result.question), path)
        case VerdictResult():
            result.verdict.plot().save(path)
        case EnumerationResult():
            result.enumeration.plot().save(path)
        case MaximumResult():
            result.gap.plot().save(path)
        case TargetedResult():
            raise QueryError("verdicts on several boxes have no picture; to_frame() lists them")


def bracket_plot(result: ShareResult, path: Path) -> None:
    """Draw the shares proved fair and unfair, over the time of all runs."""
    seconds = [0.0, *(one.seconds for one in result.history)]
    fair = np.array([0.0, *(one.fair for one in result.history)])
    most = 1 - np.array([0.0, *(one.unfair for one in result.history)])
    with figure(path, (8, 4.5)) as drawn:
        axis = drawn.axes[0]
        axis.fill_between(seconds, 0, fair, **FILLS["proved"], label="fair", step="post")
        axis.fill_between(seconds, fair, most, **FILLS["unknown"], label="open", step="post")
        axis.fill_between(seconds, most, 1, **FILLS["violated"], label="not fair", step="post")
        axis.plot(seconds[-1:], fair[-1:], "k.")
        axis.plot(seconds[-1:], most[-1:], "k.")
        axis.set_ylim(0, 1)
        axis.set_xlabel("seconds of work (the ends are certified, what is before them is estimated)")
        axis.set_ylabel("share of the domain")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        drawn.suptitle(textwrap.fill(f"{headline(result.question)}: {fair[-1]:.2%} to {most[-1]:.2%} of the domain", 80))


def partition_plot(found: PartitionSummary, schema: Schema, question: str, path: Path) -> None:
    """Draw, above, the shares by measure; below, the refuted share by blocks of the features along which it varies most."""
    varied = [one for one in found.blocks if one.variation[1] > NOTICEABLE]
    strips = sorted(varied, key=lambda one: one.variation, reverse=True)[:STRIPS]
    bars = [name for name in MEASURES if found.shares[name] is not None]
    heights = [0.5 * len(bars) + 0.2, *([0.45] * len(strips))]
    size = (10, 1.3 + sum(heights) + 0.45 * len(strips))
    with figure(path, size, 1 + len(strips), heights=heights) as drawn:
        above, *below = drawn.axes
        _draw_shares(above, found, bars)
        drawn.suptitle(f"{question}: {percent(found.volume.proved)} of the domain certified")
        image = None
        for axis, one in zip(below, strips, strict=True):
            image = _draw_strip(axis, schema, one)
        if image is not None:
            title = "Refuted share of the parts reached, along the features where it varies most"
            below[0].set_title(title)
            bar = drawn.colorbar(image, ax=below, fraction=0.03, pad=0.01)
            bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def _draw_shares(axis: Any, found: PartitionSummary, bars: list[str]) -> None:
    left = np.zeros(len(bars))
    place = np.arange(len(bars))
    for outcome, label in SHOWN.items():
        width = np.array([getattr(found.shares[name], outcome, 0.0) for name in bars])
        if not width.any():
            continue
        axis.barh(place, width, 0.7, left=left, label=label, **FILLS[outcome])
        for y, start, share in zip(place, left, width, strict=True):
            if share >= 0.05:
                ink = "white" if outcome in ("proved", "violated") else "black"
                axis.text(start + share / 2, y, percent(share), ha="center", va="center", color=ink, fontsize=10)
        left = left + width
    counted = {"parts": found.parts.all, "rows": 0 if found.rows is None else found.rows.all}
    axis.set_yticks(place, [f"{MEASURES[name]}\n({counted[name]:,})" if name in counted else MEASURES[name] for name in bars])
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(SHOWN))


def _draw_strip(axis: Any, schema: Schema, one: Block) -> Any:
    import matplotlib

    colours = matplotlib.colormaps["OrRd"].with_extremes(bad=NOT_REACHED)
    count = len(one.low)
    image = axis.imshow(np.ma.masked_invalid(one.refuted)[None, :], aspect="auto", cmap=colours, vmin=0, vmax=1)
    shown = range(count) if count <= LABELLED else np.unique(np.linspace(0, count - 1, 9).astype(int)).tolist()
    axis.set_xticks(list(shown), [_label(schema, one, k, short=count > 6) for k in shown])
    axis.set_yticks([0], [textwrap.fill(one.feature, 18)])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if count <= LABELLED:
        for k in np.flatnonzero(np.isfinite(one.refuted)).tolist():
            ink = "white" if one.refuted[k] > 0.6 else "black"
            axis.text(k, 0, percent(float(one.refuted[k])), ha="center", va="center", fontsize=8, color=ink)
    return image


def _label(schema: Schema, one: Block, k: int, *, short: bool) -> str:
    ends = [schema.format(one.feature, float(end)) for end in (one.low[k], one.high[k])]
    if schema[one.feature].numeric:
        return "–".join(dict.fromkeys(ends)) if len(one.low) <= LABELLED else ends[0]
    return "\n… ".join(textwrap.shorten(end, 12 if short else 22, placeholder="…") for end in dict.fromkeys(ends))
