"""Safe text for the screen: of names nothing but what is seen, and terminal codes of our own styles only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from encoders.text import visible_lines


class ShownWarning(UserWarning):
    """A warning that Python prints, with names of the user's files in it."""

    def __str__(self) -> str:
        return visible_lines(super().__str__())


class Screen(Console):
    """The terminal, or its replacement. Names are not markup; terminal codes come from our own styles only."""

    def __init__(self, *, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> None:
        super().__init__(stderr=stderr, file=file, width=width, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible_lines(text), style, control)
