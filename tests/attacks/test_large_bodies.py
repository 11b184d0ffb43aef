"""One caller with large bodies on many connections: others are served, and its bytes have a rate."""

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from attacks.watch import watching
from helpers.gateway.process import serve_process
from helpers.host.host import Host
from helpers.host.raw import post, raw_host
from helpers.refused_bodies import posted, send
from helpers.server import ScriptedServer, result
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20
BODY = 4 * MIB - 64 * 1024
AUDIENCE = "https://mcp.example.com/reports"
CONNECTIONS = 8
EACH = 20
# The clock of this rate gives nothing back while the test runs.
SCARCE = "{rate: [{name: bodies, scope: subject, rate: 1/h, burst: 65536, event: large_body}], wait: 0s}"


def guarded(issuer: TokenIssuer) -> str:
    section = json.dumps({"corp": {**issuer.section, "audience": [AUDIENCE]}})
    return f"{{mode: required, issuers: {section}}}"


def answer_to_nothing() -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "none", "result": {"text": "x" * BODY}}).encode()


def call_of(tool: str, host: Host) -> bytes:
    body, _ = posted(host, BODY)
    return body.replace(b'"name": "echo"', f'"name": "{tool}"'.encode(), 1)


class Mallory:
    """Sends the same large body on several connections, as fast as it is answered; counts the answers."""

    def __init__(self, host: Host, body: bytes) -> None:
        self.host, self.body = host, body
        self.admitted = self.refused = 0
        self.over = False

    async def attack(self) -> None:
        async def on_one() -> None:
            while not self.over:
                try:
                    answer = await self.host.post(self.body)
                except aiohttp.ClientError:
                    # The gateway ends a connection whose body it does not read.
                    self.refused += 1
                    continue
                if answer.status == 429:
                    self.refused += 1
                else:
                    self.admitted += 1

        await asyncio.gather(*(on_one() for _ in range(CONNECTIONS)))


async def asked(host: Host, mallory: Mallory) -> tuple[list[float], list[int]]:
    """How long each large call of a neighbour takes, and how many bodies of mallory are answered meanwhile."""
    took, meanwhile = [], []
    for _ in range(EACH):
        begun, before = time.perf_counter(), mallory.admitted
        assert (await send(host, 300_000)).result["structuredContent"]
        took.append(time.perf_counter() - begun)
        meanwhile.append(mallory.admitted - before)
    return sorted(took), sorted(meanwhile)


@covers("T46")
@pytest.mark.parametrize("kind", ["responses to nothing", "requests"])
async def test_beside_large_bodies_on_many_connections_a_neighbour_is_served(tmp_path: Path, kind: str) -> None:
    issuer = TokenIssuer(tmp_path)
    async with (
        bounded(90),
        ScriptedServer() as server,
        serve_process(tmp_path, server.url, auth=guarded(issuer), limits={"rate": []}) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        url = gateway.url()
        alice, host = (Host(http, url, issuer.token(AUDIENCE, subject=name)) for name in ("alice", "mallory"))
        await alice.initialize()
        await host.initialize()
        server.script["quick"] = result({"content": []})
        body = answer_to_nothing() if kind == "responses to nothing" else call_of("quick", host)
        mallory = Mallory(host, body)
        in_peace, _ = await asked(alice, mallory)
        async with watching(gateway, f"large {kind} on {CONNECTIONS} connections") as watch:
            attack = asyncio.create_task(mallory.attack())
            in_war, meanwhile = await asked(alice, mallory)
            mallory.over = True
            await attack
        peace, war, first = (statistics.median(each) for each in (in_peace, in_war, meanwhile))
        sys.stdout.write(
            f"{kind}: a neighbour's large call took {peace:.3f} s before and {war:.3f} s beside {mallory.admitted}"
            f" bodies that were read and {mallory.refused} that were not; {first:g} of these came first,"
            f" {meanwhile[-1]} at most\n"
        )
        assert watch.longest_silence < 2
        # No more than were there when it came; how many of them a turn lets first is counted in `test_offload`.
        assert first <= CONNECTIONS


@covers("T46", "T57")
async def test_what_is_read_of_a_caller_over_its_rate_is_no_more_the_more_it_sends(tmp_path: Path) -> None:
    async def admitted(bodies: int, folder: Path) -> int:
        folder.mkdir()
        async with (
            ScriptedServer() as server,
            serve_process(folder, server.url, limits=SCARCE) as gateway,
            watching(gateway, f"{bodies} large bodies of one caller") as watch,
        ):
            address, port = gateway.listen.split(":")
            continued, body = 0, answer_to_nothing()
            asks = {"Content_Length": str(len(body)), "Expect": "100-continue"}
            head = post("", path="/reports/mcp", host=gateway.listen, **asks)
            for _ in range(bodies):
                async with raw_host((address, int(port))) as host:
                    await host.send(head)
                    if (await host.head()).status == 429:
                        # The refusal, and no byte behind it.
                        assert json.loads(await host.rest())["error"]["data"]["policy"] == "bodies"
                        continue
                    continued += 1
                    await host.ask(body)
        assert watch.longest_silence < 2
        return continued

    async with bounded(120):
        few, many = await admitted(24, tmp_path / "few"), await admitted(96, tmp_path / "many")
    # The burst is 64 MiB: sixteen bodies of almost 4 MiB.
    assert few == many == 16
