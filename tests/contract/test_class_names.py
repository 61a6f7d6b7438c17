"""A class name belongs to one class, so that a name in an error or a docstring says which one is meant."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def test_a_class_name_has_one_owner() -> None:
    files = [path for folder in ("verifair", "encoders", "solvers", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    names = Counter(name for path in files for name in CLASS.findall(path.read_text(encoding="utf-8")))
    assert len(names) > 500
    assert [name for name, owners in names.items() if owners > 1] == []
