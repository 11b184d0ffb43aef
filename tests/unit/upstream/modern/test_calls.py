"""What a session says to a server of the modern era, and what it hears of a call."""

import asyncio
import json

import pytest

from helpers.server import ScriptedServer, error, note, progress_note, result, status, stream
from requirements import covers
from taskgate.domain.versions import Era, Revision
from taskgate.protocol.messages import Params
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.modern.discovery import MOST_NAMED
from unit.upstream.houses import Guest
from unit.upstream.modern.asking import failure_of, value_of

META = "io.modelcontextprotocol/"


@covers("V-META-8", "H-MOD-1")
async def test_every_request_says_what_it_is_in_its_meta_and_in_its_headers(
    server: ScriptedServer, guest: Guest
) -> None:
    assert value_of(await guest.call("echo", '{"a":1}'))["structuredContent"] == {"a": 1}
    discover, listed, called = server.requests
    for request in (discover, listed, called):
        meta = request.message["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == request.headers["mcp-protocol-version"] == "2026-07-28"
        assert meta[f"{META}clientCapabilities"] == {"roots": {}, "sampling": {}, "elicitation": {"form": {}}}
        assert meta[f"{META}clientInfo"] == {"name": "taskgate", "version": "1.0"}
        assert request.headers["mcp-method"] == request.message["method"]
    assert [each.message["method"] for each in server.requests] == ["server/discover", "tools/list", "tools/call"]
    assert called.headers["mcp-name"] == "echo"
    assert server.faults == []


async def test_the_server_is_asked_once_who_it_is(server: ScriptedServer, guest: Guest) -> None:
    first, second = await asyncio.gather(guest.session.open(), guest.session.open())
    assert first is second
    assert first.peer.revision is Revision.R2026_07_28
    assert json.loads(first.instructions) == "Do as the script says."
    await guest.call()
    assert len(server.heard("server/discover")) == 1


async def test_a_session_tells_its_era(guest: Guest) -> None:
    assert guest.session.era is Era.MODERN


async def test_a_task_hears_how_far_its_call_is(server: ScriptedServer, guest: Guest) -> None:
    server.script["slow"] = stream({"content": []}, progress=2)
    await guest.run("slow")
    assert [each.params["progress"].value for each in guest.heard.of_calls.notifications] == [1, 2]
    assert guest.heard.streams == ["response opened", "response ended"]


async def test_progress_of_another_call_is_not_heard(server: ScriptedServer, guest: Guest) -> None:
    server.script["slow"] = stream(
        {"content": []}, before=[progress_note(4711, 1), note("notifications/message", level="info", data=1)]
    )
    await guest.run("slow")
    assert [each.method for each in guest.heard.of_calls.notifications] == ["notifications/message"]


async def test_the_place_for_a_hosts_token_has_our_id(server: ScriptedServer, guest: Guest) -> None:
    params = Params('{"name":"echo","_meta":{"progressToken":', ',"traceparent":"00-1"}}')
    response = await guest.session.call(UpstreamCall("tools/call", params, tool="echo"), guest.heard.of_calls)
    (sent,) = server.heard("tools/call")
    assert sent["params"]["_meta"]["progressToken"] == sent["id"] == response.id
    assert sent["params"]["_meta"]["traceparent"] == "00-1"


@covers("H-MOD-5")
async def test_arguments_that_a_tool_wants_repeated_are(server: ScriptedServer, guest: Guest) -> None:
    region = {"type": "string", "x-mcp-header": "Region"}
    server.tools = [{"name": "echo", "inputSchema": {"type": "object", "properties": {"region": region}}}]
    await guest.call("echo", '{"region":"süd"}')
    assert server.requests[-1].headers["mcp-param-region"] == "=?base64?c8O8ZA==?="
    assert server.faults == []


@covers("H-MOD-6", "H-MOD-7")
@pytest.mark.parametrize("as_task", [False, True])
async def test_what_a_host_repeated_goes_on_unless_the_tool_wants_it(
    server: ScriptedServer, guest: Guest, as_task: bool
) -> None:
    await guest.session.tools()
    region = {"type": "string", "x-mcp-header": "Region"}
    server.tools = [{"name": "echo", "inputSchema": {"type": "object", "properties": {"region": region}}}]
    params = Params('{"name":"echo","arguments":{"region":"south"}}')
    call = UpstreamCall("tools/call", params, "echo", repeated={"region": "north", "zone": "b"}, as_task=as_task)
    await guest.session.call(call, guest.heard.of_calls)
    sent = [each.headers for each in server.requests if each.headers["mcp-method"] == "tools/call"]
    # The catalogue was out of date: the server refused the first.
    assert [each["mcp-param-region"] for each in sent] == ["north", "south"]
    assert [each["mcp-param-zone"] for each in sent] == ["b", "b"]


@covers("H-MOD-5")
async def test_a_tool_with_unsound_annotations_is_not_in_the_catalogue(
    server: ScriptedServer, guest: Guest, caplog
) -> None:
    server.tools.append(
        {"name": "odd", "inputSchema": {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}}
    )
    assert set(await guest.session.tools()) == {"echo"}
    assert (bool(guest.session.listed("echo")), guest.session.listed("odd")) == (True, None)
    assert [(record.levelname, record.tool) for record in caplog.records] == [("WARNING", "odd")]


async def test_what_a_host_was_told_is_known_and_not_read_again(server: ScriptedServer, guest: Guest) -> None:
    """A task that comes after the list then needs no server to be made."""
    odd = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
    server.tools.append({"name": "odd", "inputSchema": odd})
    told = await guest.session.call(UpstreamCall("tools/list"), guest.heard.of_calls)
    assert [tool["name"] for tool in value_of(told)["tools"]] == ["echo"]
    assert (bool(guest.session.listed("echo")), guest.session.listed("odd")) == (True, None)
    assert set(await guest.session.tools()) == {"echo"}
    assert len(server.heard("tools/list")) == 1


async def test_only_pages_of_tools_are_looked_through(server: ScriptedServer, guest: Guest) -> None:
    odd = {"name": "odd", "inputSchema": {"properties": {"n": {"type": "number", "x-mcp-header": "N"}}}}
    server.script["echo"] = result({"content": [], "tools": [odd]})
    assert value_of(await guest.call())["tools"] == [odd]


async def test_a_log_is_not_filled_with_the_tools_of_a_mad_server(server: ScriptedServer, guest: Guest, caplog) -> None:
    odd = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
    server.tools = [{"name": f"odd-{turn}", "inputSchema": odd} for turn in range(100)]
    assert await guest.session.tools() == {}
    assert len(caplog.records) == MOST_NAMED


@covers("H-MOD-7")
async def test_a_refused_header_has_the_catalogue_read_anew_and_the_call_made_once_more(
    server: ScriptedServer, guest: Guest
) -> None:
    await guest.session.tools()
    region = {"type": "string", "x-mcp-header": "Region"}
    server.tools = [{"name": "echo", "inputSchema": {"type": "object", "properties": {"region": region}}}]
    assert (await guest.call("echo", '{"region":"south"}')).error is None
    assert len(server.heard("tools/list")) == 2
    assert [
        each.headers.get("mcp-param-region") for each in server.requests if each.headers["mcp-method"] == "tools/call"
    ] == [None, "south"]


@covers("H-MOD-7")
async def test_a_header_that_is_refused_for_nothing_that_changed_is_the_hosts_to_hear(
    server: ScriptedServer, guest: Guest
) -> None:
    server.script["echo"] = error(-32020, "no", status=400)
    assert (await guest.call()).error.value["code"] == -32020
    assert len(server.heard("tools/call")) == 1


async def test_a_call_goes_without_repeated_arguments_where_the_catalogue_cannot_be_had(
    server: ScriptedServer, guest: Guest
) -> None:
    server.methods["tools/list"] = status(500)
    assert (await guest.call()).error is None
    assert await failure_of(guest.session.tools()) == ("refused", False)


async def test_a_level_that_a_request_wants_goes_with_it_alone(server: ScriptedServer, guest: Guest) -> None:
    await guest.call(log_level="warning")
    await guest.call()
    levels = [each["params"]["_meta"].get(f"{META}logLevel") for each in server.heard("tools/call")]
    assert levels == ["warning", None]
