"""What a relayed call leaves behind when it is over: nothing that only the collector of cycles could find."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host
from helpers.package_objects import counted, expect_no_growth, no_collections
from helpers.server import Reply, ScriptedServer, Turn, event, open_stream, result
from interaction.questions import ASKED, DONE, SAMPLE

CALLS = 6


async def test_a_call_that_is_over_is_gone_at_once(host: Host) -> None:
    for _ in range(CALLS):
        await host.call("echo")
    with no_collections():
        before = counted()
        for _ in range(CALLS):
            await host.call("echo")
        await expect_no_growth(before, CALLS)


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
    server: ScriptedServer, gateway: Gateway, capabilities: dict[str, Any], reply: Reply
) -> None:
    server.script["report"] = reply
    host = gateway.modern(capabilities=capabilities, tasks=False)
    for _ in range(CALLS):
        await host.call("report")
    with no_collections():
        before = counted()
        for _ in range(CALLS):
            await host.call("report")
        await expect_no_growth(before, CALLS)
