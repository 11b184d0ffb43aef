"""A released host that tells of its spans is followed through the gateway to the server.

The Python SDK writes `traceparent` into `_meta` of each request that it makes within a span (SEP-414), and into no
header of HTTP.
"""

import pytest
from example import environments

from helpers.otlp_collector import CLIENT, SERVER, OtlpCollector, Place, serve_traced
from helpers.server import ScriptedServer
from interop.peers import HOME, output_of, require_peers

pytestmark = pytest.mark.interop

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENVIRONMENT = "mcp-2.3.0"


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_span_of_a_host_is_the_parent_and_the_server_sees_ours(mode: str) -> None:
    require_peers(ENVIRONMENT)
    python, script = environments.python_of(ENVIRONMENT), HOME / "host_traced_python.py"
    async with OtlpCollector() as collector, ScriptedServer() as server:
        async with serve_traced(collector, {"reports": server.url}) as gateway:
            _, output, errors = await output_of([python, script, gateway.url(), mode, TRACE, SPAN, "echo"])
        assert output == "done\n", errors
        serving, calling = collector.only(SERVER, "tools/call echo"), collector.only(CLIENT, "tools/call echo")
        (called,) = server.heard("tools/call")
    assert (serving.parent, serving.state) == (Place(TRACE, SPAN), "vendor=a")
    assert (calling.parent, calling.place.trace) == (serving.place, TRACE)
    meta = called["params"]["_meta"]
    assert meta["traceparent"].split("-")[1:3] == [TRACE, calling.place.span]
    assert meta["tracestate"] == "vendor=a"
