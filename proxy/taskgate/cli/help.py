"""The classes of commands, `HelpfulCommand` and `HelpfulGroup`, whose help ends with examples and
exit statuses.

Both are texts of `examples`, found by the path of the command. That module is loaded for help
alone.
"""

import click


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
