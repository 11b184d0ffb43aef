"""What suites of other projects say of taskgate: a file of verdicts for each suite, and the table of all.

A file has a heading for each part of its suite, and a line for each row: the row, two spaces, and its verdict.

    passes
    differs: REASON (LINK)    the outcome is another one on purpose; the link explains why
    fails: REASON (LINK)      the outcome is wrong; the link names what is to change
    gains: REASON (LINK)      it fails without taskgate; the link explains why not with it
    neither: REASON (LINK)    it fails without taskgate too; the link explains why

`.venv/bin/python -m tests.interop.matrix` writes the table into `docs/compatibility.md`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from example.environments import SOURCES

PASSES, GAINS, NEITHER = "passes", "gains", "neither"
KINDS = ("differs", "fails")
VERDICT = re.compile(r"passes|(?:differs|fails|gains|neither): \S.*\S \((?:https://\S+|docs/\S+)\)")
Rows = Mapping[str, str]
Outcomes = Mapping[str, str | None]
"""What was wrong with each row, or None for a row that passes."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite: its environment or package, its name for readers, and the file of its verdicts."""

    environment: str
    title: str
    file: Path

    @property
    def release(self) -> str:
        """The package and its version."""
        if self.environment in SOURCES:
            return SOURCES[self.environment].requirement.replace("==", " ")
        version = json.loads(PACKAGES.read_text(encoding="utf-8"))["dependencies"][self.environment]
        name, _, version = (version if version.startswith("npm:") else f"npm:{self.environment}@{version}").rpartition(
            "@"
        )
        return f"{name.removeprefix('npm:')} {version}"

    def verdicts(self) -> dict[str, dict[str, str]]:
        """The verdict of each row, by part of the suite. Raises ValueError for a line that is none."""
        return parsed(self.file.read_text(encoding="utf-8"))


HOME = Path(__file__).parent
PACKAGES = HOME.parent / "peers" / "package.json"
INTERACTION = Suite("suite-mcp-2.3.0", "interaction suite of the Python SDK", HOME / "interaction.txt")
REQUESTS = Suite("suite-gunicorn-27.0.1", "requests of gunicorn's parser", HOME / "gunicorn_requests.txt")
CONFORMANCE = Suite("@modelcontextprotocol/conformance", "conformance suite", HOME / "conformance.txt")
NEXT_CONFORMANCE = Suite("conformance-next", "next conformance suite", HOME / "next_conformance.txt")
FASTMCP_CLIENT = Suite("suite-fastmcp-4.2.3", "tests of FastMCP's client", HOME / "fastmcp_client.txt")
FASTMCP_PROXY = Suite("suite-fastmcp-4.2.3", "tests of FastMCP's proxy", HOME / "fastmcp_proxy.txt")
TYPESCRIPT_ROWS = Suite(
    "@modelcontextprotocol/server", "rows after the TypeScript SDK's requirements", HOME / "typescript_rows.txt"
)
counted: list[str] = []
"""What was found in this run, a line for each part."""
SUITES = (INTERACTION, TYPESCRIPT_ROWS, FASTMCP_CLIENT, FASTMCP_PROXY, CONFORMANCE, NEXT_CONFORMANCE, REQUESTS)


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


def disagreements(verdicts: Rows, outcomes: Outcomes, *, directly: bool = False) -> list[str]:
    """The rows whose outcome is another than their verdict, each with what is to be done about its line.

    `directly` is whether the outcomes are those without taskgate. A row that is missing there has failed.
    """
    missing = [row for row in verdicts if row not in outcomes]
    if directly:
        found, outcomes = [], {**outcomes, **dict.fromkeys(missing, "no outcome")}
    else:
        found = [f"{row}: is no row any more: remove its line" for row in missing]
    for row, problem in outcomes.items():
        verdict = verdicts.get(row)
        if verdict is None:
            found.append(f"{row}: has no line: {problem or PASSES}")
        elif problem is None and not _passes(verdict, directly=directly):
            found.append(f"{row}: passes now: its verdict was “{verdict}”")
        elif problem is not None and _passes(verdict, directly=directly):
            found.append(f"{row}: passed before: {problem}")
    return found


def judge(suite: Suite, part: str, outcomes: Outcomes, *, directly: bool = False) -> None:
    """Fail unless each row of a part has the outcome of its verdict; what was counted is said at the end of a run."""
    verdicts, way = suite.verdicts()[part], "directly" if directly else "through taskgate"
    passed = sum(problem is None for problem in outcomes.values())
    counted.append(f"{suite.title}: {part}: {passed} of {len(verdicts)} rows pass {way}")
    wrong = disagreements(verdicts, outcomes, directly=directly)
    assert not wrong, "\n".join(wrong)


def _passes(verdict: str, *, directly: bool) -> bool:
    """Whether a row with this verdict passes, without taskgate or through it."""
    kind = verdict.partition(":")[0]
    return kind not in (GAINS, NEITHER) if directly else kind in (PASSES, GAINS)


def section() -> str:
    """The part of the page about suites."""
    lines = ["| suite | release | rows | directly | through taskgate | accepted | to be fixed |", "|---" * 7 + "|"]
    for suite in SUITES:
        for part, rows in suite.verdicts().items():
            kinds = [verdict.partition(":")[0] for verdict in rows.values()]
            directly, passed = (sum(_passes(each, directly=way) for each in rows.values()) for way in (True, False))
            accepted, wrong = (kinds.count(kind) for kind in KINDS)
            counts = f"{len(rows)} | {directly} | {passed} | {accepted} | {wrong}"
            title = f"[{suite.title}](../tests/suites/{suite.file.name})"
            lines.append(f"| {title}: {part} | {suite.release} | {counts} |")
    return f"{_HEAD}\n{chr(10).join(lines)}\n"


_HEAD = """## Suites of other projects

Released suites run through taskgate with its defaults and without authentication. `make suites`
runs them directly and through taskgate, and ends with the counts of both. `make test-all` runs them
through taskgate. `make suites ONLY=interaction` runs one suite: the other names are `typescript`,
`fastmcp`, `conformance` and `gunicorn`. The first run fetches the releases from PyPI and npm: it takes
ten minutes and two gigabytes.

The table is counted from the files that it names. They have a line for each row, with its verdict. A
row with another outcome fails the test.

- *directly*: the rows that pass without taskgate. For the requests, gunicorn's own parser is asked.
- *through taskgate*: the rows that pass with taskgate between host and server.
- *accepted* (`differs`): the outcome differs on purpose. The row's line links to the reason.
- *to be fixed* (`fails`): the outcome is wrong. The row's line says why.

A row that fails in both ways (`neither`) counts in the first column alone. Some rows pass through
taskgate alone (`gains`).

Of the interaction suite run the rows that connect host and server by Streamable HTTP. Those within one
process, over other transports, and about transports and tokens are left out.

Four rows of each legacy part of the interaction suite see that taskgate announces tasks. They pass
with `tasks: {upgrade: []}`, where no call becomes one.

The TypeScript SDK has its end-to-end tests in no package. The rows are programs of this project, after
348 of the 475 requirements of these tests, and each has the id of its requirement. Left out is what
does not cross between host and server, such as the exchange of tokens. Hosts are on
`@modelcontextprotocol/client` 2.4. Directly, servers over stdio and HTTP+SSE are reached by the
host's own transport. In two parts host and server have no revision in common, and no row passes
directly.

The rows of FastMCP's proxy are those of its tests that connect a host. taskgate has the place of that
proxy, between the same hosts and servers. What the proxy itself adds or changes fails in both ways.

A valid request passes if taskgate finds as many requests in it as gunicorn. Most that differ have
no `Host`, which HTTP/1.1 demands. An invalid request passes if taskgate refuses it and reads
nothing behind it.

The conformance suites judge a server: one of 2025-11-25 on `mcp` 1.23.3, and one of 2026-07-28 on
`mcp` 2.3.0, which lacks tools of 20 rows. For the rows of tasks one rule is set: `failing_job` is
`required`.
"""
