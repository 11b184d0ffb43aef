"""The command line: `main`, with one command for each task of an operator.

`commands` and `client_commands` declare them; `help` gives them their examples. Each loads the
module that does its work when it is called. `remote` has those that ask a running gateway. These
print; `explain` and `wiring` do the rest.
"""

from taskgate.cli.client_commands import CLIENT_COMMANDS
from taskgate.cli.commands import main

for _each in CLIENT_COMMANDS:
    main.add_command(_each)

__all__ = ["main"]
