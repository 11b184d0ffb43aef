"""`python -m taskgate`: the same as the command."""

from taskgate.cli import main

main()
