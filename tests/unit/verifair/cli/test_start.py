"""What is loaded when: a command starts in a second because scikit-learn and scipy.stats wait until somebody needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import verifair as vf
from tests.command_line import flat
from tests.command_line import verifair as command
from verifair.cli.main import VERBS


@pytest.mark.parametrize("name", vf.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(vf, name).__module__.split(".")[0] in ("verifair", "encoders", "solvers")


def test_names_that_load_later_are_public() -> None:
    assert set(vf.LATER) <= set(vf.__all__) <= set(dir(vf))
    with pytest.raises(AttributeError, match="no attribute 'unfair'"):
        vf.__getattr__("unfair")


def test_the_command_line_starts_without_scikit_learn() -> None:
    told = "import sys, verifair.cli.main, verifair.cli.pba; print('sklearn' in sys.modules, 'scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout == "False False\n"


def test_the_help_names_every_verb_and_a_typo_gets_a_suggestion() -> None:
    screen = command("--help").stdout
    assert all(f" {verb} " in screen for verb in VERBS)
    wrong = command("aduit")
    assert wrong.returncode == 2
    assert "Did you mean 'audit'?" in flat(wrong.stderr)
