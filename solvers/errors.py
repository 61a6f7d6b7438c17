"""Every way a backend can refuse a program before it answers. What happens while solving is an Outcome, not an error."""

from __future__ import annotations


class BackendError(Exception):
    """Base of the solver floor's errors; exit_code is the command line's exit status."""

    exit_code = 4


class Unavailable(BackendError):
    """The backend's package is not installed, or it has no valid licence. The message says what to install."""


class LicenceLimit(BackendError):
    """The program is larger than the backend's licence allows. The message says size, limit and the remedy."""


class UnsupportedProgram(BackendError):
    """The program needs what the backend lacks. Raised before solving; the message names installed backends that could do it."""
