"""A sixth system: how many rows of the table the network decides positively."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verifair.systems.settings import Settings
from verifair.systems.system import About, System


class ToySettings(Settings):
    """Rows that are counted."""

    times: Annotated[int, Field(ge=1, le=100)] = 1
    """How often every row is counted."""
    side: Literal["positive", "negative"] = "positive"
    """Which decisions are counted."""


SYSTEM = System(
    verb="toy",
    help="Counts decisions.\n\nExample: verifair toy --demo german --times 2",
    settings=ToySettings,
    run=("json_file", "out", "timeout", "seed"),
    about=About(title="Decisions that are counted", question="How many rows are decided positively?", source="These tests"),
)
