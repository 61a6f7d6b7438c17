"""The causal graph as a picture: causes on the left, the decision on the right, and what the protected attributes move in colour.

Sugiyama's method: a node's layer is its longest path from a root; edges that pass layers get a place in each of them; places in a
layer are sorted by the mean place of their neighbours, in a few passes forwards and backwards.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Hashable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx

from verifair.figures import figure

SWEEPS = 12
WIDTH, HEIGHT = 1.55, 0.56
"""A node, in inches; the picture's unit is an inch."""
X_STEP, Y_STEP = 2.5, 0.92
"""From one layer, and from one place in it, to the next."""
MAX_LETTERS = 15
"""Letters in a line of a node."""
FONT_SIZE = 12
"""Points of type: pictures of many layers are shown at less than half of their size."""
PROTECTED, MOVED, STILL, DECISION = "#E69F00", "#CDE4F2", "#F2F2F2", "#BFE3D3"

PASSING_ROOM = 0.3
"""Room of an edge that passes a layer, beside a node's 1."""
MAX_ARROWS = 4
"""Attributes that the decision reads by arrows."""
READ_COLOR = "#009E73"

Place = tuple[float, float]


class Passing(NamedTuple):
    """The place of a long edge in a layer that it passes."""

    start: Any
    end: Any
    layer: int


def causal_graph(graph: nx.DiGraph, protected: Sequence[str], decision: str | None, decided_by: Sequence[str], path: Path) -> None:
    """Draw the graph.

    protected: nodes that are set.   decision: what the decision is called, None to leave it out.   decided_by: what it reads; of
    more than MAX_ARROWS attributes the frames are marked, instead of arrows to the decision.
    Attributes without any edge are named below the graph.
    """
    inputs = [name for name in decided_by if name in graph and name != decision]
    arrows = decision is not None and 0 < len(inputs) <= MAX_ARROWS
    full = graph.copy()
    if arrows:
        full.add_node(decision)
        full.add_edges_from((name, decision) for name in inputs)
    isolated = [name for name in full if not full.degree(name) and name not in protected]
    full.remove_nodes_from(isolated)
    moved = set(protected).union(*(nx.descendants(full, name) for name in protected if name in full))
    marked = set() if arrows or decision is None else set(inputs)
    notes = _notes(marked, isolated)
    places, routes = layout(full, decision if arrows else None)
    width = max(x for x, _ in places.values()) + WIDTH + 0.4
    height = max(y for place in (places.values(), *routes.values()) for _, y in place)
    with figure(path, (max(width, 6.4), max(height + HEIGHT + 0.8 + 0.22 * len(notes), 2.4))) as fig:
        axis = fig.axes[0]
        for (start, end), route in routes.items():
            affected = start in moved and end in moved
            _arrow(axis, route, color="#333333" if affected else "#BBBBBB", front=affected)
        for name, place in places.items():
            color = PROTECTED if name in protected else DECISION if name == decision else MOVED if name in moved else STILL
            _box(axis, str(name), place, color, marked=name in marked)
        axis.set_xlim(-WIDTH / 2 - 0.2, width - WIDTH / 2 - 0.2)
        axis.set_ylim(height + HEIGHT / 2 + 0.15, -HEIGHT / 2 - 0.15)
        axis.set_axis_off()
        unmoved = any(name not in moved for name in full if name != decision)
        _legend(fig, protected, decision if arrows else None, notes, unmoved=unmoved)


def _notes(marked: set[str], isolated: Sequence[str]) -> list[str]:
    """Lines below the graph."""
    notes = [f"Green frames: the decision reads them ({len(marked)} attributes)."] if marked else []
    if isolated:
        names = ", ".join(f"{name}*" if name in marked else str(name) for name in isolated)
        star = " (* read by the decision)" if any(name in marked for name in isolated) else ""
        notes += textwrap.wrap(f"No cause and no effect here{star}: {names}.", 110, break_on_hyphens=False)
    return notes


def layout(graph: nx.DiGraph, last: Hashable | None) -> tuple[dict[Any, Place], dict[tuple[Any, Any], list[Place]]]:
    """Return the place of each node and the places that each edge passes, in inches. last: a node placed behind all others."""
    layer = {node: depth for depth, nodes in enumerate(nx.topological_generations(graph)) for node in nodes}
    if last is not None:
        layer[last] = max((depth for node, depth in layer.items() if node != last), default=-1) + 1
    routes: dict[tuple[Any, Any], list[Any]] = {
        (a, b): [a, *(Passing(a, b, depth) for depth in range(layer[a] + 1, layer[b])), b] for a, b in graph.edges
    }
    neighbours: dict[Any, list[Any]] = {node: [] for node in graph}
    columns: list[list[Any]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for node in graph:
        columns[layer[node]].append(node)
    for route in routes.values():
        for point in route[1:-1]:
            neighbours[point] = []
            columns[point.layer].append(point)
        for point, next_point in pairwise(route):
            neighbours[point].append(next_point)
            neighbours[next_point].append(point)
    level = _levels(columns, neighbours)
    places = {node: (X_STEP * depth, level[node] * Y_STEP) for depth, column in enumerate(columns) for node in column}
    return {node: places[node] for node in graph}, {edge: [places[point] for point in route] for edge, route in routes.items()}


def _levels(columns: Sequence[list[Any]], neighbours: dict[Any, list[Any]]) -> dict[Any, float]:
    """Place of every node in its layer, so that neighbours are near each other. Edges that pass take less room than nodes."""
    tallest = max(sum(map(_room, column)) for column in columns)
    level: dict[Any, float] = {}
    for column in columns:
        level |= _spread(column, tallest)
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            mean = {node: _mean([level[neighbour] for neighbour in neighbours[node]] or [level[node]]) for node in column}
            column.sort(key=mean.__getitem__)
            level |= _spread(column, tallest)
    return level


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _room(node: Any) -> float:
    return PASSING_ROOM if isinstance(node, Passing) else 1.0


def _spread(column: Sequence[Any], tallest: float) -> dict[Any, float]:
    """Spread a layer of few nodes over the height of the tallest one, but at no less than half its density."""
    rooms = [_room(node) for node in column]
    step = min(2.0, tallest / sum(rooms))
    starts = [sum(rooms[:n]) for n in range(len(rooms))]
    return {
        node: tallest / 2 - 0.5 + (start + room / 2 - sum(rooms) / 2) * step
        for node, start, room in zip(column, starts, rooms, strict=True)
    }


def _box(axis: Any, name: str, place: Place, color: str, *, marked: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = place
    axis.add_patch(
        FancyBboxPatch(
            (x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.12", facecolor=color,
            edgecolor=READ_COLOR if marked else "#333333", lw=2.6 if marked else 1, zorder=3,
        )
    )
    lines = textwrap.wrap(_breakable(name), MAX_LETTERS, break_on_hyphens=True, max_lines=3, placeholder=" ...")
    longest = max((len(line) for line in lines), default=1)
    size = min(FONT_SIZE, 0.95 * FONT_SIZE * MAX_LETTERS / longest) if len(lines) < 3 else 0.75 * FONT_SIZE
    axis.text(x, y, "\n".join(line.strip() for line in lines), ha="center", va="center", fontsize=size, zorder=4)


def _breakable(name: str) -> str:
    """Allow line breaks between the words of names such as AccountBalance and charge_degree; short names stay as they are."""
    if len(name) <= MAX_LETTERS:
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ")


def _arrow(axis: Any, route: Sequence[Place], *, color: str, front: bool) -> None:
    """A smooth line from box to box, which passes other layers level for the width of a box, so that it runs through none."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Line

    half = WIDTH / 2
    points, codes = [(route[0][0] + half, route[0][1])], [Line.MOVETO]
    for x, y in route[1:]:
        from_x, from_y = points[-1]
        middle = (from_x + x - half) / 2
        points += [(middle, from_y), (middle, y), (x - half, y)]
        codes += [Line.CURVE4] * 3
        if (x, y) != route[-1]:
            points.append((x + half, y))
            codes.append(Line.LINETO)
    axis.add_patch(
        FancyArrowPatch(
            path=Line(points, codes), arrowstyle="-|>", mutation_scale=11, color=color, lw=1.3 if front else 0.9,
            zorder=2 if front else 1, shrinkA=0, shrinkB=0,
        )
    )


def _legend(fig: Any, protected: Sequence[str], decision: str | None, notes: Sequence[str], *, unmoved: bool) -> None:
    from matplotlib.patches import Patch

    marks = [(PROTECTED, f"set: {', '.join(protected)}"), (MOVED, "moves with it")]
    marks += [(STILL, "stays as it is")] if unmoved else []
    marks += [(DECISION, "the decision")] if decision is not None else []
    fig.legend(
        handles=[Patch(facecolor=color, edgecolor="#333333", label=words) for color, words in marks],
        loc="outside lower center", ncols=len(marks), fontsize=FONT_SIZE, title="\n".join(notes) or None, title_fontsize=FONT_SIZE,
    )
