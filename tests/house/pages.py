"""Pages of `docs/` that are written by a program: `make pages` writes them, and a test compares.

`docs/requirements.md` has what the gateway is held to, and the tests that show it; `docs/decisions/README.md` is the
index of the decisions; `docs/cli.md` has the help of every command; `docs/openapi.json` is the document of the API for
operators.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import click

CHECKOUT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests")]

from helpers.gateway.configuration import configuration  # noqa: E402
from helpers.gateway.gateway import serve  # noqa: E402
from house.test_requirements import covering  # noqa: E402
from requirements import NOT_BUILT, REQUIREMENTS  # noqa: E402
from taskgate.cli import main  # noqa: E402

AREAS: Final = {
    "V": "versions and eras",
    "H": "HTTP between hosts and the gateway",
    "U": "transports to servers",
    "L": "tasks of the legacy era",
    "M": "tasks and requests of the modern era",
    "F": "filters of lists",
    "B": "bridges between the eras",
    "X": "extensions",
    "I": "isolation of callers",
    "A": "authentication and authorization",
    "R": "rates, caps and other limits",
    "S": "what servers may ask and see",
    "O": "what operators see",
    "T": "threats, answered in [security.md](security.md)",
}
"""What the first letter of an id stands for, in the order of the page."""

REQUIREMENTS_HEAD: Final = """# Requirements

What the gateway is held to, as far as it is built. Each line has an id, a sentence, and the tests that show it.
An id is the letter of a section, a topic and a number; AMB-n is a ruling. T25, without a dash, is a threat (see
[security.md](security.md)); T-25, with one, is another id: that of a requirement. Tests name the ids. Code names them
where they explain it: `grep -rnw M-MRTR-6 proxy`. `make pages` writes this page from the tables in
`tests/requirements*.py` and `tests/threats.py`; a test fails when a requirement has no test, or a test names an unknown
id. Questions that the
protocol leaves open are in [rulings.md](rulings.md).
"""
NOT_BUILT_HEAD: Final = """## Not built

These do not apply to taskgate, or are left out on purpose.
"""
DECISIONS_HEAD: Final = """# Decisions

Why the code is as it is: one page for each choice that a reader would ask about, with its context and its price.
A new decision takes the next number. Its title is what one would search for. `make pages` writes this index.

| number | decision | date | status |
|---|---|---|---|
"""

COMMANDS_HEAD: Final = """# Commands

The program is `taskgate`. Every command has `--help`, and this page is that help. `make pages` writes it.

## Exit statuses

| status | meaning |
|---|---|
| 0 | success |
| 1 | the command failed: the gateway was not reached, is not ready, or refused |
| 2 | the command line, a file that it names, or the configuration is wrong |

Ctrl-C in `call` and `tasks watch` ends with 130. Commands with other meanings list them below.

## Output

- `--json` prints JSON for programs. Without it the output is for people, and may change.
- Results go to standard output, errors and warnings to standard error.
- Names and messages of servers are printed without control characters. In JSON they are escaped.

## Environment variables

| variable | meaning |
|---|---|
| `TASKGATE_CONFIG` | configuration; else `taskgate.yaml` or `/etc/taskgate/taskgate.yaml`; `--config` wins |
| `TASKGATE_ADMIN_URL` | address of the operators' listener; `--admin` wins |
| `TASKGATE_ADMIN_TOKEN_FILE` | file with an operator's token; `--token` wins |
| `SSL_CERT_FILE` | authorities that commands trust with `--admin https://…`; else those of the system |
| `TASKGATE_TOKEN_FILE` | file with the caller's token for `call`; `--token` wins |
| `NO_COLOR` | any value: no colours |
| `TASKGATE_DATA_DIR` | directory of the files that `serve` keeps |

## Completion in a shell

`taskgate completion bash|zsh|fish` prints a script. Load it where your shell starts:

```sh
echo 'eval "$(taskgate completion bash)"' >> ~/.bashrc
echo 'eval "$(taskgate completion zsh)"' >> ~/.zshrc
taskgate completion fish > ~/.config/fish/completions/taskgate.fish
```
"""


class Decision(NamedTuple):
    """The head of one page; `status` is in the words before the date."""

    number: str
    title: str
    date: str
    status: str


def requirements_page(covering: Mapping[str, frozenset[str]]) -> str:
    """The text of `docs/requirements.md`; `covering` has the tests of each id."""
    lines = [REQUIREMENTS_HEAD]
    for letter, area in AREAS.items():
        lines.append(f"## {letter}: {area}\n")
        for id, sentence in REQUIREMENTS.items():
            if id[0] == letter:
                lines += [f"- **{id}**: {sentence}.", *(f"  - `{test}`" for test in sorted(covering[id]))]
        lines.append("")
    lines.append(NOT_BUILT_HEAD)
    lines += [f"- **{id}**: {sentence}." for id, sentence in NOT_BUILT.items()]
    return "\n".join([*lines, ""])


def decision_of(file: Path) -> Decision:
    """The head of the page in that file. Raises ValueError for one that has none."""
    text = file.read_text()
    title = re.match(r"# (\d{4}): (.+)\n", text)
    status = re.search(r"^\*\*Status\.\*\* (\w[\w ]*), (\d{4}-\d\d-\d\d)", text, flags=re.MULTILINE)
    if title is None or status is None or not file.name.startswith(title[1]):
        raise ValueError(f"{file.name} does not begin with its number, title, status and date")
    return Decision(title[1], title[2], status[2], status[1])


def decisions() -> Iterator[tuple[Path, Decision]]:
    """Each page, in order."""
    for file in sorted((CHECKOUT / "docs" / "decisions").glob("[0-9]*.md")):
        yield file, decision_of(file)


def decisions_page() -> str:
    """The text of `docs/decisions/README.md`."""
    rows = (
        f"| {each.number} | [{each.title}]({file.name}) | {each.date} | {each.status} |" for file, each in decisions()
    )
    return DECISIONS_HEAD + "\n".join(rows) + "\n"


def commands(
    command: click.Command = main, parent: click.Context | None = None
) -> Iterator[tuple[click.Command, click.Context]]:
    """The program and every command below it, each with a context whose help is 80 columns wide."""
    name = "taskgate" if parent is None else command.name
    context = click.Context(command, parent=parent, info_name=name, terminal_width=80, **command.context_settings)
    yield command, context
    for each in sorted(command.commands) if isinstance(command, click.Group) else ():
        yield from commands(command.commands[each], context)


def commands_page() -> str:
    """The text of `docs/cli.md`."""
    parts = [COMMANDS_HEAD]
    for command, context in commands():
        parts.append(f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def api_document() -> str:
    """The text of `docs/openapi.json`: the document that a gateway serves."""

    def written(admin: Path) -> str:
        async def served() -> str:
            section = {"listen": "127.0.0.1:0", "token_file": str(admin)}
            async with serve(configuration({"reports": "http://127.0.0.1:9/mcp"}, admin=section)) as gateway:
                bearer = f"Bearer {admin.read_text()}"
                return (await gateway.operators("/api/v1/openapi.json", Authorization=bearer))[1]

        return asyncio.run(served())

    with TemporaryDirectory() as folder:
        token = Path(folder, "token")
        token.write_text("a-token-for-this-page-alone")
        token.chmod(0o600)
        return json.dumps(json.loads(written(token)), indent=1, ensure_ascii=False) + "\n"


def pages() -> dict[Path, str]:
    """Each page, with the text that it is to have."""
    return {
        CHECKOUT / "docs" / "requirements.md": requirements_page(covering()),
        CHECKOUT / "docs" / "decisions" / "README.md": decisions_page(),
        CHECKOUT / "docs" / "cli.md": commands_page(),
        CHECKOUT / "docs" / "openapi.json": api_document(),
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text)
