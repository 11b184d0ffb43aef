"""Handles that are wrong: models and servers write them, so they lock no user out of its tasks."""

from itertools import count

from helpers.gateway.gateway import serve
from helpers.host.answers import Answer
from helpers.host.host import Host, both_eras
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.handoffs import YEAR, handle_of, handoff, taskless, waited
from interaction.questions import DONE
from requirements import covers

THRESHOLD = 3
FAILURES = {"lookup_failures": {"threshold": THRESHOLD, "window": "1m", "penalty": "5m"}}
NUMBERS = count()


async def miss(host: Host) -> Answer:
    """A wait with a handle of no call, another one each time."""
    return await waited(host, f"{next(NUMBERS):U>32}")


@covers("R-RES-4", "T13")
@both_eras
async def test_wrong_handles_lock_nobody_out_of_a_good_one_of_tasks_or_of_another_mount(
    server: ScriptedServer, other: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    server.script["report"] = other.script["report"] = hold = Hold()
    config = guarded({"reports": server.url, "other": other.url}, issuer, tasks=handoff(), auth=FAILURES)
    async with serve(config) as gateway:
        host = await taskless(gateway, era, issuer.token(gateway.url(), subject="mine"))
        handle = handle_of(await host.call("report", YEAR))
        codes = [(await miss(host)).code for _ in range(THRESHOLD + 3)]
        assert codes == [-32602] * (THRESHOLD + 1) + [429] * 2
        # What servers and models write is no look-up of a host.
        knowing = await gateway.greeted(token=issuer.token(gateway.url(), subject="mine"))
        assert (await knowing.ask("tasks/get", {"taskId": "U" * 32})).code == -32602
        elsewhere = gateway.modern(mount="other", token=issuer.token(gateway.url("other"), subject="mine"), tasks=False)
        assert (await miss(elsewhere)).code == -32602
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
