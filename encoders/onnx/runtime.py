"""onnxruntime on the stored file: the float32 results of the deployed model itself.

Replay compares *logits*: the graph is cut in memory in front of its sigmoid or softmax, so the runtime's own float32
logits come out even where the file only outputs probabilities (whose saturation would hide the sign of a small margin).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from encoders.arrays import Array, Floats, Integers
from encoders.errors import ModelError, ModelFileError
from encoders.model import Feed, Model
from encoders.onnx.feed import feed_values
from encoders.onnx.file import StoredModel, drop_nodes, logits_model, stored_model
from encoders.onnx.tensor import graph_inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """An onnxruntime session, single-threaded, for one in-memory model.

    session: None if only inputs are needed.   feeds: how a network's columns become the model's inputs.
    columns: width n of the network's input.   batch: fixed batch size, or None.
    """

    path: Path
    session: Any | None
    feeds: tuple[Feed, ...]
    columns: int
    batch: int | None

    def run(self, x: npt.NDArray[Any], outputs: Sequence[str]) -> list[Array]:
        """Return values (B, m) of the named tensors for a batch x (B, n), as float64. A fixed batch size is looped over."""
        if x.ndim != 2 or x.shape[1] != self.columns:
            raise ValueError(f"{self.path}: x has shape {x.shape}, expected (B, {self.columns})")
        inputs = {feed.name: feed_values(feed, self.path, x) for feed in self.feeds}
        computed = [name for name in outputs if name not in inputs]
        values = {name: np.asarray(inputs[name], dtype=np.float64).reshape(len(x), -1) for name in outputs if name in inputs}
        if self.session is None:
            return [values[name] for name in outputs]
        step = self.batch or max(1, len(x))
        pieces: list[list[Array]] = []
        for start in range(0, max(1, len(x)), step):
            rows = np.arange(start, min(start + step, len(x)))
            part = {name: _padded(value[rows], self.batch or len(rows)) for name, value in inputs.items()}
            try:
                results = self.session.run(computed, part)
            except Exception as error:      # onnxruntime's exceptions have no common public base
                raise ModelError(self.path, f"onnxruntime cannot run it: {first_line(error)}") from error
            count = len(part[self.feeds[0].name])
            pieces.append([self._by_row(*pair, count)[: len(rows)] for pair in zip(computed, results, strict=True)])
        values |= dict(zip(computed, (np.concatenate(parts) for parts in zip(*pieces, strict=True)), strict=True))
        return [values[name] for name in outputs]

    def _by_row(self, name: str, value: Any, count: int) -> Array:
        """Return a tensor's values by row (count, m). Raises ModelError if they are not the same number of numbers for each row."""
        try:
            return np.asarray(value, dtype=np.float64).reshape(count, -1)
        except (TypeError, ValueError) as error:  # texts, maps; one number for the batch
            raise ModelError(self.path, "gives no numbers, or not as many for each row", node=name) from error


def _padded(rows: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return the rows, with the last one repeated up to the batch size."""
    if not len(rows):
        return np.full((count, *rows.shape[1:]), "" if rows.dtype == object else 0, dtype=rows.dtype)
    return rows[np.minimum(np.arange(count), len(rows) - 1)]


def open_session(
    path: Path, model: onnx.ModelProto, outputs: Sequence[str], feeds: Sequence[Feed] = (), columns: int | None = None
) -> Session:
    """Return a session for an in-memory model that computes the named tensors. Raises ModelError if onnxruntime refuses it.

    feeds: how network columns become its inputs; without them, its inputs' numbers are the columns.   columns: their number, if the
    feeds do not use all.
    """
    stored, batch = graph_inputs(path, model)
    names = [feed.name for feed in stored]
    computed = [output for output in dict.fromkeys(outputs) if output not in names]
    feeds = tuple(feeds) or tuple(stored)
    return Session(path=path, session=_session(path, model, computed) if computed else None, feeds=feeds,
                   columns=sum(feed.columns for feed in feeds) if columns is None else columns, batch=batch)


def _session(path: Path, model: onnx.ModelProto, outputs: Sequence[str]) -> Any:
    import onnxruntime

    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    if not any(a.HasField("g") or a.graphs for node in model.graph.node for a in node.attribute):   # nested graphs read any tensor
        drop_nodes(exposed.graph, outputs)      # onnxruntime would run all nodes, even those that no output needs
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:              # onnxruntime's exceptions have no common public base
        raise ModelError(path, f"onnxruntime cannot load it: {first_line(error)}") from error


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


def runtime_logits(network: Model, x: npt.NDArray[Any]) -> Array:
    """Return logits (B, m) that onnxruntime computes, in float32, from the stored file for inputs x (B, n); for a model with a
    decision (`encoders.decision`) its margins, computed from these in float64.

    x is cast to the model's input type; replay passes float32 numbers, which lose nothing. A margin of this array is
    to be compared with the margin of `network.forward(x)`: both are about logits, whatever link the file ends with.
    Raises ModelError when the file is no longer the one that the network was read from.
    """
    runtime = _runtime(network)
    (logits,) = runtime.session.run(x, [runtime.logits])
    return logits if network.decision is None else network.decision.of(logits)


def runtime_outputs(network: Model, x: npt.NDArray[Any]) -> Array:
    """Return the outputs that the user of the stored model sees for x (B, n): link(logits), (B, k). A binary scikit-learn model
    shows both classes' probabilities (k = 2) where the network has one logit."""
    runtime = _runtime(network)
    (shown,) = runtime.shown_session.run(x, [runtime.shown])
    return shown


def decisions(logits: Array) -> Integers:
    """Return classes (B,) of logits (B, m): with one logit, 1 where it is positive; with several, the first of the largest."""
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).astype(np.int64)
    return np.asarray(np.argmax(logits, axis=1), dtype=np.int64)


def predictions(network: Model, x: npt.NDArray[Any]) -> Integers:
    """Return classes (B,) that onnxruntime's float32 logits decide for x (B, n)."""
    return decisions(runtime_logits(network, x))


Key = tuple[str, str, str | None, int, tuple[bytes, ...]]
_open: dict[Key, Runtime] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The data for replaying a network without its file, for processes on machines that do not have it.

    model: the stored ONNX model, external weights included.
    """

    network: Model
    model: bytes

    @classmethod
    def of(cls, network: Model) -> Replay | None:
        """Return it, or None if the network has no file. Raises ModelError if the file has changed since the network was read."""
        if network.source is None:
            return None
        stored = stored_model(network)
        if _key(network) not in _open:
            _open[_key(network)] = _opened(network, stored)
        return cls(network=network, model=stored.model.SerializeToString())

    def open(self) -> None:
        """Let this process replay the network, unless it can already."""
        network = self.network
        key = _key(network)
        if network.source is not None and key not in _open:
            model = onnx.load_model_from_string(self.model)
            _open[key] = _opened(
                network, StoredModel(path=Path(network.source), model=model, sha256=network.source_sha256, files=())
            )


def _key(network: Model) -> Key:
    starts = tuple(feed.start.tobytes() for feed in network.feeds)
    return str(network.source), network.source_sha256, network.output, network.inputs, starts


def _runtime(network: Model) -> Runtime:
    """Return the session of a network: opened once in a process for each (file, content, output, columns), and if a file
    changes."""
    runtime = _open.get(_key(network))
    if runtime is None or runtime.stamps != tuple(_stamp(file) for file, _, _ in runtime.stamps):
        _open[_key(network)] = runtime = _opened(network, stored_model(network))
    return runtime


def _opened(network: Model, stored: StoredModel) -> Runtime:
    logits = logits_model(stored, network.output)
    opened = partial(open_session, stored.path, feeds=network.feeds, columns=network.inputs)
    return Runtime(
        session=opened(logits.model, [logits.logits]), logits=logits.logits, shown_session=opened(stored.model, [logits.shown]),
        shown=logits.shown, stamps=tuple(_stamp(file) for file in stored.files),
    )


def _stamp(file: Path) -> tuple[Path, int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise ModelFileError(file, f"cannot be read: {error.strerror or error}; replay needs it") from error
    return file, status.st_mtime_ns, status.st_size


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, for messages."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def comparison_points(path: Path, n: int, count: int, random: np.random.Generator, box: tuple[Array, Array] | None) -> Floats:
    """Return points (count, n) for the comparison, as float32."""
    if box is not None:
        lower, upper = (np.asarray(side, dtype=np.float64) for side in box)
        if lower.shape != (n,) or upper.shape != (n,):
            raise ModelError(path, f"takes {n} input columns, but the domain has {lower.size}: "
                                   "the schema's features, in order, must give exactly the network's columns")
        return random.uniform(lower, upper, size=(count, n)).astype(np.float32)
    normal = random.normal(size=(count, n))
    uniform = random.uniform(-1, 1, size=(count, n)) * 10.0 ** random.integers(-1, 4, size=(count, 1))
    return np.where(np.arange(count)[:, None] % 2 == 0, normal, uniform).astype(np.float32)


MOST_SHOWN = 1000     # numbers of a point in a message


def compare(path: Path, x: Floats, here: Array, there: Array, allowed: Array, nodes: Sequence[str]) -> None:
    if here.shape != there.shape:
        raise ModelError(path, f"the import gives {here.shape[1]} numbers, onnxruntime {there.shape[1]}; please report this model",
                         node=nodes[0] if nodes else None, op="import check" if nodes else None)
    wrong = ~(np.abs(here - there) <= allowed)          # also true for NaN
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        point = f"{x[row, :MOST_SHOWN].tolist()}{' ...' if x.shape[1] > MOST_SHOWN else ''}"
        raise ModelError(path, f"the import does not reproduce onnxruntime at x = {point}: "
                               f"{here[row, column]:.9g} here, {there[row, column]:.9g} in onnxruntime "
                               f"(allowed {allowed[row, column]:.2g}); please report this model",
                         node=nodes[column], op="import check")
