"""The classes of commands, `HelpfulCommand` and `HelpfulGroup`, whose help ends with examples and
exit statuses; and the option `--config`.

Both texts are of `examples`, found by the path of the command. That module is loaded for help
alone.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

VARIABLE: Final = "TASKGATE_CONFIG"
"""The environment variable with the path of the configuration."""
PLACES: Final = (Path("taskgate.yaml"), Path("/etc/taskgate/taskgate.yaml"))
"""Where the configuration is without an option and the variable, the first that is there."""
NO_FILE: Final = f"{VARIABLE} is not set, and {' and '.join(map(str, PLACES))} are missing"


def config_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--config`; `find_file` has its default."""
    return click.option(
        "--config",
        "file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"{text}; default ${VARIABLE}, {', '.join(map(str, PLACES))}.",
    )


def find_file(given: Path | None) -> Path | None:
    """The configuration that was given, or that is where it usually is; None if there is none."""
    if given is None and os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    return given or next((place for place in PLACES if place.is_file()), None)


def needed_file(given: Path | None) -> Path:
    """As `find_file`, and says on standard error which one it found. Raises click.UsageError if there is none."""
    found = find_file(given)
    if found is None:
        raise click.UsageError(f"Give --config FILE: {NO_FILE}.")
    if given is None:
        click.echo(f"taskgate: the configuration is {found}", err=True)
    return found


class HelpfulCommand(click.Command):
    """A command with its examples and exit statuses below its options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the exit statuses."""
        _write_epilog(ctx, formatter)


class HelpfulGroup(click.Group):
    """The same for a group. Its commands and groups are of these classes."""

    command_class = HelpfulCommand
    group_class = type

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the exit statuses."""
        _write_epilog(ctx, formatter)


def path_of(ctx: click.Context) -> str:
    """The names of the groups and the command of a context, without the program: `audit verify`."""
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(names)


def _write_epilog(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    from taskgate.cli.examples import EXAMPLES, STATUSES

    path = path_of(ctx)
    with formatter.section("Examples"):
        for example in EXAMPLES.get(path, ()):
            # Not wrapped, so that a line can be pasted.
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
    with formatter.section("Exit status"):
        formatter.write_dl([(str(status), text) for status, text in STATUSES.get(path, {}).items()])
