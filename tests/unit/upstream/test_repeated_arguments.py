"""What headers of a host say of the arguments of its call, for a server whose era is found out."""

from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.server import ScriptedServer
from requirements import covers
from taskgate.protocol.messages import Params
from taskgate.upstream.calls import UpstreamCall


@covers("H-MOD-6")
@pytest.mark.parametrize("as_task", [True, False])
async def test_what_headers_say_of_arguments_is_for_servers_of_the_modern_era(
    plain: ScriptedServer, new_caller_of, as_task: bool
) -> None:
    heard = []
    async with ScriptedServer("modern") as modern:
        for server in (modern, plain):
            caller = new_caller_of(server.url, revision=None)
            call = UpstreamCall("tools/call", Params('{"name":"echo"}'), repeated={"zone": "b"})
            if as_task:
                call = replace(call, tool="echo", as_task=True, within=timedelta(seconds=10))
            await caller.session.call(call, caller.heard.of_calls)
            heard.append(server.requests[-1].headers.get("mcp-param-zone"))
    assert heard == ["b", None]
