"""What a fallen gateway leaves of the tasks of hosts of the modern era, and what the next one makes of it."""

from datetime import timedelta
from pathlib import Path

import pytest

from helpers.modern_schema import TASKS
from helpers.modern_server import ModernServer, Rounds
from helpers.records import new_call, new_peer, new_record
from helpers.scripted_upstream import ScriptedServer
from helpers.talking_tool import FORM, TalkingTool
from helpers.whole_gateway import SystemClock, SystemEntropy, configuration, running
from interaction.questioning import ACCEPTED, DONE, ELICIT
from interaction.test_restarts import LOST, leave_behind
from taskgate.domain.record import Lease, OwnerKey, TaskRecord
from taskgate.domain.versions import Revision

ASKABLE = {"elicitation": {}}


def unfinished(*, dispatched: bool) -> TaskRecord:
    """A task that a fallen process held for a host that can be asked."""
    now = SystemClock().now()
    peer = new_peer(revision=Revision.R2026_07_28, capabilities={**ASKABLE, "extensions": {TASKS: {}}}, info={})
    return new_record(
        id=SystemEntropy().token(16).hex(),
        owner=OwnerKey("anonymous", "reports"),
        call=new_call(tool="report", peer=peer, params='{"name":"report","arguments":{}}'),
        created_at=now,
        dispatched=dispatched,
        lease=Lease(holder="fallen", until=now + timedelta(hours=1)),
    )


async def test_a_task_that_was_never_sent_is_run_and_its_host_can_be_asked(
    server: ScriptedServer, tool: TalkingTool, tmp_path: Path
) -> None:
    unsent = unfinished(dispatched=False)
    await leave_behind(tmp_path, unsent)
    async with running(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await tool.ask("q-1")
        (key,) = (await host.until(unsent.id, "input_required"))["inputRequests"]
        await host.update(unsent.id, {key: ACCEPTED})
        assert (await tool.told("q-1"))["result"] == ACCEPTED
        await tool.finish(DONE)
        assert (await host.until(unsent.id, "completed"))["result"]["content"] == DONE["content"]


async def test_the_rounds_of_a_server_of_this_era_are_inputs_of_such_a_task(tmp_path: Path) -> None:
    unsent = unfinished(dispatched=False)
    await leave_behind(tmp_path, unsent)
    async with ModernServer() as server:
        asked = {"a": {"method": ELICIT, "params": FORM}}
        server.script["report"] = Rounds({"inputRequests": asked, "requestState": "s"}, answer=DONE)
        section = {"path": "/reports/mcp", "url": server.url, "protocol_version": "2026-07-28"}
        async with running(configuration({}, upstreams={"reports": section}, folder=tmp_path)) as gateway:
            host = gateway.modern(capabilities=ASKABLE)
            (key,) = (await host.until(unsent.id, "input_required"))["inputRequests"]
            await host.update(unsent.id, {key: ACCEPTED})
            assert (await host.until(unsent.id, "completed"))["result"]["content"] == DONE["content"]


@pytest.mark.parametrize("answers", [{}, {"input-1": ACCEPTED}], ids=["none", "one"])
async def test_a_task_that_may_have_run_has_failed_and_takes_no_answers(
    server: ScriptedServer, tmp_path: Path, answers: dict[str, object]
) -> None:
    sent = unfinished(dispatched=True)
    await leave_behind(tmp_path, sent)
    async with running(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        host = gateway.modern()
        lost = await host.until(sent.id, "failed")
        assert lost["error"]["data"] == LOST
        assert (await host.update(sent.id, answers)).result["resultType"] == "complete"
        assert await host.get(sent.id) == lost
    assert server.heard("tools/call") == []
