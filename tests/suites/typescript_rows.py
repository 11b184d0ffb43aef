"""Rows after the requirements of the TypeScript SDK's end-to-end tests, between real sockets.

The requirements are in the repository of that SDK (`test/e2e/requirements.ts`), and in none of its packages. The rows
are our own programs, in `tests/peers/typescript_rows`, and have the names of the requirements.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from interop.peers import HOME
from peers import install
from suites.runs import Run, streamable
from suites.verdicts import Outcomes

ROWS = HOME / "typescript_rows" / "run.mjs"
MOUNTS = 240
"""No run connects to more servers."""
SHELL = ("bash", "--norc", "-c")
"""A shell whose input is a socket would read the user's file of settings."""
RELAY = r"""
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /%s/pipe HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: pipe\r\n\r\n' "$2" >&3
exec 4<&0
cat <&3 &
cat <&4 >&3 &
wait -n
kill $(jobs -p) 2>/dev/null
"""
"""A program between its standard streams and a server of the rows, which is behind a socket: port and number follow."""


def _over_pipes(url: str, number: int) -> Mapping[str, object]:
    # In a configuration a dollar sign is written twice.
    relay = RELAY.replace("$", "$$")
    return {"transport": "stdio", "command": [*SHELL, relay, "relay", url.rpartition(":")[2], str(number)]}


def _over_events(url: str, number: int) -> Mapping[str, object]:
    return {"transport": "sse", "url": f"{url}/{number}/mcp"}


UPSTREAMS = {"legacy hosts, servers over stdio": _over_pipes, "legacy hosts, servers over HTTP+SSE": _over_events}
SHARES = {
    "legacy hosts, servers with sessions": 2,
    "legacy hosts, servers without sessions": 1,
    "legacy hosts, servers of both eras": 1,
    "modern hosts": 1,
    "legacy hosts, servers of 2026-07-28": 1,
    "modern hosts, servers of 2025-11-25": 1,
    **dict.fromkeys(UPSTREAMS, 1),
}
"""The parts, and how many runs each is divided into."""
TOGETHER = 3
"""Runs at once: much is waited for, but the hosts and servers of a run are one process."""


def run(part: str, share: int = 0, *beginnings: str) -> Run:
    """A share of a part, as a process with a gateway of its own; with beginnings of ids, only those rows."""
    variables = {"SUITE_PART": part, "SUITE_SHARE": f"{share}/{SHARES[part]}", "SUITE_RELAY": RELAY}
    if beginnings:
        variables["SUITE_ONLY"] = " ".join(beginnings)
    upstream = UPSTREAMS.get(part, streamable)
    return Run(command=(install.node(), ROWS), variables=variables, mounts=MOUNTS, upstream=upstream)


async def outcomes(folders: Callable[[], Path], *, directly: bool) -> Mapping[str, Outcomes]:
    """The outcomes of all parts, without a gateway or through one; each run has a folder."""
    found: dict[str, dict[str, str | None]] = {part: {} for part in SHARES}
    free = asyncio.Semaphore(TOGETHER)

    async def hear(part: str, share: int) -> None:
        chosen, folder = run(part, share), folders()
        async with free:
            found[part] |= await (chosen.directly(folder) if directly else chosen.through_taskgate(folder))

    async with asyncio.TaskGroup() as group:
        for part, shares in SHARES.items():
            for share in range(shares):
                group.create_task(hear(part, share))
    return found
