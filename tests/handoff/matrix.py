"""What hosts without tasks get of calls of every length, whatever befalls the gateway: the table, and its page.

`python -m tests.handoff.matrix` writes `docs/handoff-matrix.md` from what stands here, which `test_matrix.py` holds
against what hosts really get. Nothing of taskgate is known here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final, Literal

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "handoff-matrix.md"
SCALE: Final = 0.1
"""How many seconds a test takes for one of the table."""
CEILINGS: Final = (2, 5, 30)
"""Seconds."""
MARGIN: Final = 0.1
"""The part of a ceiling by which an answer comes sooner."""
FRACTION: Final = 0.6
"""The part of a call after which something befalls the gateway."""
RELEASED_SCALES: Final = {2: 1.0, 5: 1.0, 30: 0.4}
"""The same as `SCALE` for released hosts, by the ceiling: their own clients take longer."""
RELEASED: Final = Path(__file__).with_name("released.json")
"""What released hosts have got in the last long run (`test_released.py`), by event, host and `Cell.key`."""
CLAUDE: Final = "claude-code"
HOSTS: Final = {
    "python-2.3": "Python SDK 2.3",
    "python-1.12": "Python SDK 1.12",
    "fastmcp-4": "FastMCP 4.1",
    "client": "TypeScript client 2.4, legacy",
    "client-stateless": "TypeScript client 2.4, modern",
    "sdk": "TypeScript SDK 1.32",
    CLAUDE: "Claude Code 2.1.330, headless",
}
"""The released hosts, and what the page calls them."""
RESTARTED: Final = 3
"""How many replicas are restarted."""

Event = Literal["nothing", "kill -9", "rolling restart"]
EVENTS: Final[tuple[Event, ...]] = ("nothing", "kill -9", "rolling restart")
Tool = Literal["slow", "lasting"]
TOOLS: Final[tuple[Tool, ...]] = ("slow", "lasting")
"""Of a server that ends a call with its connection, and of one whose results can be received on a later one."""
Ending = Literal["delivered", "told"]
Mode = Literal["auto", "always"]
MODES: Final[dict[Event, Mode]] = {"nothing": "auto", "kill -9": "always", "rolling restart": "auto"}
"""The mode of the rule: with `always` a call is stored before it is sent."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One call: its event, its tool, its length and the ceiling of its host, in seconds."""

    event: Event
    tool: Tool
    duration: float
    ceiling: int

    @property
    def patience(self) -> float:
        """Seconds after which such a host has its answer."""
        return self.ceiling * (1 - MARGIN)

    @property
    def most_turns(self) -> int:
        """How many answers the model reads at most: one for each wait of its host, and for each interruption.

        After a kill a call may come to a gateway that has just started, and that may take a handle more.
        """
        interruptions = {"nothing": 0, "kill -9": 2, "rolling restart": RESTARTED}[self.event]
        return ceil(self.duration / self.patience) + interruptions

    @property
    def ending(self) -> Ending:
        """What becomes of the call."""
        return "told" if self.event == "kill -9" and self.tool == "slow" else "delivered"

    @property
    def scale(self) -> float:
        """How many seconds a test with released hosts takes for one of the table."""
        return RELEASED_SCALES[self.ceiling]

    @property
    def key(self) -> str:
        """What `released.json` calls it beside its event."""
        return f"{self.ceiling} s, {self.duration:g} s, {self.tool}"

    @property
    def is_released(self) -> bool:
        """Whether released hosts are tried with it: one kind of server for each event, since all call at once."""
        return self.tool == ("slow" if self.event == "nothing" else "lasting")


def durations(ceiling: int) -> tuple[float, ...]:
    """Seconds: one, and from half a ceiling to thirty."""
    return tuple(sorted({1.0, *(ceiling * factor for factor in (0.5, 1.0, 2.0, 5.0, 30.0))}))


def cells() -> Iterator[Cell]:
    """All of the table."""
    for event in EVENTS:
        for tool in TOOLS:
            for ceiling in CEILINGS:
                yield from (Cell(event, tool, duration, ceiling) for duration in durations(ceiling))


_HEAD: Final = """# Calls of every length to hosts without tasks

What a [host without tasks](hosts-without-tasks.md) gets of a call that takes longer than its ceiling. Hosts of both
eras were tried, on raw sockets, in front of `taskgate serve`. Every result was the same to the byte, and every call ran
once. A second of this table took 0.1 s, with the clock of the machine.

`python -m tests.handoff.matrix` makes this page. `tests/handoff/test_matrix.py` and `test_released.py` try every cell:
`make handoff` all of them, `make test-all` the shorter ones.

- *turns*: how many answers the model reads, at most, the result included.
- *resumable*: the server keeps the result of a call for another connection (event ids of Streamable HTTP).
- *told*: the model reads once that the outcome is unknown. The call did not run again.
"""
_ABOUT: Final[dict[Event, str]] = {
    "nothing": "## Nothing happens\n\nOne gateway over SQLite.",
    "kill -9": f"""## kill -9

The rule has `mode: always`, which stores a call before it is sent. The gateway is killed after {FRACTION:.0%} of each
call, and started again over the same SQLite file. The kill is one turn of those below, and the first call to
a gateway that has just started may be another one.

A call that is killed before the server's first event id is stored is told, too. With `mode: auto` a call is in memory
alone until it is late. If the gateway is killed before that, the same call made again runs again.""",
    "rolling restart": f"""## Rolling restart

Three replicas share a Valkey. After {FRACTION:.0%} of each call all are restarted, one after the other, and
each restart may be one turn of those below. A call of a server that is not resumable has to end within
`server.drain.timeout`.""",
}

_RELEASED: Final = f"""## Released hosts

Unmodified, each with a timeout of its own that is the ceiling, and with a model that does what it reads. The ceiling is
that of the rule. The events are those above, and a host whose connection is lost connects again. A second of this table
took one second, and {RELEASED_SCALES[30]:g} s with the ceiling of 30 s. All hosts run at once: eight minutes.

An entry is what the last long run saw: how many answers or errors the model read, the result included. The server is
not resumable where nothing happens, and resumable else.
"""


def _entry(cell: Cell) -> str:
    turns = f"{cell.most_turns} turn" + "s" * (cell.most_turns > 1)
    return f"delivered, {turns}" if cell.ending == "delivered" else "told"


def _table(event: Event) -> str:
    lines = ["| ceiling | call | server not resumable | server resumable |", "|--:|--:|---|---|"]
    for ceiling in CEILINGS:
        for duration in durations(ceiling):
            entries = " | ".join(_entry(Cell(event, tool, duration, ceiling)) for tool in TOOLS)
            lines.append(f"| {ceiling} s | {duration:g} s | {entries} |")
    return "\n".join(lines)


def _released_table(event: Event, seen: Mapping[str, Mapping[str, str]]) -> str:
    lines = [f"| ceiling | call | {' | '.join(HOSTS.values())} |", f"|--:|--:|{'---|' * len(HOSTS)}"]
    for ceiling in CEILINGS:
        for duration in durations(ceiling):
            cells = (Cell(event, tool, duration, ceiling) for tool in TOOLS)
            key = next(cell.key for cell in cells if cell.is_released)
            lines.append(f"| {ceiling} s | {duration:g} s | {' | '.join(seen[host][key] for host in HOSTS)} |")
    return "\n".join(lines)


def _released() -> str:
    """The part about released hosts, from what they have got; nothing before a long run."""
    if not RELEASED.exists():
        return ""
    seen = json.loads(RELEASED.read_text(encoding="utf-8"))
    return "\n".join([_RELEASED, *(f"### {event}\n\n{_released_table(event, seen[event])}\n" for event in EVENTS)])


def page() -> str:
    """The whole of `docs/handoff-matrix.md`."""
    return (
        "\n".join([_HEAD, *(f"{_ABOUT[event]}\n\n{_table(event)}\n" for event in EVENTS), _released()]).rstrip("\n")
        + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
