"""Settings of every test: Ctrl-C works where the suite runs in the background, and a busy machine fails no test."""

import signal

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# A shell that starts the suite in the background, and nohup, have SIGINT ignored; a child process inherits that and sees no Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The suite draws the same examples on each run: it fails for the change that broke it. `--hypothesis-profile hunt` draws new ones.
settings.register_profile("verifair", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile(
    "hunt", settings.get_profile("verifair"), derandomize=False, database=DirectoryBasedExampleDatabase(".hypothesis/examples")
)
settings.load_profile("verifair")
