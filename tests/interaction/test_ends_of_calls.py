"""What a relayed call leaves behind when it is over: nothing that only the collector of cycles could find."""

import gc

from helpers.mcp_host import McpHost
from taskgate.engine.relay import _CallHearer, _Pulse
from taskgate.upstream.calls import Call


async def test_a_call_that_is_over_is_gone_at_once(host: McpHost) -> None:
    kinds = {_Pulse, _CallHearer, Call}
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await host.call("echo")
        assert [type(each).__name__ for each in gc.get_objects() if type(each) in kinds] == []
    finally:
        gc.enable()
