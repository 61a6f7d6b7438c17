"""The kinds of files of proofs, and the list of them.

A kind is a module of `verifair.checker.kinds` that defines KIND: how a file is read and checked, and what it states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import TypeAdapter

if TYPE_CHECKING:  # the help of `verifair schema` lists the kinds, and needs none of this
    from encoders.model import Model
    from verifair.checker.report import Batches, CheckReport
    from verifair.schema.space import InputSpace


class CheckRule(Protocol):
    """Proves the statement of a file again, and reports what is wrong with it."""

    def __call__(self, certificate: Any, /, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport: ...


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of file.

    format: its name and version, as files state it.   counts: what its progress counts.
    load: reads the file, or raises CertificateError.   check: the rule that checks the loaded file.
    statement: (loaded file, schema, the model as it was read) -> the file's statement, in a sentence.
    file, title: its content as a type, and the title of its JSON schema; None if it is not JSON.
    """

    format: str
    counts: str
    load: Callable[[Path], Any]
    check: CheckRule
    statement: Callable[[Any, InputSpace, Model], str]
    file: TypeAdapter[Any] | None = None
    title: str = ""


KINDS: dict[str, str] = {
    "verifair-certificate": "verifair.checker.kinds.proofs",
    "verifair-kmax-certificate": "verifair.checker.kinds.kmax",
    "verifair-consistency-certificate": "verifair.checker.kinds.consistency",
    "verifair-partition": "verifair.checker.kinds.partition",
    "verifair-share-certificate": "verifair.checker.kinds.share",
    "verifair-centers-certificate": "verifair.checker.kinds.centers",
}
"""Format without its version -> the kind's module, imported when a file of it is met. A new kind is one more line here."""


def kind(name: str) -> Kind:
    """Return the kind of a format, named with or without its version."""
    found: Kind = import_module(KINDS[name.partition("/")[0]]).KIND
    return found
