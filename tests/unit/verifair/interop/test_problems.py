"""Bounds of VNN-LIB cases as float32 boxes: never narrower than what was asked, and at most one number wider."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from encoders.vnnlib.cases import cases
from encoders.vnnlib.reader import VnnlibQuery, VnnlibUnsupported, read_vnnlib
from tests.builders import random_network
from verifair.interop.problems import case_problems

NUMBERS = ["0", "1", "-1", "0.1", "-0.1", "16777217", "-16777217", "1e-40", "-1e-40", "1e-60", "3.4e37", "0.33333334326744",
           "1e38", "-3.4028234e38"]  # fmt: skip


def query(folder: Path, *bounds: str) -> VnnlibQuery:
    path = folder / "q.vnnlib"
    declared = "".join(f"(declare-const X_{k} Real)\n" for k in range(len(bounds)))
    asked = "".join(f"(assert (<= X_{k} {bound}))(assert (>= X_{k} {bound}))\n" for k, bound in enumerate(bounds))
    path.write_text(f"{declared}(declare-const Y_0 Real)\n{asked}(assert (<= Y_0 0))\n")
    return read_vnnlib(path)


def test_boxes_hold_the_bounds_and_are_the_narrowest_that_do(tmp_path: Path) -> None:
    asked = query(tmp_path, *NUMBERS)
    network = random_network(np.random.default_rng(0), (len(NUMBERS), 3, 1))
    (case,) = cases(asked)
    (part,) = case_problems(asked, case, [network])
    lower, upper = part.problem.batch.lower[0], part.problem.batch.upper[0]
    for low, high, text in zip(lower.tolist(), upper.tolist(), NUMBERS, strict=True):
        assert (float(np.float32(low)), float(np.float32(high))) == (low, high)
        assert Fraction(low) <= Fraction(text) <= Fraction(high)
        assert Fraction(float(np.nextafter(np.float32(low), np.float32(np.inf)))) > Fraction(text)
        assert Fraction(float(np.nextafter(np.float32(high), np.float32(-np.inf)))) < Fraction(text)


@pytest.mark.parametrize("bound", ["1e39", "-1e39", "1e300", "1e309", "-1e399", "3.4028235e38"])
def test_a_bound_beyond_float32_is_refused(bound: str, tmp_path: Path) -> None:
    asked = query(tmp_path, "0", bound)
    (case,) = cases(asked)
    with pytest.raises(VnnlibUnsupported, match=r"a bound of -?[0-9].*beyond float32"):
        list(case_problems(asked, case, [random_network(np.random.default_rng(0), (2, 3, 1))]))
