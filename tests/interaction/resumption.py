"""Event streams that are resumed: what was heard on them, and their ids."""

import re
from typing import Any

from helpers.host.host import Host
from helpers.host.wire import Wire, asked
from helpers.server import TalkingTool

SAID = "notifications/message"
UNKNOWN = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "The stream is unknown or has expired"}}
ID = re.compile(r"([gp][0-9]+-[0-9a-f]{12})-([0-9]+)").fullmatch


async def tell(tool: TalkingTool, *words: object) -> None:
    """Have the tool say something during its call."""
    for word in words:
        await tool.note(SAID, level="info", data=word)


def heard(wire: Wire) -> list[Any]:
    """What the messages were about."""
    return [
        event.message["params"]["data"] if "method" in event.message else event.message["result"]
        for event in wire.seen
        if event.data
    ]


def last_id(wire: Wire) -> str:
    return [event.id for event in wire.seen if event.id is not None][-1]


async def ids_of(wire: Wire, count: int) -> None:
    """Read until so many events have come."""
    while len(wire.seen) < count:
        assert await wire.next() is not None


def call_stream(host: Host) -> Any:
    return asked(host, "tools/call", {"name": "report"})
