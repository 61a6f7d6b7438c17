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
from verifair.systems.hyfair.certify.tables import MEASURES, NAMES, headline
from verifair.systems.results.words import percent

FILLS: dict[str, dict[str, Any]] = {
    "proved": {"facecolor": PROVED}, "violated": {"facecolor": REFUTED}, "unknown": HATCHED,
    "not_reached": {"facecolor": NOT_REACHED}, "outside": {"facecolor": OUTSIDE},
}
MAX_STRIPS = 3
"""So many features are drawn, those along which the refuted share varies most."""
MIN_VARIATION = 0.005**2
"""A share that varies by less than half a percent is not worth a picture."""
MAX_LABELS = 16
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
    seconds = [0.0, *(point.seconds for point in result.history)]
    fair = np.array([0.0, *(point.fair for point in result.history)])
    upper = 1 - np.array([0.0, *(point.unfair for point in result.history)])
    with figure(path, (8, 4.5)) as fig:
        axis = fig.axes[0]
        axis.fill_between(seconds, 0, fair, **FILLS["proved"], label="fair", step="post")
        axis.fill_between(seconds, fair, upper, **FILLS["unknown"], label="open", step="post")
        axis.fill_between(seconds, upper, 1, **FILLS["violated"], label="not fair", step="post")
        axis.plot(seconds[-1:], fair[-1:], "k.")
        axis.plot(seconds[-1:], upper[-1:], "k.")
        axis.set_ylim(0, 1)
        axis.set_xlabel("seconds of work (the ends are certified, what is before them is estimated)")
        axis.set_ylabel("share of the domain")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        title = f'True of {fair[-1]:.2%} to {upper[-1]:.2%} of the domain: "{headline(result.question)}"'
        fig.suptitle(textwrap.fill(title, 80))


def partition_plot(summary: PartitionSummary, schema: Schema, question: str, path: Path) -> None:
    """Draw, above, the shares by measure; below, the refuted share by blocks of the features along which it varies most."""
    varying = [block for block in summary.blocks if block.variation[1] > MIN_VARIATION]
    strips = sorted(varying, key=lambda block: block.variation, reverse=True)[:MAX_STRIPS]
    bars = [name for name in MEASURES if summary.shares[name] is not None]
    heights = [0.5 * len(bars) + 0.2, *([0.45] * len(strips))]
    size = (10, 1.3 + sum(heights) + 0.45 * len(strips))
    with figure(path, size, 1 + len(strips), heights=heights) as fig:
        top, *lower_axes = fig.axes
        _draw_shares(top, summary, bars)
        fig.suptitle(f'Certified for {percent(summary.volume.proved)} of the domain: "{question}"')
        image = None
        for axis, block in zip(lower_axes, strips, strict=True):
            image = _draw_strip(axis, schema, block)
        if image is not None:
            title = "Refuted share of the parts reached, along the features where it varies most"
            lower_axes[0].set_title(title)
            bar = fig.colorbar(image, ax=lower_axes, fraction=0.03, pad=0.01)
            bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def _draw_shares(axis: Any, summary: PartitionSummary, bars: list[str]) -> None:
    left = np.zeros(len(bars))
    positions = np.arange(len(bars))
    for outcome, label in NAMES.items():
        width = np.array([getattr(summary.shares[name], outcome, 0.0) for name in bars])
        if not width.any():
            continue
        axis.barh(positions, width, 0.7, left=left, label=label, **FILLS[outcome])
        for y, start, share in zip(positions, left, width, strict=True):
            if share >= 0.05:
                ink = "white" if outcome in ("proved", "violated") else "black"
                axis.text(start + share / 2, y, percent(share), ha="center", va="center", color=ink, fontsize=10)
        left = left + width
    sizes = {"parts": summary.parts.all, "rows": 0 if summary.rows is None else summary.rows.all}
    axis.set_yticks(positions, [f"{MEASURES[name]}\n({sizes[name]:,})" if name in sizes else MEASURES[name] for name in bars])
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(NAMES))


def _draw_strip(axis: Any, schema: Schema, block: Block) -> Any:
    import matplotlib

    colours = matplotlib.colormaps["OrRd"].with_extremes(bad=NOT_REACHED)
    count = len(block.low)
    image = axis.imshow(np.ma.masked_invalid(block.refuted)[None, :], aspect="auto", cmap=colours, vmin=0, vmax=1)
    ticks = range(count) if count <= MAX_LABELS else np.unique(np.linspace(0, count - 1, 9).astype(int)).tolist()
    axis.set_xticks(list(ticks), [_label(schema, block, k, short=count > 6) for k in ticks])
    axis.set_yticks([0], [textwrap.fill(block.feature, 18)])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if count <= MAX_LABELS:
        for k in np.flatnonzero(np.isfinite(block.refuted)).tolist():
            ink = "white" if block.refuted[k] > 0.6 else "black"
            axis.text(k, 0, percent(float(block.refuted[k])), ha="center", va="center", fontsize=8, color=ink)
    return image


def _label(schema: Schema, block: Block, k: int, *, short: bool) -> str:
    ends = [schema.format(block.feature, float(end)) for end in (block.low[k], block.high[k])]
    if schema[block.feature].numeric:
        return "–".join(dict.fromkeys(ends)) if len(block.low) <= MAX_LABELS else ends[0]
    return "\n… ".join(textwrap.shorten(end, 12 if short else 22, placeholder="…") for end in dict.fromkeys(ends))
