"""Figures: whole or not at all, and names as they are."""

from pathlib import Path

import pytest

from verifair.figures import figure


def test_dollars_in_names_are_no_formula_and_powers_of_ten_are(tmp_path: Path) -> None:
    """`$a_$` is no formula that matplotlib could set; drawing it as one fails."""
    path = tmp_path / "costs.svg"
    with figure(path, (3, 3), 1, 2) as drawn:
        left, right = drawn.axes
        left.plot([1, 2], [1, 2], label="$a_$")
        left.set_xticks([1, 2], ["$a_$", "$b^$"])
        left.legend(title="$c_$")
        right.set_title(r"$\mathdefault{$")
        left.set_title("$d$")
        right.loglog([1, 100], [1, 100])
    powers = [text for text in right.get_xticklabels() if "mathdefault" in text.get_text()]
    assert powers
    assert all(text.get_parse_math() for text in powers)
    assert not left.title.get_parse_math()
    assert path.stat().st_size > 0


def test_what_cannot_be_drawn_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), figure(tmp_path / "a.png", (3, 3)) as drawn:
        drawn.axes[0].plot([1 / 0])
    assert list(tmp_path.iterdir()) == []
