"""`python -m turnwise`: the command line, for launchers that start a module on every process."""

from turnwise.cli import main

main()
