"""What the toy found."""

from __future__ import annotations

from verifair.systems.results.result import Count, Result


class ToyResult(Result):
    """`verifair toy`: how many rows are decided as asked."""

    side: str
    counted: Count
    """Rows, each as often as asked."""
    rows: Count


ANSWERS = {"toy": ToyResult}
