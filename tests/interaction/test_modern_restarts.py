"""What a fallen gateway leaves of the tasks of hosts of the modern era, and what the next one makes of it."""

from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import FORM, Rounds, ScriptedServer, TalkingTool
from interaction.falls import LOST, falling, leave_one_sent, one_slot
from interaction.questions import ACCEPTED, DONE, ELICIT

ASKABLE = {"elicitation": {}}
ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


async def fallen(server: ScriptedServer, folder: Path, **keys: str) -> list[str]:
    """The tasks that a gateway left which fell: one was at the server, and one was never sent."""
    upstreams = {"reports": {**one_slot(server, "reports"), **keys}}
    async with falling(server, folder, upstreams=upstreams, tasks=ALWAYS) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        return await leave_one_sent(server, folder, host, host)


async def test_a_task_that_was_never_sent_is_run_and_its_host_can_be_asked(
    server: ScriptedServer, tool: TalkingTool, tmp_path: Path
) -> None:
    _, unsent = await fallen(server, tmp_path)
    async with serve(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await tool.ask("q-1")
        (key,) = (await host.until(unsent, "input_required"))["inputRequests"]
        await host.update(unsent, {key: ACCEPTED})
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        await tool.finish(DONE)
        assert (await host.until(unsent, "completed"))["result"]["content"] == DONE["content"]


async def test_the_rounds_of_a_server_of_this_era_are_inputs_of_such_a_task(tmp_path: Path) -> None:
    async with ScriptedServer("modern") as server:
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        _, unsent = await fallen(server, tmp_path, protocol_version="2026-07-28")
        asked = {"a": {"method": ELICIT, "params": FORM}}
        server.script["report"] = Rounds({"inputRequests": asked, "requestState": "s"}, answer=DONE)
        section = {"path": "/reports/mcp", "url": server.url, "protocol_version": "2026-07-28"}
        async with serve(configuration({}, upstreams={"reports": section}, folder=tmp_path)) as gateway:
            host = gateway.modern(capabilities=ASKABLE)
            (key,) = (await host.until(unsent, "input_required"))["inputRequests"]
            await host.update(unsent, {key: ACCEPTED})
            assert (await host.until(unsent, "completed"))["result"]["content"] == DONE["content"]


@pytest.mark.parametrize("answers", [{}, {"input-1": ACCEPTED}], ids=["none", "one"])
async def test_a_task_that_may_have_run_has_failed_and_takes_no_answers(
    server: ScriptedServer, tmp_path: Path, answers: dict[str, object]
) -> None:
    sent, unsent = await fallen(server, tmp_path)
    async with serve(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        host = gateway.modern()
        lost = await host.until(sent, "failed")
        assert lost["error"]["data"] == LOST
        assert (await host.update(sent, answers)).result["resultType"] == "complete"
        assert await host.task(sent) == lost
        await host.until(unsent, "completed")
    assert len(server.heard("tools/call")) == 1
