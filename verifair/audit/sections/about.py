"""What each analysis is called and asks, also where it did not run."""

from __future__ import annotations

from verifair.systems.system import About, system

ABOUT = {
    "cst": About(
        title="Situation testing",
        question="Would people of a protected group have been decided on alike, had they not been of that group?",
        source="Counterfactual Situation Testing (Alvarez, Ruggieri)",
    ),
}


def about_of(key: str) -> About:
    """Return what an analysis is called."""
    found = ABOUT.get(key) or system(key).about
    assert found is not None
    return found
