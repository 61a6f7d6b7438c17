"""What is fuzzed: a reader, valid files for it, and how they are damaged; and what a reader may do with a damaged file."""

import os
import random
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

from encoders.errors import ModelError
from solvers.outcome import BackendError
from verifair.errors import VerifairError
from verifair.schema.rows import LabelWarning

OURS = (VerifairError, ModelError, BackendError)
LONGEST = 200_000
"""Characters that a message may have: somebody has to read it."""


class Untrue(AssertionError):
    """A reader accepted a file whose statement is false."""


class Target(Protocol):
    """One reader under test. `name` is the file's name, which tells its format."""

    name: str

    def seeds(self, folder: Path) -> dict[str, bytes]:
        """Valid files by name; called once. Files that have to lie beside them are written to the folder."""

    def mutate(self, rng: random.Random, name: str, data: bytes) -> bytes:
        """A damaged file of the same name."""

    def read(self, path: Path) -> str:
        """Reads a file as the command line does, and says what came of it. Raises Untrue for a wrong answer."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one file.

    kind: refused (one of our errors), read, or failed (anything else).   said: the class of error and its words without names
    and numbers, or what `read` returned.   trace: of a failure.
    """

    kind: str
    said: str
    trace: str = ""


def outcome(target: Target, path: Path) -> Outcome:
    """Reads one file; whatever is not refused in our own words is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", LabelWarning)  # an answer to the user, not a failure
        try:
            with never_opens(FORBIDDEN):
                return Outcome(kind="read", said=target.read(path))
        except OURS as error:
            flaw = _message_flaw(str(error))
            said = f"{type(error).__name__}: {skeleton(str(error), path)}"
            return (
                Outcome(kind="failed", said=f"{flaw}: {said}", trace=traceback.format_exc())
                if flaw
                else Outcome(kind="refused", said=said)
            )
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Outcome(
                kind="failed", said=f"{type(error).__name__}: {skeleton(str(error), path)}", trace=traceback.format_exc()
            )


def _message_flaw(message: str) -> str | None:
    if not message.strip():
        return "says nothing"
    if len(message) > LONGEST:
        return f"message too long to be read ({len(message)} characters)"
    return None


def skeleton(message: str, path: Path) -> str:
    """A message without what is only this file's: its name, quoted words and numbers."""
    text = message.replace(str(path), "FILE").replace(path.name, "FILE")[:2000]
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", text)
    text = re.sub(r"-?\d[\d.,e+-]*", "N", text)
    return " ".join(text.split())[:160]


# Which files a reader opens: paths in a file from a stranger must not lead out of its folder, whatever the message says.


FORBIDDEN = [Path(one) for one in ("/etc/passwd", "/dev/zero", "/dev/urandom")]
"""What damaged files name most, and no reader opens for any other reason."""
_BLOCKS: list[list[str]] = []
"""What was opened in each block that is under way."""


@cache
def _listening() -> None:
    """From now on; Python has no way to stop it."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "sqlite3.connect") and isinstance(arguments[0], (str, bytes)):
        for seen in _BLOCKS:
            seen.append(os.fsdecode(arguments[0]))


@contextmanager
def never_opens(forbidden: Sequence[Path]) -> Iterator[None]:
    """Fails where the block opens a forbidden file, or one below a forbidden folder, links followed, whatever else it does."""
    _listening()
    seen: list[str] = []
    failed: BaseException | None = None
    _BLOCKS.append(seen)
    try:
        yield
    except BaseException as error:
        failed = error
    _BLOCKS.pop()
    for name in seen:
        if "\0" not in name and any(Path(os.path.realpath(name)).is_relative_to(one) for one in forbidden):
            raise AssertionError(f"{name} was opened, which lies outside") from failed
    if failed is not None:
        raise failed


# All readers that are fuzzed, by name; each is imported when it is asked for.


TARGETS = {
    "onnx": "onnx_target.OnnxTarget",
    "trees": "onnx_target.TreesTarget",
    "schema": "text_targets.SchemaTarget",
    "audit": "audit_target.AuditTarget",
    "causal": "text_targets.CausalTarget",
    "table": "text_targets.TableTarget",
    "rules": "text_targets.RulesTarget",
    "vnnlib": "vnnlib_target.VnnlibTarget",
    "proof": "vnnlib_target.ProofTarget",
    "bench": "kept_target.BenchTarget",
    "kept": "kept_target.KeptTarget",
    "against": "kept_target.AgainstTarget",
    "reproduce": "kept_target.ReproduceTarget",
    "certificate": "certificate_target.CertificateTarget",
    "partition": "certificate_target.PartitionTarget",
    "store": "kept_target.StoreTarget",
    "resume": "kept_target.ResumeTarget",
}


def target(name: str) -> Target:
    module, _, kind = TARGETS[name].partition(".")
    found: Target = getattr(import_module(f"tests.fuzz.{module}"), kind)()
    return found
