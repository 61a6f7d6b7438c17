"""How many random cases a test draws."""

from os import environ


def draws(count: int) -> range:
    """Return the seeds of a test for `count` cases: a quarter of them, or the share that VERIFAIR_DRAWS names."""
    return range(max(1, round(count * float(environ.get("VERIFAIR_DRAWS", "0.25")))))
