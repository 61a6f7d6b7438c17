"""onnxruntime on the stored file: what the deployed model itself says in float32.

Replay compares *logits*: the graph is cut in memory in front of its sigmoid or softmax, so the runtime's own float32
logits come out even where the file only outputs probabilities (whose saturation would hide the sign of a small margin).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from encoders.errors import ModelError, ModelFileError
from encoders.network import Array, Network
from encoders.onnx_file import load, logits_model
from encoders.onnx_graph import graph_input


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """An onnxruntime session, single-threaded, for one in-memory model.

    session: None where only the input itself is asked for.   input: name of its input.   shape: axes after the batch.
    batch: fixed batch size, or None.   dtype: of the input.
    """

    path: Path
    session: Any | None
    input: str
    shape: tuple[int, ...]
    batch: int | None
    dtype: npt.DTypeLike

    def run(self, x: npt.NDArray[Any], outputs: Sequence[str]) -> list[Array]:
        """Values (B, m) of the named tensors for a batch x (B, n), as float64. A fixed batch size is looped over."""
        width = int(np.prod(self.shape))
        if x.ndim != 2 or x.shape[1] != width:
            raise ValueError(f"{self.path}: x has shape {x.shape}, expected (B, {width})")
        if self.session is None:
            return [x.astype(np.float64) for _ in outputs]
        computed = [name for name in outputs if name != self.input]
        step = self.batch or max(1, len(x))
        pieces: list[list[Array]] = []
        for start in range(0, max(1, len(x)), step):
            rows = x[start : start + step].astype(self.dtype)
            short = 0 if self.batch is None else step - len(rows)
            padded = np.concatenate([rows, np.zeros((short, width), dtype=self.dtype)])
            try:
                found = self.session.run(computed, {self.input: padded.reshape(-1, *self.shape)})
            except Exception as error:      # onnxruntime's exceptions have no common public base
                raise ModelError(self.path, f"onnxruntime cannot run it: {_first_line(error)}") from error
            pieces.append([np.asarray(v, dtype=np.float64).reshape(len(padded), -1)[: len(rows)] for v in found])
        values = dict(zip(computed, (np.concatenate(parts) for parts in zip(*pieces, strict=True)), strict=True))
        values[self.input] = x.astype(np.float64)
        return [values[name] for name in outputs]


def open_session(path: Path, model: onnx.ModelProto, outputs: Sequence[str]) -> Session:
    """A session for an in-memory model that gives the named tensors. Raises ModelError where onnxruntime refuses it."""
    name, shape, batch = graph_input(path, model)
    (kind,) = (i.type.tensor_type.elem_type for i in model.graph.input if i.name == name)
    computed = [output for output in dict.fromkeys(outputs) if output != name]
    return Session(path=path, session=_session(path, model, computed) if computed else None, input=name, shape=shape,
                   batch=batch, dtype=np.float64 if kind == onnx.TensorProto.DOUBLE else np.float32)


def _session(path: Path, model: onnx.ModelProto, outputs: Sequence[str]) -> Any:
    import onnxruntime

    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:              # onnxruntime's exceptions have no common public base
        raise ModelError(path, f"onnxruntime cannot load it: {_first_line(error)}") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class Runtime:
    """The stored model behind a Network, ready to be replayed.

    stamps: (path, modification time, size) of every file it was read from, to notice a change between two replays.
    """

    session: Session
    logits: str
    shown_session: Session
    shown: str
    stamps: tuple[tuple[Path, int, int], ...]


def runtime_logits(network: Network, x: npt.NDArray[Any]) -> Array:
    """Logits (B, m) that onnxruntime computes, in float32, from the stored file for inputs x (B, n).

    x is cast to the model's input type; replay passes float32 numbers, which lose nothing. A margin of this array is
    to be compared with the margin of `network.forward(x)`: both are about logits, whatever link the file ends with.
    Raises ModelError when the file is no longer the one that the network was read from.
    """
    runtime = _runtime(network)
    (logits,) = runtime.session.run(x, [runtime.logits])
    return logits


def runtime_outputs(network: Network, x: npt.NDArray[Any]) -> Array:
    """What the stored model shows its user for x (B, n): link(logits), (B, k). A binary scikit-learn model shows both
    classes' probabilities (k = 2) where the network has one logit."""
    runtime = _runtime(network)
    (shown,) = runtime.shown_session.run(x, [runtime.shown])
    return shown


def decisions(logits: Array) -> npt.NDArray[np.int64]:
    """Classes (B,) of logits (B, m): with one logit, 1 where it is positive; with several, the first of the largest."""
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).astype(np.int64)
    return np.asarray(np.argmax(logits, axis=1), dtype=np.int64)


def predictions(network: Network, x: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Classes (B,) that onnxruntime's float32 logits decide for x (B, n)."""
    return decisions(runtime_logits(network, x))


_open: dict[tuple[str, str, str | None], Runtime] = {}


def _runtime(network: Network) -> Runtime:
    """The session of a network: opened once a process for each (file, content, output), and when a file changes."""
    if network.source is None:
        raise ModelError("network", "was not read from a file, so there is nothing to replay")
    key = (network.source, network.source_sha256, network.output)
    known = _open.get(key)
    if known is None or known.stamps != tuple(_stamp(file) for file, _, _ in known.stamps):
        _open[key] = known = _opened(network, network.source)
    return known


def _opened(network: Network, source: str) -> Runtime:
    stored = load(source)
    if stored.sha256 != network.source_sha256:
        raise ModelError(source, f"has changed since it was read (sha256 {stored.sha256[:12]}..., expected "
                                 f"{network.source_sha256[:12]}...): read it again")
    logits = logits_model(stored, network.output)
    return Runtime(session=open_session(stored.path, logits.model, [logits.logits]), logits=logits.logits,
                   shown_session=open_session(stored.path, stored.model, [logits.shown]), shown=logits.shown,
                   stamps=tuple(_stamp(file) for file in stored.files))


def _stamp(file: Path) -> tuple[Path, int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise ModelFileError(file, f"cannot be read: {error.strerror or error}; replay needs it") from error
    return file, status.st_mtime_ns, status.st_size


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
