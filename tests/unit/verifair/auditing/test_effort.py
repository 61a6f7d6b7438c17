"""The same input gives the same answers, however fast the machine is and whatever else it does."""

import itertools
import time
from typing import Any

import numpy as np
import pytest

import verifair as vf
from verifair import datasets

ANALYSES = {
    "pba": {"delta": [1], "rows": 20}, "certify": {"maximise": True, "partition": 100, "tolerance": 1e-3}, "kmax": {},
    "cec": {"certify": 1, "rows": 30}, "fgce": {"k": 20, "robust": [1], "rows": 150},
}
TIMES = ("seconds", "started")
"""All that the JSON of an audit says of time."""


def timeless(content: Any) -> Any:
    match content:
        case dict():
            return {name: timeless(value) for name, value in content.items() if name not in TIMES}
        case list():
            return [timeless(value) for value in content]
    return content


def audited(timeout: float = 1e6) -> Any:
    german = datasets.load("german")
    found = vf.audit(
        vf.read(datasets.network_path("german")), german.frame, schema=german.schema, target=None, sensitive=["sex"],
        analyses=ANALYSES, effort=4.0, timeout=timeout,
    )
    return found.result.content()


def test_a_busy_machine_gives_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall's clock jumps as it does where others take the processor. The effort does not suffice for all that is asked."""
    alone = timeless(audited())
    rng, clock = np.random.default_rng(0), time.monotonic
    late = itertools.accumulate(rng.exponential(0.002) for _ in itertools.count())
    monkeypatch.setattr("time.monotonic", lambda: clock() + next(late))
    assert timeless(audited()) == alone
    (found,) = next(one for one in alone["sections"] if one["key"] == "certify")["answer"]["by_feature"]
    assert found["largest_gap"]["reason"] == "time"  # that of the effort
    monkeypatch.undo()
    cut = audited(timeout=0.5)
    texts = [one["text"] for section in cut["sections"] for one in section["statements"]]
    assert any("was up before this analysis had done its work" in text for text in texts)
