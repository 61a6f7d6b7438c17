"""The command line: one file per verb, `main` turns every error a user can cause into one line and an exit code."""

from verifair.cli.main import main

__all__ = ["main"]
