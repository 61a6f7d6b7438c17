"""The program: `verifair`, and python -m verifair. It answers signals before it imports anything that takes time.

Ctrl-C and SIGTERM end a command in the same way: it keeps what is done, says how to go on, ends its processes, and exits with 130.
"""

import os
import signal
import sys
import threading
from types import FrameType

from verifair.errors import INTERRUPTED


def main() -> None:
    """Run the command line. Its last moments are not interrupted: the answer stands."""
    caught = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) != signal.SIG_IGN]  # as under nohup
    for one in caught:
        signal.signal(one, _interrupt)
    try:
        from verifair.cli import main as command

        command()
    except KeyboardInterrupt:
        print("interrupted: nothing is kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; while something is imported a little later, as half a module fails in many ways."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            again = threading.Timer(0.05, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
