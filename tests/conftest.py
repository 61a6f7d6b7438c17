"""Settings of every test: Ctrl-C works where the suite runs in the background, and a busy machine fails no test."""

import signal

from hypothesis import HealthCheck, settings

# A shell that starts the suite in the background, and nohup, have SIGINT ignored; a child process inherits that and sees no Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("verifair", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("verifair")
