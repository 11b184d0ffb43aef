"""The command line: `main`, with one command for each task of an operator.

`commands` declares them. Each loads the module that does its work when it is called: `serve`,
`configuration` or `audit`. These print; `explain` and `wiring` do the rest.
"""

from taskgate.cli.commands import main

__all__ = ["main"]
