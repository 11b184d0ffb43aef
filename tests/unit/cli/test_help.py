"""The help of every command: it ends with examples that work and with exit statuses."""

import re
import shlex

import click
import pytest

from house.pages import commands
from taskgate.cli import main
from taskgate.cli.examples import EXAMPLES, STATUSES
from taskgate.cli.help import path_of

COMMANDS = {path_of(context): (command, context) for command, context in commands()}
SHOWN = [example for examples in EXAMPLES.values() for example in examples]


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_a_command_has_examples_of_it_and_its_exit_statuses(path: str) -> None:
    command, context = COMMANDS[path]
    shown = command.get_help(context)
    assert "\nExamples:\n" in shown
    assert all(f"taskgate {path}".strip() in example for example in EXAMPLES[path])
    assert re.search(r"\nExit status:\n  0 ", shown)


def test_no_command_has_examples_or_statuses_without_being_there() -> None:
    assert EXAMPLES.keys() == STATUSES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("example", SHOWN)
def test_an_example_is_a_command_line_that_is_understood(example: str) -> None:
    """Its options are parsed; it is not called."""
    words = shlex.split(re.sub(r'.*\$\((.*)\)"|^.*?(?=\btaskgate )', r"\1", example, count=1), comments=True)
    arguments = words[words.index("taskgate") + 1 :]
    if {">", "|"} & {*arguments}:
        arguments = arguments[: min(arguments.index(each) for each in (">", "|") if each in arguments)]
    command, context = main, click.Context(main, info_name="taskgate")
    while isinstance(command, click.Group):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=found.name)
    command.parse_args(context, arguments)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_line_of_help_fits_a_terminal(path: str) -> None:
    command, context = COMMANDS[path]
    beside_examples = [line for line in command.get_help(context).splitlines() if line.strip() not in SHOWN]
    assert [line for line in beside_examples if len(line) > 80] == []
