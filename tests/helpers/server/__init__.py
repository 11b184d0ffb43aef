"""A scripted MCP server of either era: what it answers is in `script`, and it remembers what it received.

    async with ScriptedServer() as server:
        server.script["slow"] = hold = Hold()
        ...                                      # a host calls the tool `slow` at server.url
        await hold.begun.wait()
        hold.release({"content": []})

`http` serves it over Streamable HTTP, `sse` over HTTP+SSE, and `in_process` over message channels without a socket.
`replies` has what it may answer, `tools` has tools whose calls stay open, and `legacy_tasks` and `modern_tasks` make
tasks of its calls. `program` and `awkward_program` are servers over standard input and output, started by their paths.
"""

from pathlib import Path
from typing import Final

from helpers.server.http import Recorded, ScriptedServer
from helpers.server.replies import (
    Chapters,
    Hold,
    PacedProgress,
    Reply,
    Rounds,
    Turn,
    asks,
    breaks_off,
    elsewhere,
    error,
    event,
    in_turn,
    note,
    open_stream,
    progress_note,
    raw,
    redirect,
    resets,
    result,
    sends,
    server_request,
    status,
    stream,
    transport_of,
)
from helpers.server.tools import FORM, LastingCall, LastingTool, TalkingTool

PROGRAM: Final = str(Path(__file__).with_name("program.py"))
AWKWARD_PROGRAM: Final = str(Path(__file__).with_name("awkward_program.py"))

__all__ = [
    "AWKWARD_PROGRAM",
    "FORM",
    "PROGRAM",
    "Chapters",
    "Hold",
    "LastingCall",
    "LastingTool",
    "PacedProgress",
    "Recorded",
    "Reply",
    "Rounds",
    "ScriptedServer",
    "TalkingTool",
    "Turn",
    "asks",
    "breaks_off",
    "elsewhere",
    "error",
    "event",
    "in_turn",
    "note",
    "open_stream",
    "progress_note",
    "raw",
    "redirect",
    "resets",
    "result",
    "sends",
    "server_request",
    "status",
    "stream",
    "transport_of",
]
