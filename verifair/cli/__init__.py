"""The command line: `command` makes a verb of each system, the other verbs have a file each, `main` ends with an exit code."""

from verifair.cli.main import main

__all__ = ["main"]
