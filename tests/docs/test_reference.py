"""The API reference is made from docstrings: whatever is public has one."""

import inspect

import pytest

import verifair as vf


@pytest.mark.parametrize("name", vf.__all__)
def test_what_is_public_is_documented(name: str) -> None:
    thing = getattr(vf, name)
    text = inspect.getdoc(thing)
    assert text
    assert not text.startswith(f"{name}("), f"{name} has only the docstring that a dataclass gets by itself"
