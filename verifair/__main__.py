"""python -m verifair: the command line."""

from verifair.cli import main

main()
