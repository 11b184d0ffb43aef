"""What headers of a host say of the arguments of its call, for a server whose era is found out."""

from datetime import timedelta

import pytest

from helpers.modern_server import ModernServer
from helpers.scripted_upstream import ScriptedServer
from requirements import covers
from taskgate.protocol.messages import Params


@covers("H-MOD-6")
@pytest.mark.parametrize("way", ["run", "relay"])
async def test_what_headers_say_of_arguments_is_for_servers_of_the_modern_era(
    plain: ScriptedServer, new_caller_of, way: str
) -> None:
    heard = []
    async with ModernServer() as modern:
        for server in (modern, plain):
            caller = new_caller_of(server.url, revision=None)
            more = {"listener": caller.heard.of_calls, "repeated": {"zone": "b"}}
            if way == "run":
                await caller.session.run("echo", '{"name":"echo"}', within=timedelta(seconds=10), **more)
            else:
                await caller.session.relay("tools/call", Params('{"name":"echo"}'), **more)
            heard.append(server.requests[-1].headers.get("mcp-param-zone"))
    assert heard == ["b", None]
