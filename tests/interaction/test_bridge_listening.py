"""Listeners of the modern era before a server of the same: what they are granted, told, and ended with."""

from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.modern_schema import LISTEN
from helpers.server import ScriptedServer, Turn, note
from helpers.waiting import eventually
from interaction.bridges import bridge, modern
from interaction.questions import CAPABLE
from requirements import covers

__all__ = ["bridge", "modern"]


@covers("M-SUB-1", "M-SUB-2", "M-NOTIF-2", "M-NOTIF-3", "M-NOTIF-7", "T-15")
async def test_news_reach_every_listener_that_asked_for_them_under_its_own_id(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    modern.capabilities |= {"prompts": {"listChanged": True}, "resources": {"subscribe": True}}
    host = bridge.modern(capabilities=CAPABLE)
    wish = {"resourceSubscriptions": ["file:///a"], "promptsListChanged": True}
    async with host.listen(id="one", toolsListChanged=True) as first, host.listen(id=2, **wish) as second:
        assert first.heard[0]["params"]["notifications"] == {"toolsListChanged": True}
        assert second.heard[0]["params"]["notifications"] == wish
        wanted = {"toolsListChanged", "promptsListChanged", "resourceSubscriptions"}
        await eventually(lambda: [{name for name in each if each[name]} for each in modern.listens.filters] == [wanted])
        await modern.push(
            note("notifications/tools/list_changed"),
            note("notifications/resources/updated", uri="file:///b"),
            note("notifications/resources/updated", uri="file:///a"),
            note("notifications/prompts/list_changed"),
        )
        await first.until("notifications/tools/list_changed")
        await second.until("notifications/prompts/list_changed")
        await second.until("notifications/resources/updated")
    assert [each["method"] for each in first.heard[1:]] == ["notifications/tools/list_changed"]
    assert {each["method"] for each in second.heard[1:]} == {
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
    }
    assert [each["params"]["uri"] for each in second.of("notifications/resources/updated")] == ["file:///a"]


@covers("M-NOTIF-2")
async def test_what_the_server_cannot_tell_is_not_granted(modern: ScriptedServer, bridge: Gateway) -> None:
    async def knows_tools(turn: Turn) -> Any:
        wanted = turn.message["params"]["notifications"]
        wanted.pop("promptsListChanged", None)
        return await modern.listens.serve(turn)

    modern.methods[LISTEN] = knows_tools
    wishes = {"promptsListChanged": True, "toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
    async with bridge.modern().listen(**wishes) as stream_:
        assert stream_.heard[0]["params"]["notifications"] == {"toolsListChanged": True}


@covers("M-NOTIF-2", "M-NOTIF-7")
async def test_list_changes_that_the_server_grants_without_declaring_them_reach_the_host_that_asked(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    modern.capabilities = {}
    host = bridge.modern()
    async with host.listen(toolsListChanged=True) as first, host.listen(promptsListChanged=True) as second:
        await eventually(lambda: len(modern.listens.filters) == 1)
        await modern.push(note("notifications/prompts/list_changed"), note("notifications/tools/list_changed"))
        await first.until("notifications/tools/list_changed")
        await second.until("notifications/prompts/list_changed")
    assert [len(each.heard) for each in (first, second)] == [2, 2]


@covers("M-NOTIF-6", "M-NOTIF-3")
async def test_a_listen_ends_with_its_result_when_the_gateway_goes(modern: ScriptedServer, bridge: Gateway) -> None:
    async with bridge.modern().listen(id="mine", toolsListChanged=True) as stream_:
        await bridge.drain()
        assert (await stream_.result())["resultType"] == "complete"
