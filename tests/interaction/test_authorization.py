"""What a caller may do is what the operator's rules say of its token, whatever it asks and however often."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, Turn, raw, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from requirements import covers

Opens = Callable[..., AbstractAsyncContextManager[Gateway]]
WRITING = {"tool": "write_*", "require_scopes": ["reports.write", "reports.read"]}
READING = {"methods": ["tools/call"], "require_scopes": ["reports.read"]}


def policy(method: str = "tools/call", tool: str | None = "report") -> dict[str, Any]:
    """The refusal of that operation by a rule."""
    of = "" if tool is None else f' of "{tool}"'
    text = f"The operator's access rules do not allow {method}{of}"
    return {"code": 403, "message": text, "data": {"origin": "gateway", "reason": "policy"}}


@pytest.fixture
def opens(server: ScriptedServer, issuer: TokenIssuer) -> Opens:
    """A gateway with rules, in front of a server with tools to read and to write."""
    server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write_all", "write_one")]

    @asynccontextmanager
    async def opened(*rules: dict[str, Any], **section: Any) -> Any:
        config = guarded({"reports": server.url}, issuer, authorization={"rules": list(rules), **section})
        async with serve(config) as gateway:
            yield gateway

    return opened


@pytest.fixture
def come(issuer: TokenIssuer) -> Callable[..., Any]:
    """A host with an open session and a token with these scopes and claims."""

    async def came(gateway: Gateway, scope: str = "", **claims: Any) -> Host:
        return await gateway.greeted(token=issuer.token(gateway.url(), scope, **claims))

    return came


def insufficient(gateway: Gateway, answer: Answer, scopes: str) -> None:
    """The answer says that these scopes are needed, all at once, and belongs to its request."""
    origin = gateway.url().removesuffix("/reports/mcp")
    document = f"{origin}/.well-known/oauth-protected-resource/reports/mcp"
    assert answer.status == 403
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer error="insufficient_scope", scope="{scopes}", resource_metadata="{document}"'
    )
    assert answer.message == {
        "jsonrpc": "2.0",
        "id": answer.message and answer.message["id"],
        "error": {
            "code": 403,
            "message": f"This needs a token with the scopes {scopes}",
            "data": {"origin": "gateway", "reason": "insufficient_scope"},
        },
    }
    assert not answer.streamed


async def refusals(gateway: Gateway) -> dict[Any, float]:
    """How often rules refused, by mount, method, and whether that was in earnest."""
    return await gateway.counts("taskgate_access_refusals_total", "upstream", "mcp_method_name", "mode")


# --- calls ---------------------------------------------------------------------------------------------------------


@covers("A-AUTH-6", "A-AUTH-7", "A-AUTH-10")
@pytest.mark.parametrize("as_task", [False, True])
async def test_too_few_scopes_are_403_that_names_them_all_and_the_server_hears_nothing(
    server: ScriptedServer, opens: Opens, come: Any, as_task: bool
) -> None:
    async with opens(WRITING) as gateway:
        host = await come(gateway, "reports.read")
        params = {"name": "write_all", "arguments": {}, **({"task": {}} if as_task else {})}
        answer = await host.ask("tools/call", params, id="mine")
        insufficient(gateway, answer, "reports.read reports.write")
        assert answer.message is not None
        assert answer.message["id"] == "mine"
        assert (await host.call("read", {"a": 1})).result["structuredContent"] == {"a": 1}
        assert await refusals(gateway) == {("reports", "tools/call", "enforced"): 1}
        # It was a call of a tool all the same.
        dispositions = await gateway.counts("taskgate_tool_calls_total", "disposition")
        assert dispositions == {"rejected": 1, "direct": 1}
        assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"insufficient_scope": 1}
    assert [call["params"]["name"] for call in server.heard("tools/call")] == ["read"]


@pytest.mark.parametrize("default", ["allow", "deny"])
async def test_what_no_scope_would_help_is_refused_inside_json_rpc(
    server: ScriptedServer, opens: Opens, come: Any, default: str
) -> None:
    rules: list[dict[str, Any]] = [{"tool": "write_*", "effect": "deny"}]
    if default == "deny":
        rules = [{"methods": ["initialize"]}, {"tool": "read"}]
    async with opens(*rules, default=default) as gateway:
        host = await come(gateway)
        answer = await host.call("write_one")
        assert (answer.status, answer.error) == (200, policy(tool="write_one"))
        assert "WWW-Authenticate" not in answer.headers
        assert (await host.call("read")).status == 200
        assert await gateway.count("taskgate_http_rejections_total") == 0
    assert [call["params"]["name"] for call in server.heard("tools/call")] == ["read"]


async def test_no_tool_that_a_caller_may_not_call_is_named_to_it(opens: Opens, come: Any) -> None:
    async with opens({"tool": "write_one", "effect": "deny"}) as gateway:
        host = await come(gateway)
        assert "write_one" not in (await host.call("write_ome", task={})).error["message"].partition(": ")[2]


@covers("A-AUTH-8")
async def test_a_broader_scope_stands_for_those_that_it_implies(opens: Opens, come: Any) -> None:
    implied = {"all": ["reports.write"], "reports.write": ["reports.read"]}
    async with opens(WRITING, READING, scope_implies=implied) as gateway:
        assert (await (await come(gateway, "all")).call("write_all")).status == 200
        insufficient(
            gateway, await (await come(gateway, "reports.read")).call("write_all"), "reports.read reports.write"
        )


async def test_a_claim_decides_by_its_value_or_by_one_of_its_list(opens: Opens, come: Any) -> None:
    rules = {"tool": "write_*", "claims": {"groups": ["staff", "root"]}}, {"tool": "write_*", "effect": "deny"}
    async with opens(*rules) as gateway:
        for groups, code in (
            ("staff", None),
            (["guests", "root"], None),
            ("guests", 403),
            (["Staff"], 403),
            (..., 403),
        ):
            answer = await (await come(gateway, groups=groups)).call("write_one")
            assert (answer.message or {}).get("error", {}).get("code") == code


async def test_a_rule_in_shadow_is_counted_and_refuses_nothing(opens: Opens, come: Any) -> None:
    async with opens({**WRITING, "shadow": True}, {"tool": "write_one", "effect": "deny", "shadow": True}) as gateway:
        host = await come(gateway)
        assert (await host.call("write_one", {"a": 1})).result["structuredContent"] == {"a": 1}
        assert [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]][-1] == "write_one"
        assert await refusals(gateway) == {("reports", "tools/call", "shadow"): 2}


async def test_a_rule_is_for_its_mount(server: ScriptedServer, issuer: TokenIssuer) -> None:
    rules = {"rules": [{"upstream": "books", "methods": ["tools/call"], "effect": "deny"}]}
    config = guarded({"reports": server.url, "books": server.url}, issuer, authorization=rules)
    async with serve(config) as gateway:
        for mount, code in (("reports", None), ("books", 403)):
            host = await gateway.greeted(mount=mount, token=issuer.token(gateway.url(mount)))
            assert ((await host.call("echo")).message or {}).get("error", {}).get("code") == code


async def test_without_authentication_rules_decide_too_for_everybody_alike(server: ScriptedServer) -> None:
    rules = {"rules": [{"tool": "report", "effect": "deny"}]}
    async with serve(configuration({"reports": server.url}, authorization=rules)) as gateway:
        host = await gateway.greeted()
        assert (await host.call("report")).error == policy()
        assert (await host.call("report", task={})).error == policy()
        assert [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]] == ["echo", "broken"]


# --- the other methods ---------------------------------------------------------------------------------------------


async def test_under_default_deny_a_host_may_open_a_session_and_ping_but_do_nothing_that_no_rule_names(
    opens: Opens, issuer: TokenIssuer
) -> None:
    async with opens({"tool": "read"}, default="deny") as gateway:
        host = gateway.host(token=issuer.token(gateway.url()))
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
        answer = await host.ask("initialize", hello)
        assert answer.result["serverInfo"]
        host.session = answer.headers["Mcp-Session-Id"]
        assert (await host.ask("ping")).result == {}
        assert (await host.ask("tools/list")).error == policy("tools/list", None)


async def test_under_default_deny_each_method_is_judged_by_its_name(opens: Opens, come: Any) -> None:
    async with opens({"methods": ["tools/list"]}, default="deny") as gateway:
        host = await come(gateway)
        for method in ("prompts/list", "tasks/list", "logging/setLevel"):
            assert (await host.ask(method)).error == policy(method, None)
        assert (await host.ask("tools/list")).result["tools"] == []
        assert (await host.tell("notifications/initialized")).status == 202


async def test_an_unknown_method_is_unknown_before_any_rule_is_asked(opens: Opens, come: Any) -> None:
    async with opens({"methods": ["initialize"]}, default="deny") as gateway:
        assert (await (await come(gateway)).ask("nonsense")).code == -32601
        assert await refusals(gateway) == {}


# --- tasks ---------------------------------------------------------------------------------------------------------


@covers("A-AUTH-12")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_a_task_is_judged_by_the_tool_that_it_runs_and_by_the_token_of_now(
    server: ScriptedServer, opens: Opens, come: Any, issuer: TokenIssuer, method: str
) -> None:
    server.script["write_all"] = hold = Hold()
    async with opens(WRITING) as gateway:
        host = await come(gateway, "reports.read reports.write")
        task = await host.start("write_all")
        async with bounded():
            await hold.begun.wait()
        powerful, host.token = host.token, issuer.token(gateway.url(), "reports.read")
        insufficient(gateway, await host.ask(method, {"taskId": task["taskId"]}), "reports.read reports.write")
        host.token = powerful
        assert (await host.task(task["taskId"]))["status"] == "working"
        hold.release({"content": []})
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == []
        host.token = issuer.token(gateway.url(), "reports.read")
        insufficient(gateway, await host.ask(method, {"taskId": task["taskId"]}), "reports.read reports.write")


async def test_a_denied_task_is_refused_inside_json_rpc_and_a_strangers_is_unknown(
    opens: Opens, come: Any, issuer: TokenIssuer
) -> None:
    staff = {"tool": "write_*", "claims": {"groups": ["staff"]}}
    async with opens(staff, {"tool": "write_*", "effect": "deny"}) as gateway:
        host = await come(gateway, groups="staff")
        task = await host.start("write_all")
        host.token = issuer.token(gateway.url())
        assert (await host.ask("tasks/get", {"taskId": task["taskId"]})).error == policy("tasks/get", "write_all")
        stranger = await come(gateway, subject="bob")
        foreign = await stranger.ask("tasks/get", {"taskId": task["taskId"]})
        unknown = await stranger.ask("tasks/get", {"taskId": "A" * 32})
        assert foreign.error == unknown.error == {"code": -32602, "message": "Task not found"}
        assert foreign.status == unknown.status == 200


@covers("L-LIST-3", "A-AUTH-12")
async def test_a_list_of_tasks_leaves_out_what_a_look_at_each_would_refuse(
    opens: Opens, come: Any, issuer: TokenIssuer
) -> None:
    async with opens(WRITING) as gateway:
        host = await come(gateway, "reports.read reports.write")
        tasks = {name: (await host.start(name))["taskId"] for name in ("read", "write_all", "write_one")}
        assert {task["taskId"] for task in (await host.ask("tasks/list")).result["tasks"]} == set(tasks.values())
        host.token = issuer.token(gateway.url(), "reports.read")
        assert [task["taskId"] for task in (await host.ask("tasks/list")).result["tasks"]] == [tasks["read"]]
        assert await refusals(gateway) == {}


# --- lists of tools ------------------------------------------------------------------------------------------------


async def names(host: Host, **params: Any) -> list[str]:
    return [tool["name"] for tool in (await host.ask("tools/list", params)).result["tools"]]


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-03-26"])
async def test_a_list_of_tools_leaves_out_what_a_call_would_be_refused(
    opens: Opens, issuer: TokenIssuer, revision: str
) -> None:
    async with opens(WRITING, {"tool": "write_one", "effect": "deny"}) as gateway:
        host = await gateway.greeted(revision, token=issuer.token(gateway.url(), "reports.read"))
        assert await names(host) == ["read"]
        host.token = issuer.token(gateway.url(), "reports.read reports.write")
        assert await names(host) == ["read", "write_all", "write_one"]
        host.token = issuer.token(gateway.url(), "reports.read")
        assert await names(host) == ["read"]


async def test_pages_of_tools_stay_pages_though_one_is_empty(server: ScriptedServer, opens: Opens, come: Any) -> None:
    server.page_size = 1
    server.tools.append({"name": "last", "inputSchema": {"type": "object"}})
    async with opens(WRITING) as gateway:
        host: Host = await come(gateway)
        pages: list[list[str]] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await host.ask("tools/list", cursor)).result
            pages.append([tool["name"] for tool in page["tools"]])
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
    assert pages == [["read"], [], [], ["last"]]


async def test_tools_that_nobody_can_judge_are_shown_to_nobody_with_rules(
    server: ScriptedServer, opens: Opens, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is no tool has no schema to be held against.
    monkeypatch.setattr("helpers.schema.available", lambda: False)
    page = (
        b'{"jsonrpc":"2.0","id":@,"result":{"tools":[7,{"title":"x"},{"name":8},{"name":"write_one"},{"name":"read"}]}}'
    )

    async def odd(turn: Any) -> Any:
        return await raw(page.replace(b"@", str(turn.id).encode()))(turn)

    async with opens(WRITING) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        server.methods["tools/list"] = odd
        assert [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]] == ["read"]


# --- tools that are not listed -------------------------------------------------------------------------------------

DROPS = {"tool": "write_all", "effect": "deny"}
SPELLINGS = ["write_all ", " write_all", "Write_All", "write_all\n", "\uff57rite_all", "write_all\u00ad"]


def lenient(server: ScriptedServer) -> list[str]:
    """Has a server trim and normalise the names of tools; which of them it ran."""
    ran: list[str] = []

    async def call(turn: Turn) -> web.StreamResponse:
        ran.append(turn.message["params"]["name"])
        return await result({"content": []})(turn)

    server.methods["tools/call"] = call
    return ran


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_rule_is_not_evaded_by_another_spelling_of_a_tool_that_its_server_may_take_for_it(
    server: ScriptedServer, opens: Opens, come: Any, issuer: TokenIssuer, name: str
) -> None:
    ran = lenient(server)
    async with opens(DROPS) as gateway:
        host = await come(gateway)
        assert (await host.call(name)).code == -32602
        assert (await host.ask("tools/call", {"name": name, "arguments": {}, "task": {}})).code == -32602
        newer = gateway.modern(token=issuer.token(gateway.url()))
        assert "error" in (await newer.ask("tools/call", {"name": name, "arguments": {}})).message
        assert (await host.call("read")).result == {"content": []}
        assert (await newer.ask("tools/call", {"name": "read", "arguments": {}})).message["result"]
    assert ran == ["read", "read"]


@pytest.mark.parametrize(
    ("rule", "section", "reaches"),
    [
        (DROPS, {}, False),
        ({**DROPS, "upstream": "reports"}, {}, False),
        ({**DROPS, "upstream": "others"}, {}, True),
        ({**DROPS, "shadow": True}, {}, True),
        ({"tool": "write_*", "require_scopes": ["admin"]}, {}, False),
        ({"methods": ["tools/list"], "effect": "deny"}, {}, True),
        (DROPS, {"only_listed_tools": False}, True),
        ({"tool": "write_*"}, {"only_listed_tools": True}, False),
    ],
)
async def test_only_listed_tools_are_called_where_a_rule_refuses_some_by_name(
    server: ScriptedServer, issuer: TokenIssuer, rule: dict[str, Any], section: dict[str, Any], reaches: bool
) -> None:
    server.tools = [{"name": "read", "inputSchema": {"type": "object"}}]
    ran = lenient(server)
    rules = {"rules": [rule], **section}
    config = guarded({"reports": server.url, "others": server.url}, issuer, authorization=rules)
    async with serve(config) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        answer = await host.call("unlisted")
        assert (answer.message is not None and "result" in answer.message) is reaches
        assert (await host.call("read")).result is not None
    assert ran == ["unlisted", "read"] if reaches else ran == ["read"]


async def test_where_the_list_cannot_be_read_nothing_is_called_that_has_to_be_on_it(
    server: ScriptedServer, opens: Opens, come: Any
) -> None:
    ran = lenient(server)
    server.methods["tools/list"] = raw(b"nonsense")
    async with opens(DROPS) as gateway:
        host = await come(gateway)
        assert (await host.call("read")).error["data"]["origin"] == "upstream"
    assert ran == []
