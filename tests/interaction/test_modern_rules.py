"""What a caller of the modern era may do is what the operator's rules say of the token of each request."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import GONE, Host
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.questions import DONE
from interaction.refusals import TASK, expect_nothing_done, refused
from requirements import covers

Opens = Callable[..., AbstractAsyncContextManager[Gateway]]
Comes = Callable[..., Host]
WRITING = {"tool": "write_*", "require_scopes": ["reports.write", "reports.read"]}
HIDDEN = {"tool": "write_*", "effect": "deny"}
AT_ONCE = {"upgrade": [{"tool": "*", "mode": "always"}]}


@pytest.fixture
def opens(server: ScriptedServer, issuer: TokenIssuer) -> Opens:
    """A gateway with rules, in front of a server with tools to read and to write."""
    server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write_all")]

    @asynccontextmanager
    async def opened(*rules: dict[str, Any], **sections: Any) -> Any:
        config = guarded({"reports": server.url}, issuer, authorization={"rules": list(rules)}, **sections)
        async with serve(config) as gateway:
            yield gateway

    return opened


@pytest.fixture
def comes(issuer: TokenIssuer) -> Comes:
    """A host whose token has these scopes and claims."""

    def came(gateway: Gateway, scope: str = "", **claims: Any) -> Host:
        return gateway.modern(token=issuer.token(gateway.url(), scope, **claims))

    return came


def insufficient(answer: Answer) -> None:
    """The answer names the scopes that are needed, and belongs to its request."""
    assert refused(answer, 403, 403)["data"] == {"origin": "gateway", "reason": "insufficient_scope"}
    assert 'scope="reports.read reports.write"' in answer.headers["WWW-Authenticate"]
    assert answer.message is not None
    assert answer.message["id"] == "mine"


@covers("A-AUTH-1", "A-AUTH-2")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "subscriptions/listen", "ping"])
async def test_without_a_token_nothing_of_this_era_is_looked_at(
    server: ScriptedServer, opens: Opens, method: str
) -> None:
    async with opens() as gateway:
        answer = await gateway.modern().ask(method)
        assert answer.status == 401
        assert "WWW-Authenticate" in answer.headers
        await expect_nothing_done(gateway, server)


@covers("A-AUTH-6", "A-AUTH-7")
async def test_too_few_scopes_are_403_and_the_server_hears_nothing(
    server: ScriptedServer, opens: Opens, comes: Comes
) -> None:
    async with opens(WRITING) as gateway:
        insufficient(await comes(gateway, "reports.read").call("write_all", id="mine"))
        await expect_nothing_done(gateway, server)
        assert (await comes(gateway, "reports.read reports.write").call("write_all")).result["resultType"] == "complete"


@covers("A-AUTH-6")
async def test_a_request_that_was_sent_again_is_judged_as_the_first(opens: Opens, comes: Comes) -> None:
    async with opens(WRITING) as gateway:
        again = {"inputResponses": {"input-1": {"action": "accept", "content": {}}}, "requestState": "x"}
        insufficient(await comes(gateway, "reports.read").call("write_all", **again, id="mine"))


async def test_a_tool_that_is_denied_is_not_told_of(opens: Opens, comes: Comes) -> None:
    async with opens(HIDDEN) as gateway:
        host = comes(gateway)
        assert [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]] == ["read"]
        assert refused(await host.call("write_all"), 200, 403)["data"]["reason"] == "policy"


async def test_discovery_is_denied_by_no_rule(opens: Opens, comes: Comes) -> None:
    async with opens({"methods": ["server/discover"], "effect": "deny"}) as gateway:
        answer = await comes(gateway).ask("server/discover")
    assert "2026-07-28" in answer.result["supportedVersions"]


@pytest.mark.parametrize("method", ["subscriptions/listen", "resources/read", "tasks/update"])
async def test_a_method_of_this_era_can_be_denied(opens: Opens, comes: Comes, method: str) -> None:
    params = {
        "subscriptions/listen": {"notifications": {"toolsListChanged": True}},
        "resources/read": {"uri": "file:///r"},
        "tasks/update": {"taskId": TASK, "inputResponses": {}},
    }
    async with opens({"methods": [method], "effect": "deny"}) as gateway:
        answer = await comes(gateway).ask(method, params.get(method))
    # Nobody learns from a rule about tasks whether there is such a task.
    refused(answer, 200, -32602 if method == "tasks/update" else 403)


async def test_who_may_not_subscribe_to_resources_does_not_hear_of_them_by_listening(
    server: ScriptedServer, opens: Opens, comes: Comes
) -> None:
    server.capabilities = {"resources": {"subscribe": True, "listChanged": True}}
    async with opens({"methods": ["resources/subscribe"], "effect": "deny"}) as gateway:
        host = comes(gateway)
        async with host.listen(resourcesListChanged=True, resourceSubscriptions=["file:///r"]) as stream:
            assert stream.heard[0]["params"]["notifications"] == {"resourcesListChanged": True}
        assert server.heard("resources/subscribe") == []


@covers("A-AUTH-6")
async def test_a_task_is_for_who_may_call_its_tool(server: ScriptedServer, opens: Opens, comes: Comes) -> None:
    server.script["write_all"] = hold = Hold()
    async with opens(WRITING, tasks=AT_ONCE) as gateway:
        task = (await comes(gateway, "reports.read reports.write").start("write_all"))["taskId"]
        few = comes(gateway, "reports.read")
        for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
            insufficient(await few.ask(method, {"taskId": task, **more}, id="mine"))
        hold.release(DONE)


# --- how strictly tasks are named (AMB-8) ----------------------------------------------------------------------------


@covers("H-MOD-2")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/update"])
async def test_where_the_operator_wants_it_a_task_has_to_be_named_in_a_header(
    server: ScriptedServer, method: str
) -> None:
    strict = configuration({"reports": server.url}, server={"require_task_name": True})
    params = {"taskId": TASK, **({"inputResponses": {}} if method == "tasks/update" else {})}
    async with serve(strict) as gateway:
        host = gateway.modern()
        refused(await host.post(*_unnamed(host, method, params)), 400, -32020)
        refused(await host.ask(method, params), 200, -32602)


def _unnamed(host: Host, method: str, params: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """A request whose headers do not say which task it is about."""
    message = host.written(method, params)
    return json.dumps(message).encode(), {**host.routing(message), "Mcp-Name": GONE}
