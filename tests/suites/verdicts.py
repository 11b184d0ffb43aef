"""What suites of other projects say of taskgate: a file of verdicts for each suite, and the table of all.

A file has a heading for each part of its suite, and a line for each row: the row, two spaces, and its verdict.

    passes
    differs: REASON (LINK)    the outcome is another one on purpose; the link explains why
    fails: REASON (LINK)      the outcome is wrong; the link names what is to change

`python -m tests.interop.matrix` writes the table into `docs/compatibility.md`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from example.environments import SOURCES

PASSES = "passes"
KINDS = ("differs", "fails")
VERDICT = re.compile(r"passes|(?:differs|fails): \S.*\S \((?:https://\S+|docs/\S+)\)")
Rows = Mapping[str, str]
Outcomes = Mapping[str, str | None]
"""What was wrong with each row, or None for a row that passes."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite: its environment, its name for readers, and the file of its verdicts."""

    environment: str
    title: str
    file: Path

    @property
    def release(self) -> str:
        """The package and its version."""
        return SOURCES[self.environment].requirement.replace("==", " ")

    def verdicts(self) -> dict[str, dict[str, str]]:
        """The verdict of each row, by part of the suite. Raises ValueError for a line that is none."""
        return parsed(self.file.read_text(encoding="utf-8"))


HOME = Path(__file__).parent
INTERACTION = Suite("suite-mcp-2.3.0", "interaction suite of the Python SDK", HOME / "interaction.txt")
REQUESTS = Suite("suite-gunicorn-27.0.1", "requests of gunicorn's parser", HOME / "gunicorn_requests.txt")
SUITES = (INTERACTION, REQUESTS)


def parsed(text: str) -> dict[str, dict[str, str]]:
    """The verdicts of a file. Raises ValueError for a line that is none."""
    parts: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("# "):
            rows = parts[line.removeprefix("# ")] = {}
            continue
        row, _, verdict = line.partition("  ")
        if not parts or row in rows or not VERDICT.fullmatch(verdict):
            raise ValueError(f"not a row and its verdict, or a second one: {line}")
        rows[row] = verdict
    return parts


def disagreements(verdicts: Rows, outcomes: Outcomes) -> list[str]:
    """The rows whose outcome is another than their verdict, each with what is to be done about its line."""
    found = [f"{row}: is no row any more: remove its line" for row in verdicts if row not in outcomes]
    for row, problem in outcomes.items():
        verdict = verdicts.get(row)
        if verdict is None:
            found.append(f"{row}: has no line: {problem or PASSES}")
        elif problem is None and verdict != PASSES:
            found.append(f"{row}: passes now: its verdict was “{verdict}”")
        elif problem is not None and verdict == PASSES:
            found.append(f"{row}: passed before: {problem}")
    return found


def section() -> str:
    """The part of the page about suites."""
    lines = ["| suite | release | rows | directly | through taskgate | accepted | to be fixed |", "|---" * 7 + "|"]
    for suite in SUITES:
        for part, rows in suite.verdicts().items():
            kinds = [verdict.partition(":")[0] for verdict in rows.values()]
            passed, accepted, wrong = (kinds.count(kind) for kind in (PASSES, *KINDS))
            counts = f"{len(rows)} | {len(rows)} | {passed} | {accepted} | {wrong}"
            lines.append(f"| {suite.title}: {part} | {suite.release} | {counts} |")
    return f"{_HEAD}\n{chr(10).join(lines)}\n"


_HEAD = """## Suites of other projects

Released suites run through taskgate with its defaults and without authentication. `make suites`
runs them. Every row has a verdict in `tests/suites`, and a row with another outcome fails the test.

- *directly*: the rows that pass without taskgate. For the requests, gunicorn's own parser is asked.
- *through taskgate*: the rows that pass with taskgate between host and server.
- *accepted*: the outcome differs on purpose. The row's line links to the reason.
- *to be fixed*: the outcome is wrong. The row's line says why.

A valid request passes if taskgate finds as many requests in it as gunicorn. Most that differ have
no `Host`, which HTTP/1.1 demands. An invalid request passes if taskgate refuses it and reads
nothing behind it.
"""
