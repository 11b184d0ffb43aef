"""A quick tool as a task takes released hosts of both eras one poll: they do not sleep until its end is seen."""

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from interop.peers import require_peers, told_by

pytestmark = pytest.mark.interop


POLLS = {
    # This one asks once more behind the result.
    "python": {"terminal": 3, "early": 3},
    "sdk": {"terminal": 3},
    "fastmcp-4": {"terminal": 3},
}
"""The polls of three calls by what they found, by host. None finds the task running."""


@pytest.mark.parametrize(("host", "environments"), [("python", ()), ("sdk", ()), ("fastmcp-4", ("fastmcp-4.1.4",))])
async def test_a_quick_tool_takes_a_host_one_poll(host: str, environments: tuple[str, ...]) -> None:
    require_peers(*environments)
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}]}
    async with ScriptedServer() as server:
        server.tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
            told = await told_by(host, gateway.url(), [("echo", {"call": number}) for number in range(3)])
            assert not any(each.get("isError") for each in told), told
            assert await gateway.counts("taskgate_task_polls_total", "result") == POLLS[host]
