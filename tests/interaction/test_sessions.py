"""Opening, finding and ending sessions of hosts, and the sessions at servers behind them."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import (
    Hold,
    Reply,
    ScriptedServer,
    Turn,
    error,
    note,
    progress_note,
    raw,
    result,
    server_request,
    status,
)
from helpers.virtual_time import pass_time
from helpers.waiting import eventually
from requirements import covers

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@covers("V-INIT-1", "V-INIT-3")
@pytest.mark.parametrize("asked", REVISIONS)
@pytest.mark.parametrize("spoken", REVISIONS)
async def test_a_host_gets_its_revision_whatever_the_server_speaks(asked: str, spoken: str) -> None:
    async with ScriptedServer(revision=spoken) as server, serve(configuration({"reports": server.url})) as gateway:
        host = gateway.host()
        welcome = await host.initialize(asked)
        assert welcome["protocolVersion"] == asked
        assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    offered = server.heard("initialize")[0]["params"]["protocolVersion"]
    assert offered == "2025-11-25"


@covers("V-INIT-1", "T-10")
@pytest.mark.parametrize("asked", ["2026-07-28", "1999-01-01", "newest"])
async def test_a_revision_without_a_handshake_is_answered_with_the_newest_that_has_one(
    gateway: Gateway, asked: str
) -> None:
    assert (await gateway.host().initialize(asked))["protocolVersion"] == "2025-11-25"


@covers("V-INIT-4", "L-CAP-1", "L-CAP-2")
@pytest.mark.parametrize("asked", REVISIONS)
async def test_tasks_are_declared_to_the_newest_revision_alone(gateway: Gateway, asked: str) -> None:
    declared = (await gateway.host().initialize(asked))["capabilities"].get("tasks")
    assert declared == ({"cancel": {}, "requests": {"tools": {"call": {}}}} if asked == "2025-11-25" else None)


@covers("V-INIT-4")
async def test_tasks_are_not_declared_where_no_call_can_become_one(server: ScriptedServer) -> None:
    rules = {"upgrade": [{"tool": "*", "mode": "sync"}]}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = gateway.host()
        assert "tasks" not in (await host.initialize())["capabilities"]
        assert (await host.ask("tasks/get", {"taskId": "a" * 32})).code == -32601


@covers("V-INIT-2", "V-INIT-5")
async def test_a_host_that_is_not_yet_initialized_is_answered_and_told_nothing_else(gateway: Gateway) -> None:
    host = gateway.host()
    answer = await host.ask(
        "initialize",
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}},
    )
    host.session = answer.headers["Mcp-Session-Id"]
    pong = await host.ask("ping")
    assert (answer.notices, pong.notices, pong.result) == ((), (), {})


async def test_the_host_sees_the_servers_name_and_instructions(gateway: Gateway) -> None:
    welcome = await gateway.host().initialize()
    assert welcome["serverInfo"] == {"name": "scripted", "version": "1"}
    assert welcome["instructions"] == "Do as the script says."


@covers("H-LEG-1")
async def test_a_session_id_is_long_visible_and_another_each_time(gateway: Gateway) -> None:
    ids = {(await gateway.greeted()).session or "" for _ in range(5)}
    assert len(ids) == 5
    assert all(len(id) == 32 and id.isascii() and id.isprintable() and " " not in id for id in ids)


@covers("H-LEG-2")
async def test_a_message_without_a_session_gets_400_and_its_id(gateway: Gateway) -> None:
    answer = await gateway.host().ask("tools/list", id="mine")
    assert (answer.status, answer.code) == (400, -32600)
    assert answer.message is not None
    assert answer.message["id"] == "mine"


@covers("H-LEG-3")
@pytest.mark.parametrize("id", ["unknown", "a" * 32, "a" * 5000, "ä".encode().decode("latin-1")])
async def test_an_unknown_session_gets_404(gateway: Gateway, id: str) -> None:
    host = gateway.host()
    host.session = id
    assert (await host.ask("ping")).status == 404
    assert await host.leave() == 404


@covers("H-LEG-3", "H-LEG-5")
async def test_a_session_that_was_deleted_is_unknown_here_and_at_the_server(server: ScriptedServer, host: Host) -> None:
    assert await host.leave() == 200
    assert (await host.ask("ping")).status == 404
    await eventually(lambda: len(server.verbs("DELETE")) == 1)
    assert server.live == set()


@covers("I-ISO-6")
async def test_a_session_of_one_mount_is_unknown_at_another(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url, "other": server.url})) as gateway:
        host = await gateway.greeted(mount="reports")
        stranger = gateway.host("other")
        stranger.session = host.session
        assert (await stranger.ask("ping")).status == 404
        assert (await host.ask("ping")).status == 200


@covers("H-LEG-6")
@pytest.mark.parametrize("named", ["2026-07-28", "1999-01-01", "x", ""])
async def test_a_revision_header_that_no_session_has_gets_400(host: Host, named: str) -> None:
    # V-ERA-1: it makes the message one of the modern era, which has to say more.
    answer = await host.ask("ping", headers={"MCP-Protocol-Version": named})
    assert (answer.status, answer.code) == (400, -32602)
    assert ("protocol version" in answer.error["message"]) is (named != "2026-07-28")
    assert "_meta" in answer.error["message"]


@covers("H-LEG-6")
@pytest.mark.parametrize("named", ["1999-01-01", "x", ""])
async def test_a_goodbye_under_a_revision_that_is_not_known_gets_400_and_ends_nothing(host: Host, named: str) -> None:
    host.revision = named
    assert await host.leave() == 400
    host.revision = "2025-11-25"
    assert (await host.ask("ping")).result == {}


@covers("H-LEG-6", "V-INIT-3")
async def test_a_revision_header_of_another_session_changes_nothing(host: Host) -> None:
    headers = {"MCP-Protocol-Version": "2025-03-26"}
    assert (await host.ask("ping", headers=headers)).result == {}
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","task":{}}}'
    assert "task" in (await host.post(body, headers=headers)).result


async def test_the_revision_header_may_be_left_out(host: Host) -> None:
    host.revision = None
    assert (await host.ask("ping")).result == {}


async def not_found_now(turn: Turn) -> Any:
    """Answer with 404 and words that name the request."""
    return await status(404, f"Session not found (request {turn.id})".encode())(turn)


FORGOTTEN: dict[str, Reply | None] = {
    "404": None,
    "404 in JSON": error(-32600, "Session not found", status=404),
    "404 without an id": error(-32600, "Session not found", status=404, names_request=False),
    "404 in words": status(404, b"Session not found"),
    "404 in words that differ": not_found_now,
    "400": error(-32000, "Bad Request: No valid session ID provided", status=400, names_request=False),
    "400 in words": status(400, b"Invalid or missing session ID"),
    "401": error(-32001, "Unauthorized: invalid session ID", status=401, names_request=False),
    "403": status(403),
    "410": status(410),
    "422": status(422, b"Unexpected message, expect initialize request"),
    "an error": error(-32000, "Session not found or expired"),
    "an error of a handshake": error(-32002, "Server not initialized"),
    "an error without an id": error(-32000, "Bad Request: No valid session ID provided", names_request=False),
    "409 without an id": error(-32000, "No valid session ID provided", status=409, names_request=False),
    "500 without an id": error(-32000, "No valid session ID provided", status=500, names_request=False),
    "503 in JSON": error(-32000, "Unknown session", status=503),
}
"""How servers refuse a session that they do not know."""


@covers("H-LEG-4")
@pytest.mark.parametrize("refusal", FORGOTTEN.values(), ids=FORGOTTEN)
async def test_a_call_in_a_session_that_its_server_forgot_goes_on_in_a_new_one(
    server: ScriptedServer, gateway: Gateway, host: Host, refusal: Reply | None
) -> None:
    server.unknown_session = refusal
    await host.call("echo")
    server.forget_sessions()
    assert (await host.call("echo", {"n": 1})).result["structuredContent"] == {"n": 1}
    assert (await host.call("echo", {"n": 2})).result["structuredContent"] == {"n": 2}
    assert len(server.heard("initialize")) == 2
    assert await gateway.count("taskgate_upstream_sessions_lost_total") == 1


STATUSES = ["400", "400 in words", "401", "403", "410", "422"]


@covers("H-LEG-4")
@pytest.mark.parametrize("refusal", ["404", "404 in JSON", "404 without an id", "404 in words that differ", *STATUSES])
async def test_a_session_is_replaced_after_its_server_forgot_two_in_the_course_of_one_call(
    server: ScriptedServer, host: Host, refusal: str
) -> None:
    server.unknown_session = FORGOTTEN[refusal] or status(404, b"")

    async def forget(turn: Turn) -> Any:
        server.forget_sessions()
        del server.methods["tools/call"]
        return await server.unknown_session(turn)

    await host.call("echo")
    server.forget_sessions()
    server.methods["tools/call"] = forget
    assert (await host.call("echo", {"n": 1})).error["data"]["dispatched"] is False
    if not refusal.startswith("404"):
        # The server may refuse all that this caller asks.
        await pass_time(10)
    assert (await host.call("echo", {"n": 2})).result["structuredContent"] == {"n": 2}
    assert (await host.call("echo", {"n": 3})).result["structuredContent"] == {"n": 3}
    assert len(server.heard("initialize")) == 3


async def test_a_host_is_told_that_lists_may_have_changed_once_a_lost_session_is_replaced(
    server: ScriptedServer, gateway: Gateway
) -> None:
    """Its server may have been deployed anew with other tools. Without a gateway the host would list again."""
    server.capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {}}
    host = await gateway.greeted()
    async with host.listen() as heard:
        await host.call("echo")
        server.forget_sessions()
        await host.call("echo")
        await heard.until("notifications/prompts/list_changed")
    told = [each["method"] for each in heard.heard]
    assert told == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]


async def test_a_server_that_refuses_every_session_is_not_asked_in_a_circle(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    await host.call("echo")
    server.methods["tools/call"] = server.methods["ping"] = status(404)
    lost = await host.call("echo", {"n": 1})
    assert lost.error["data"] == {"origin": "upstream", "reason": "session_lost", "dispatched": False}
    assert len(server.heard("initialize")) == 2
    assert [message["params"]["arguments"] for message in server.heard("tools/call")].count({"n": 1}) == 2


@pytest.mark.parametrize("refusal", [status(401), status(403), error(-32000, "No such session of the tool")])
async def test_a_refusal_of_one_tool_in_a_session_that_lives_is_its_answer(
    server: ScriptedServer, host: Host, refusal: Reply
) -> None:
    server.script["report"] = refusal
    await host.call("echo")
    assert (await host.call("report")).message["error"]
    assert len(server.heard("initialize")) == 1
    assert len([each for each in server.heard("tools/call") if each["params"]["name"] == "report"]) == 1


async def test_a_call_that_runs_is_answered_though_the_session_seems_lost_to_another_call(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    await host.call("echo")
    server.script |= {"slow": (hold := Hold()), "report": status(403)}
    slow = asyncio.create_task(host.call("slow"))
    await hold.begun.wait()
    server.methods["ping"] = status(403)
    assert (await host.call("report")).message["error"]
    assert await gateway.count("taskgate_upstream_sessions_lost_total") == 1
    hold.release({"content": []})
    assert (await slow).result["content"] == []


def late_error(code: int, message: str, before: dict[str, Any] | None = None) -> Reply:
    """Answer with an error after another message: by default a notification of progress."""

    async def reply(turn: Turn) -> Any:
        failed = {"jsonrpc": "2.0", "id": turn.id, "error": {"code": code, "message": message}}
        await turn.send(before or progress_note(turn.token, 1), failed)
        return await turn.end()

    return reply


RAN: dict[str, tuple[Reply, Reply]] = {
    "an error of the tool, and a ping that gets 404": (
        error(-32603, "Session terminated by the payment provider"),
        status(404),
    ),
    "an error of the tool, and a ping that gets another": (
        error(-32603, "CUDA initialization error"),
        error(-32002, "Server not initialized"),
    ),
    "the same error, after progress": (late_error(-32000, "No such session"), error(-32000, "No such session")),
    "the same error, after a line of its log": (
        late_error(-32000, "No such session", note("notifications/message", level="info", data="begun")),
        error(-32000, "No such session"),
    ),
    "the same error, after a question": (
        late_error(-32000, "No such session", server_request("q-1", "roots/list")),
        error(-32000, "No such session"),
    ),
    "a refusal, and a ping that gets another": (status(403), status(401)),
    "a refusal, and a ping that gets other words": (status(422, b"no year"), status(422, b"no such method")),
    "404 in words, and a usual ping": (status(404, b"no report 7"), result({})),
    "404 without a body, and a usual ping": (status(404), result({})),
    "404 with an error, and a usual ping": (error(-32600, "no report 7", status=404), result({})),
    "404 in JSON, and a usual ping": (raw(b'{"detail":"no report 7"}', status=404), result({})),
    "404 in JSON, and a ping that is no method there": (
        raw(b'{"detail":"no report 7"}', status=404),
        error(-32601, "Method not found", status=404),
    ),
    "a refusal, and a ping that gets 404": (status(401), status(404)),
}
"""What a call that may have run gets, and what a ping in its session gets then."""


@pytest.mark.parametrize(("refusal", "of_ping"), RAN.values(), ids=RAN)
async def test_a_call_that_may_have_run_is_not_sent_again_whatever_a_ping_gets(
    server: ScriptedServer, host: Host, refusal: Reply, of_ping: Reply
) -> None:
    await host.call("echo")
    server.script["report"], server.methods["ping"] = refusal, of_ping
    assert (await host.call("report", meta={"progressToken": "p"})).message["error"]
    assert len([each for each in server.heard("tools/call") if each["params"]["name"] == "report"]) == 1


async def test_a_server_without_ping_keeps_its_session_whatever_a_tool_is_refused_with(
    server: ScriptedServer, host: Host
) -> None:
    server.methods["ping"] = error(-32601, "Method not found", status=404)
    server.script["report"] = status(422)
    await host.call("echo")
    for _ in range(3):
        assert (await host.call("report")).error["data"]["httpStatus"] == 422
    assert len(server.heard("initialize")) == 1
    assert "DELETE" not in [each.verb for each in server.requests]


@pytest.mark.parametrize("code", [400, 401, 404, 422])
async def test_a_tool_that_is_answered_as_a_lost_session_is_keeps_no_other_call_from_a_new_one(
    server: ScriptedServer, host: Host, code: int
) -> None:
    server.unknown_session = server.script["report"] = status(code)
    await host.call("echo")
    for n in range(3):
        server.forget_sessions()
        calls = [host.call("report"), *(host.call("echo", {"n": each}) for each in range(n * 10, n * 10 + 5))]
        bad, *good = await asyncio.gather(*calls)
        assert bad.error["data"]["httpStatus"] == code
        assert [each.result["structuredContent"]["n"] for each in good] == list(range(n * 10, n * 10 + 5))


@pytest.mark.parametrize("refusal", ["404", "404 without an id", "400", "401"])
async def test_a_session_that_is_lost_before_its_handshake_ends_is_opened_once_more(
    server: ScriptedServer, gateway: Gateway, refusal: str
) -> None:
    server.unknown_session = FORGOTTEN[refusal] or status(404, b"")

    async def forget(turn: Turn) -> Any:
        welcome = await server.usual(turn)
        server.forget_sessions()
        del server.methods["initialize"]
        return welcome

    host = await gateway.greeted()
    for _ in range(2):
        server.forget_sessions()
        server.methods["initialize"] = forget
        answers = await asyncio.gather(*(host.call("echo", {"n": n}) for n in range(5)))
        assert [answer.result["structuredContent"]["n"] for answer in answers] == list(range(5))
        server.methods["initialize"] = forget
        await gateway.greeted()


async def test_a_session_in_which_a_call_for_a_task_was_refused_is_ended_at_the_server(
    server: ScriptedServer, host: Host
) -> None:
    server.capabilities = {"tasks": {"requests": {"tools": {"call": {}}}}}
    server.tools = [{"name": "echo", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}]
    await host.call("echo")
    server.methods["tools/call"] = server.methods["ping"] = status(403)
    task = await host.start("echo")
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).message["error"]
    await eventually(lambda: [each.verb for each in server.requests].count("DELETE") == 1)


async def test_a_server_that_refuses_all_that_a_caller_asks_opens_no_session_for_each_refusal(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    await host.call("echo")
    server.methods["tools/call"] = server.methods["ping"] = status(401)
    for _ in range(5):
        assert (await host.call("echo")).message["error"]
    assert len(server.heard("initialize")) == 2
    # The first session may be known after all, so it is ended at the server.
    await eventually(lambda: [each.verb for each in server.requests].count("DELETE") == 1)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(error(-32000, "no"), "refused", id="error"),
        pytest.param(status(500), "refused", id="500"),
        pytest.param(status(401), "refused", id="401"),
    ],
)
async def test_a_server_that_opens_no_session_makes_initialize_fail(
    server: ScriptedServer, gateway: Gateway, reply: object, reason: str
) -> None:
    server.methods["initialize"] = reply  # type: ignore[assignment]
    answer = await gateway.host().ask(
        "initialize",
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}},
    )
    assert (answer.status, answer.code) == (200, -32603)
    assert answer.error["data"]["reason"] == reason
    assert "Mcp-Session-Id" not in answer.headers
