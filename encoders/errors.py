"""What can be wrong with a model file. Each message names the file, the node, what was found and what is supported."""

from __future__ import annotations

from pathlib import Path


class ModelError(Exception):
    """A model that cannot be used.

    node, op: the ONNX node at fault and its operator, or None when the fault lies with the file as a whole.
    exit_code: the command line's exit status, 3 for an unsupported or broken model.
    """

    exit_code = 3

    def __init__(self, path: str | Path, problem: str, *, node: str | None = None, op: str | None = None) -> None:
        self.node = node
        self.op = op
        where = "" if node is None else f"node {node!r} ({op}): " if op else f"{node!r}: "
        super().__init__(f"{path}: {where}{problem}")


class ModelFileError(ModelError):
    """A model file (or a file of its external weights) that is missing or cannot be read."""

    exit_code = 2
