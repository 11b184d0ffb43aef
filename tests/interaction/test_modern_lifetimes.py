"""How long a task of the modern era can be reached."""

from datetime import timedelta

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, serve
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded
from interaction.refusals import refused
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


@covers("M-TTL-1", "M-TTL-2", "M-GET-4")
async def test_a_task_is_there_for_its_whole_ttl_and_then_gone_whatever_its_state(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    clock = ManualClock()
    async with serve(configuration({"reports": server.url}, tasks=ALWAYS), Environment(clock=clock)) as gateway:
        host = gateway.modern()
        ended, running_ = [await host.start(tool) for tool in ("echo", "report")]
        async with bounded():
            await hold.begun.wait()
        await host.until(ended["taskId"], "completed")
        for task in (ended, running_):
            assert (await host.task(task["taskId"]))["ttlMs"] == task["ttlMs"] == 3_600_000
        clock.advance(timedelta(milliseconds=ended["ttlMs"] - 1_000))
        assert (await host.task(ended["taskId"]))["status"] == "completed"
        clock.advance(timedelta(seconds=2))
        refused(await host.ask("tasks/get", {"taskId": ended["taskId"]}), 200, -32602)
        assert (await host.task(running_["taskId"]))["ttlMs"] == 5_400_000
        clock.advance(timedelta(hours=23))
        refused(await host.ask("tasks/get", {"taskId": running_["taskId"]}), 200, -32602)
        for task in (ended, running_):
            refused(await host.cancel(task["taskId"]), 200, -32602)
