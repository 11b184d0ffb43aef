"""Tools of MCP Apps: those for views alone stay plain calls, and a view gets what its tool gave, also out of a task.

A tool is for views alone where the list in its `_meta.ui.visibility` lacks `model` (SEP-1865).
"""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import both_eras
from helpers.server import Hold, Reply, ScriptedServer, Turn, error
from helpers.waiting import bounded
from interaction.bridges import before, modern
from interaction.questions import DONE
from requirements import covers

__all__ = ["modern"]

VIEW = "ui://clock/view.html"
FOR_VIEWS = {"ui": {"resourceUri": VIEW, "visibility": ["app"]}}
FOR_BOTH = {"ui": {"resourceUri": VIEW, "visibility": ["model", "app"]}}
AT_ONCE = {"inline_grace": "0s"}


def tool(name: str, **members: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


@pytest.fixture
def apps(server: ScriptedServer) -> ScriptedServer:
    """A server with a tool for views, one for both, and one that says nothing of views."""
    server.tools = [tool("refresh", _meta=FOR_VIEWS), tool("show", _meta=FOR_BOTH), tool("echo")]
    return server


def ruled(server: ScriptedServer, *rules: tuple[str, str]) -> Any:
    """A configuration with a mode for each of these globs."""
    upgrade = [{"tool": glob, "mode": mode} for glob, mode in rules]
    return configuration({"reports": server.url}, tasks={"upgrade": upgrade, **AT_ONCE})


# --- tools for views alone -------------------------------------------------------------------------------------------


@covers("X-APP-8", "X-APP-9")
@pytest.mark.parametrize("mode", ["auto", "always", "required"])
async def test_a_tool_for_views_is_listed_as_its_server_lists_it(apps: ScriptedServer, mode: str) -> None:
    async with serve(ruled(apps, ("*", mode))) as gateway:
        listed = (await (await gateway.greeted()).ask("tools/list")).result["tools"]
    word = "required" if mode == "required" else "optional"
    assert listed[0] == tool("refresh", _meta=FOR_VIEWS)
    assert [each["execution"] for each in listed[1:]] == [{"taskSupport": word}] * 2


async def test_what_its_server_says_of_tasks_for_views_is_taken_back(apps: ScriptedServer) -> None:
    apps.tools[0]["execution"] = {"taskSupport": "required", "x": 1}
    async with serve(ruled(apps, ("*", "auto"))) as gateway:
        listed = (await (await gateway.greeted()).ask("tools/list")).result["tools"]
    assert listed[0]["execution"] == {"taskSupport": "forbidden", "x": 1}


@pytest.mark.parametrize("mode", ["auto", "always", "required"])
async def test_a_view_of_a_host_that_knows_tasks_gets_a_result_and_no_task(apps: ScriptedServer, mode: str) -> None:
    apps.script["refresh"] = apps.script["show"] = hold = Hold()
    async with serve(ruled(apps, ("*", mode))) as gateway:
        calling = asyncio.create_task(gateway.modern().call("refresh"))
        async with bounded():
            await hold.begun.wait()
        # By now it would be a task, as the call of another tool that is held is.
        assert (await gateway.modern().call("show")).result["resultType"] == "task"
        hold.release(DONE)
        async with bounded():
            answer = await calling
        assert (answer.result["resultType"], answer.result["content"]) == ("complete", DONE["content"])
        assert await gateway.count("taskgate_tasks_started_total") == 1
    assert sorted(call["params"]["name"] for call in apps.heard("tools/call")) == ["refresh", "show"]


@both_eras
async def test_a_tool_for_views_is_called_plainly_where_all_others_must_be_tasks(
    apps: ScriptedServer, era: str
) -> None:
    async with serve(ruled(apps, ("*", "required"))) as gateway:
        host = await gateway.greeted(era=era, **({"tasks": False} if era == "modern" else {}))
        assert (await host.call("refresh", {"a": 1})).result["structuredContent"] == {"a": 1}
        assert (await host.call("show")).code == (-32021 if era == "modern" else -32601)


@both_eras
async def test_while_the_catalogue_cannot_be_read_every_tool_that_must_be_a_task_is_refused(
    apps: ScriptedServer, era: str
) -> None:
    apps.methods["tools/list"] = error(-32603, "no")
    async with serve(ruled(apps, ("*", "required"))) as gateway:
        host = await gateway.greeted(era=era, **({"tasks": False} if era == "modern" else {}))
        assert (await host.call("refresh")).code == (-32021 if era == "modern" else -32601)
    assert apps.heard("tools/call") == []


async def test_a_task_for_a_tool_for_views_is_refused(apps: ScriptedServer) -> None:
    async with serve(ruled(apps, ("*", "auto"))) as gateway:
        host = await gateway.greeted()
        refused = await host.call("refresh", task={})
        assert (refused.status, refused.code) == (200, -32601)
        assert (await host.start("show"))["status"] == "working"


@both_eras
@pytest.mark.parametrize("glob", ["refresh", "ref*"])
async def test_a_rule_that_names_a_tool_for_views_makes_tasks_of_its_calls(
    apps: ScriptedServer, era: str, glob: str
) -> None:
    async with serve(ruled(apps, (glob, "always"), ("*", "sync"))) as gateway:
        started = await (await gateway.greeted(era=era)).start("refresh")
        listed = (await (await gateway.greeted()).ask("tools/list")).result["tools"]
    assert started["taskId"]
    assert [each["execution"]["taskSupport"] for each in listed] == ["optional", "forbidden", "forbidden"]


async def test_no_list_of_tools_is_read_for_a_plain_call_in_a_session(apps: ScriptedServer) -> None:
    async with serve(configuration({"reports": apps.url})) as gateway:
        await (await gateway.greeted()).call("refresh")
    assert (len(apps.heard("tools/call")), apps.heard("tools/list")) == (1, [])


# --- what a view gets out of a task ----------------------------------------------------------------------------------

# Each is in a spelling that no encoder of ours would choose.
SHOWN = '{ "resourceUri" :"ui://clock/view.html","visibility":[ "model","app" ],"x":1.0e2 }'
ENTRY = f'"description":"\\u00e9","_meta":{{"ui":{SHOWN},"ui/resourceUri":"ui:\\/\\/old","openai/x":[ ]}}'
KEYS = '"ui":{ "n":1.0e2 },"openai/widget":{"é":"\\u00e9\\/"}'


def written(text: str) -> Reply:
    """A result that is sent as it is written, complete where the era asks for that word."""

    async def reply(turn: Turn) -> web.StreamResponse:
        kind = '"resultType":"complete",' if "Mcp-Method" in turn.request.headers else ""
        body = f'{{"jsonrpc":"2.0","id":{json.dumps(turn.id)},"result":{{{kind}{text}}}}}'
        return web.Response(body=body.encode(), content_type="application/json")

    return reply


def shown(size: int) -> str:
    """What a tool gives its view: a document of that size, in a spelling of its own."""
    html = "ü<" * size
    return f'"structuredContent":{{ "big":123456789012345678901234567890,"n":1.50,"é":"\\u00e9","html":"{html}"}}'


@covers("X-APP-10")
@both_eras
@pytest.mark.parametrize("of", ["legacy", "modern"])
@pytest.mark.parametrize("size", [1, 200_000])
async def test_a_view_gets_the_same_bytes_out_of_a_task(
    server: ScriptedServer, modern: ScriptedServer, era: str, of: str, size: int
) -> None:
    behind = server if of == "legacy" else modern
    behind.script["echo"] = written(f'"content":[ ],{shown(size)},"_meta":{{{KEYS}}}')
    async with before(modern, tasks=ALWAYS) if behind is modern else serve(always(server)) as gateway:
        host = await gateway.greeted(era=era)
        id_ = (await host.start("echo"))["taskId"]
        if host.is_modern:
            await host.until(id_, "completed")
            text = (await host.ask("tasks/get", {"taskId": id_})).text
        else:
            text = (await host.ask("tasks/result", {"taskId": id_})).text
    assert shown(size) in text
    assert KEYS in text


ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


def always(server: ScriptedServer) -> Any:
    """A configuration that makes a task of every call."""
    return configuration({"reports": server.url}, tasks=ALWAYS)


@both_eras
@pytest.mark.parametrize("of", ["legacy", "modern"])
async def test_a_tool_with_a_view_is_listed_in_the_same_bytes_where_its_calls_are_tasks(
    server: ScriptedServer, modern: ScriptedServer, era: str, of: str
) -> None:
    behind = server if of == "legacy" else modern
    keeping = "" if of == "legacy" else '"ttlMs":0,"cacheScope":"private",'
    entry = f'"name":"echo","inputSchema":{{ "type":"object"}},{ENTRY}'
    behind.methods["tools/list"] = written(f'{keeping}"tools":[{{{entry}}}]')
    async with before(modern, tasks=ALWAYS) if behind is modern else serve(always(server)) as gateway:
        text = (await (await gateway.greeted(era=era)).ask("tools/list")).text
    assert entry in text
