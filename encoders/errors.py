"""Errors of model files. Each message names the file, the node, the problem, and what is supported instead."""

from __future__ import annotations

from pathlib import Path


class ModelError(Exception):
    """A model that cannot be used.   node, op: the ONNX node at fault and its operator; None: the file as a whole is at fault.
    exit_code: the command line's exit status, 3 for an unsupported or broken model."""

    exit_code = 3

    def __init__(self, path: str | Path, problem: str, *, node: str | None = None, op: str | None = None) -> None:
        self.node, self.op = node, op
        place = "" if node is None else f"node {node!r} ({op}): " if op else f"{node!r}: "
        from encoders.text import visible_lines

        super().__init__(visible_lines(f"{path}: {place}{problem}"))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error for other processes (joblib): it is rebuilt from its message, not from the arguments above."""
        return _rebuilt, (type(self), str(self), self.node, self.op)


class ModelFileError(ModelError):
    """A model file (or a file of its external weights) that is missing, damaged, or cannot be read."""

    exit_code = 2


class CurveError(ModelError):
    """A network with smooth neurons (tanh, GELU ...) in a hidden layer, where piecewise-linear ones are required."""


def _rebuilt(kind: type[ModelError], message: str, node: str | None, op: str | None) -> ModelError:
    error = kind.__new__(kind, message)
    error.node, error.op = node, op
    return error
