"""Released hosts without tasks before gateways: what each of them calls, and what its model gets.

A host on an SDK is one process with a connection for each call, whose own timeout is the ceiling. It connects when it
starts, and again as its user would, once a connection is lost (`tests/peers/handoff_words.py`). Claude Code is a
process for each call.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from handoff.matrix import CLAUDE, EVENTS, FRACTION, Cell, Event
from interop.claude_code import SERVER, headless
from interop.peers import handoff_command, output_of
from peers.messages_api import Model

LOST: Final = "The gateway stopped while the call was running"
DIRECT: Final = 40404
"""The number of the call that each host makes of the server itself."""
APART: Final = 10.0
"""Seconds between two events."""
LATER: Final = 1.0
"""Seconds between the calls of two hosts where nothing happens: all of them at once keep each other waiting."""
STARTS: Final = 1.5
"""Seconds between the starts of two processes of Claude Code."""


@dataclass(slots=True)
class Call:
    """A call of a host, and what came of it."""

    number: int
    host: str
    cell: Cell
    at: float
    """When it is made, in seconds since 1970."""
    until: float
    """When it has to be over."""
    turns: int = 0
    """How many answers or errors the model has read."""
    end: Any = None
    """What the model has read last."""
    errors: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the server takes."""
        return self.cell.duration * self.cell.scale

    @property
    def patience(self) -> float:
        """How long the host waits."""
        return self.cell.ceiling * self.cell.scale

    @property
    def given(self) -> dict[str, Any]:
        """The arguments."""
        return {"number": self.number, "seconds": self.seconds}

    @property
    def again(self) -> str:
        """Which call the model makes after an error; both kinds come up in each event."""
        return "same" if self.number % 2 else "first"

    @property
    def is_told(self) -> bool:
        """Whether the model read that the outcome is unknown."""
        return LOST in json.dumps(self.end)

    def is_delivered(self, direct: Any) -> bool:
        """Whether the model got what the host shows of the server's own answer."""
        text = json.dumps(direct)
        return str(DIRECT) in text and self.end == json.loads(text.replace(str(DIRECT), str(self.number)))


def calls_of(cells: Sequence[Cell], hosts: Sequence[str], start: float) -> Iterator[Call]:
    """A call for each cell and host; at `instant_of` its event it has run for its fraction."""
    number = 0
    for host in hosts:
        for cell in cells:
            if cell.is_released:
                number += 1
                later = hosts.index(host) * LATER if cell.event == "nothing" else 0
                at = later + instant_of(cell.event, cells, start) - FRACTION * cell.duration * cell.scale
                yield Call(number, host, cell, at, instant_of(EVENTS[-1], cells, start) + _rest(cells))


def _rest(cells: Sequence[Cell]) -> float:
    """Seconds that the calls may take after the last event: those of up to a ceiling may begin anew."""
    ceiling = max(cell.ceiling * cell.scale for cell in cells)
    return (1 - FRACTION) * _longest(cells) + 2 * ceiling + 25


def _longest(cells: Sequence[Cell]) -> float:
    return max(cell.duration * cell.scale for cell in cells)


def instant_of(event: Event, cells: Sequence[Cell], start: float) -> float:
    """When that befalls the gateway: one event after the other, for connections are made anew in each."""
    return start + FRACTION * _longest(cells) + EVENTS.index(event) * APART


def url_of(cell: Cell, addresses: Mapping[Event, str]) -> str:
    """The mount whose rule has the ceiling of the cell."""
    return f"http://{addresses[cell.event]}/c{cell.ceiling}/mcp"


async def play(
    host: str, calls: Sequence[Call], addresses: Mapping[Event, str], server: str, within: float, folder: Path
) -> Any:
    """Have a host make its calls; returns what it shows of the server's own answer."""
    if host == CLAUDE:
        return await _play_claude(calls, addresses, server, folder)
    direct = {"url": server, "patience": 20, "tool": "slow", "given": {"number": DIRECT, "seconds": 0}, "then": "wait"}
    plans = [
        {
            "url": url_of(call.cell, addresses),
            "patience": call.patience,
            "tool": call.cell.tool,
            "given": call.given,
            "then": "wait",
            "at": call.at,
            "until": call.until,
            "turns": 60,
            "again": call.again,
            "final": LOST,
        }
        for call in calls
    ]
    file = folder / f"{host}.json"
    file.write_text(json.dumps([direct, *plans]))
    status, output, errors = await output_of([*handoff_command(host), f"@{file}"], within=within)
    assert status == 0, errors
    first, *played = [json.loads(line) for line in output.splitlines()]
    for call, told in zip(calls, played, strict=True):
        turns = told["turns"]
        call.turns = len(turns)
        call.end = _shown(turns[-1]) if turns else told.get("broken")
        call.errors = [json.dumps(turn["error"]) for turn in turns if "error" in turn]
    return _shown(first["turns"][-1])


def _shown(turn: dict[str, Any]) -> Any:
    result = turn.get("result")
    if result is None:
        return turn.get("error")
    return [result.get("content"), result.get("structuredContent"), bool(result.get("isError"))]


async def _play_claude(calls: Sequence[Call], addresses: Mapping[Event, str], server: str, folder: Path) -> Any:
    model = Model(server=SERVER, tool="slow", given={"number": DIRECT, "seconds": 0})
    (own := folder / "claude").mkdir()

    async def call_once(number: int, call: Call) -> None:
        # The processes start one after the other; each model thinks until its call is due.
        await asyncio.sleep(STARTS * number)
        model = Model(server=SERVER, tool=call.cell.tool, given=call.given, at=call.at, again=call.again, final=LOST)
        (home := own / str(call.number)).mkdir()
        url = url_of(call.cell, addresses)
        try:
            await headless(model, url, home, call.patience, "ENABLE_TOOL_SEARCH=false", within=call.until - time.time())
        except AssertionError as error:
            call.errors.append(str(error))
        call.turns, call.end = len(model.turns), model.results[-1]["content"] if model.results else None
        call.errors += [json.dumps(each["content"]) for each in model.results[:-1] if each.get("is_error")]

    async with asyncio.TaskGroup() as group:
        for number, call in enumerate(sorted(calls, key=lambda call: call.at), 1):
            group.create_task(call_once(number, call))
        await headless(model, server, own, 20, "ENABLE_TOOL_SEARCH=false")
    return model.results[-1]["content"]
