"""What a relayed call leaves behind when it is over: nothing that only the collector of cycles could find."""

import gc
from typing import Any

import pytest

from helpers.mcp_host import McpHost
from helpers.scripted_upstream import Reply, ScriptedServer, Turn, event, open_stream, result
from helpers.whole_gateway import WholeGateway
from interaction.questioning import ASKED, DONE, SAMPLE
from taskgate.gateway.modern.flights import InflightCall
from taskgate.gateway.modern.hearing import RequestListener
from taskgate.gateway.modern.outbound_calls import OutboundCall
from taskgate.gateway.relay import _CallHearer
from taskgate.streams.keepalive import Keepalive
from taskgate.upstream.calls import Call


async def test_a_call_that_is_over_is_gone_at_once(host: McpHost) -> None:
    kinds = {Keepalive, _CallHearer, Call}
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await host.call("echo")
        assert [type(each).__name__ for each in gc.get_objects() if type(each) in kinds] == []
    finally:
        gc.enable()


async def fails_for_want_of_a_model(turn: Turn) -> Any:
    """Ask what the host did not declare, and fail for that."""
    response = await open_stream(turn.request)
    await response.write(event({"jsonrpc": "2.0", "id": "q", "method": SAMPLE, "params": ASKED}))
    await response.write(event(turn.answer({"content": [], "isError": True})))
    await response.write_eof()
    return response


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["waited for", "in flight"])
@pytest.mark.parametrize("reply", [result(DONE), fails_for_want_of_a_model], ids=["answered", "refused"])
async def test_a_call_of_the_modern_era_that_is_over_is_gone_at_once(
    server: ScriptedServer, gateway: WholeGateway, capabilities: dict[str, Any], reply: Reply
) -> None:
    server.script["report"] = reply
    host = gateway.modern(capabilities=capabilities, tasks=False)
    kinds = {Keepalive, RequestListener, InflightCall, OutboundCall, Call}
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await host.call("report")
        assert [type(each).__name__ for each in gc.get_objects() if type(each) in kinds] == []
    finally:
        gc.enable()
