"""Tasks of servers whose caller, for whom a token is exchanged, is away for longer than their own token is good."""

from typing import Any

from helpers.exchange_server import ExchangeServer
from helpers.gateway.gateway import serve
from helpers.host.host import both_eras
from helpers.server import ScriptedServer
from helpers.server.legacy_tasks import LegacyTasks
from helpers.server.modern_tasks import ModernTasks
from helpers.token_issuer import TokenIssuer, guarded
from helpers.virtual_time import pass_time
from helpers.waiting import eventually
from interaction.test_upstream_credentials import endpoint, exchanging, known
from requirements import covers

__all__ = ["endpoint"]

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


async def refused_for_long(endpoint: ExchangeServer) -> None:
    """Wait until looks have failed for want of a token for longer than a server that does not answer is borne."""
    refused = len(endpoint.refusals)
    await pass_time(150)
    assert len(endpoint.refusals) > refused + 4


@covers("A-AUTH-3")
@both_eras
async def test_a_task_of_the_server_waits_for_its_caller_whose_token_is_over(
    server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer, era: str
) -> None:
    tasks, endpoint.lifetime = LegacyTasks(server, poll=10), 0
    upstreams = {"reports": exchanging(server, endpoint)}
    async with serve(guarded({}, issuer, upstreams=upstreams, tasks=ALWAYS)) as gateway:
        token = known(gateway, endpoint, issuer)
        host: Any = await gateway.greeted(era=era, token=token)
        made = (await host.start("research"))["taskId"]
        task = await tasks.made()
        await eventually(lambda: task.looked)
        endpoint.subjects.clear()
        await refused_for_long(endpoint)
        host.token = known(gateway, endpoint, issuer, jti="newer")
        await host.ask("tools/list")
        task.complete({"content": []})
        # The next look may be half a minute away.
        await pass_time(60)
        assert (await host.ask("tasks/get", {"taskId": made})).result["status"] == "completed"
    assert tasks.cancelled == []


@covers("A-AUTH-3")
async def test_so_does_one_of_a_server_of_the_modern_era(endpoint: ExchangeServer, issuer: TokenIssuer) -> None:
    endpoint.lifetime = 0
    async with ScriptedServer("modern") as server:
        report = ModernTasks(server).tool("report")
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        upstreams = {"reports": exchanging(server, endpoint, protocol_version="auto")}
        async with serve(guarded({}, issuer, upstreams=upstreams, tasks=ALWAYS)) as gateway:
            host = gateway.modern(token=known(gateway, endpoint, issuer))
            made = (await host.start("report"))["taskId"]
            task = await report.made()
            await task.looked()
            endpoint.subjects.clear()
            await refused_for_long(endpoint)
            host.token = known(gateway, endpoint, issuer, jti="newer")
            await host.ask("tools/list")
            task.complete({"content": []})
            await host.until(made, "completed")
    assert task.cancels == 0
