"""Numbers as text, on the safe side."""

from __future__ import annotations

import decimal


def counted(number: int, one: str, many: str) -> str:
    """ "1 proof", "2,000 proofs"."""
    return f"{number:,} {one if number == 1 else many}"


def rounded(value: float, *, up: bool, digits: int = 5) -> str:
    """So many decimals: a bound from above is not shown smaller, one from below not larger."""
    if abs(value) == float("inf"):
        return "infinity"
    way = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    return str(decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-digits), rounding=way, context=decimal.Context(prec=60)))
