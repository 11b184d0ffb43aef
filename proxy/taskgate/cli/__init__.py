"""The command line: `main`, with one command for each task of an operator.

`serve` runs the gateway. `configuration` has the commands that read a configuration and print:
`check`, `schema`, `explain` and `metrics`. `audit` verifies an audit log. Commands parse options
and print; `explain` and `wiring` do the work.
"""

import click

from taskgate import __version__
from taskgate.cli.audit import audit
from taskgate.cli.configuration import check, explain, metrics, schema
from taskgate.cli.serve import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="taskgate")
def main() -> None:
    """A gateway that turns blocking MCP tool calls into durable tasks, in front of unmodified
    servers.
    """


for _command in (check, schema, explain, metrics, audit, serve):
    main.add_command(_command)
