"""The program: `verifair`, and python -m verifair. It answers signals before it imports anything that takes time.

Ctrl-C and SIGTERM end a command in the same way: it keeps finished work, says how to resume, ends its processes, and exits with
130.
"""

import _signal  # type: ignore[import-not-found]  # of which `signal` is made, but that imports enum, as slow as Python's start
import os
import sys
from types import FrameType


def _begin(number: int, frame: FrameType | None) -> None:
    """End at once, as nothing has begun."""
    os.write(2, b"interrupted: nothing is kept\n")
    os._exit(130)  # INTERRUPTED, which takes an import


CAUGHT = [number for number in (_signal.SIGINT, _signal.SIGTERM) if _signal.getsignal(number) != _signal.SIG_IGN]  # as under nohup
for _one in CAUGHT:
    _signal.signal(_one, _begin)


def main() -> None:
    """Run the command line. Signals no longer interrupt its last steps, after the answer is complete."""
    import threading  # noqa: F401  # which _interrupt needs whole

    for number in CAUGHT:
        _signal.signal(number, _interrupt)
    sys.unraisablehook = _unraisable
    try:
        if sys.argv[1:2] == ["doctor"] and "--help" not in sys.argv:
            _check_packages()
        from verifair.cli import main as command

        command()
    except KeyboardInterrupt:
        from verifair.errors import INTERRUPTED

        print("interrupted: nothing is kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        for number in CAUGHT:
            _signal.signal(number, _signal.SIG_IGN)


def _check_packages() -> None:
    """Exit if doctor itself could not run, with a line for each broken package."""
    from verifair._packages import NEEDED, broken, line
    from verifair.errors import MissingPackage

    lines = [line(name, NEEDED[name], reason) for name, reason in broken(NEEDED).items()]
    if lines:
        print(*lines, "error: verifair doctor needs these itself: repair the first, and run it again", sep="\n", file=sys.stderr)
        sys.exit(MissingPackage.exit_code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import wait a little, as a half-imported module fails in many ways."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _send_again(number)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(hook: "sys.UnraisableHookArgs") -> None:
    """Interrupt once more if a finaliser or a callback was interrupted, because Python only reports and drops that exception."""
    if isinstance(hook.exc_value, KeyboardInterrupt):
        _send_again(_signal.SIGINT)
    else:
        sys.__unraisablehook__(hook)


def _send_again(number: int) -> None:
    """Send this process a signal after a short delay."""
    from threading import Timer

    timer = Timer(0.05, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
