"""Every error a user can cause at this floor; `encoders.errors` and `solvers.outcome` hold those of the floors below.

Each message names the thing, what was found, what is expected, and the remedy.
"""

from __future__ import annotations

from importlib.util import find_spec

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C or SIGTERM ended, as shells have it."""


class VerifairError(Exception):
    """Base of verifair's own errors; exit_code is the command line's exit status. Names in messages are safe to print."""

    exit_code = 2

    def __str__(self) -> str:
        from encoders.text import visible_lines
        return visible_lines(super().__str__())


class DataError(VerifairError):
    """A data file or table that does not fit its schema."""


class SchemaError(VerifairError):
    """A schema that cannot be used; names the feature."""


class QueryError(VerifairError):
    """A question that cannot be asked of this network and schema."""


class CertificateError(VerifairError):
    """A certificate or witness file that cannot be read."""


class NoProofs(CertificateError):
    """A file that a run keeps beside its proofs, but that holds no proofs."""


class TrainingError(VerifairError):
    """Training settings that cannot be used, or a training that failed."""


class MissingPackage(VerifairError):
    """An optional package that is not installed; the message holds the command that installs it."""

    exit_code = 4


def require(package: str, extra: str, what: str) -> None:
    """Raise MissingPackage if an optional package is not installed, without importing it."""
    if find_spec(package) is None:
        raise MissingPackage(f'{what} needs {package}, which is not installed; run: pip install "verifair[{extra}]"')


class ClusterError(VerifairError):
    """A cluster that cannot be used, or that was lost during a run."""

    exit_code = 4


class Disagreement(VerifairError):
    """Two engines contradict each other; the message names the saved reproducer."""

    exit_code = 6
