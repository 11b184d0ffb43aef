"""Caps over whole lives of a gateway: creates, cancels, ends, expiry and kills mixed, none exceeded and none leaked."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helpers.gateway.gateway import Environment, serve
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interaction.storm import CAPS, DORA, KEPT, MOUNTS, Ledger, Storm
from requirements import covers

LIVES = (200, 40, 12)
"""How much happens at once in each."""
LONGER_THAN_ANY = timedelta(minutes=11)


def config(server: ScriptedServer, issuer: TokenIssuer, folder: Path) -> Any:
    return guarded(
        dict.fromkeys(MOUNTS, server.url),
        issuer,
        folder=folder,
        upstreams={name: {"path": f"/{name}/mcp", "url": server.url, "concurrency": 3} for name in MOUNTS},
        auth={"issuers": {"corp": {**issuer.section, "claims": {"tenant": "org"}}}},
        tasks={
            "upgrade": [{"tool": "slow", "mode": "auto", "inline_grace": "10ms"}, {"tool": "*", "mode": "always"}],
            "ttl": {"default": "30s", "min": "1s", "max": "30s", "keep": "1s"},
        },
        limits={
            "rate": [],
            "concurrency": {**CAPS, "kept_per_context": f"{KEPT}B"},
            "overrides": [{"match": {"claims": {"sub": ["dora"]}}, "concurrency": {"tasks_per_context": DORA}}],
        },
        store={"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}, "purge_interval": "50ms"},
    )


@covers("R-RES-1")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
async def test_no_cap_is_exceeded_or_leaks(
    server: ScriptedServer, issuer: TokenIssuer, clock: ManualClock, tmp_path: Path, seed: int
) -> None:
    server.tools.append({"name": "slow", "inputSchema": {"type": "object"}})
    chance, refusals = Random(seed), Counter[str]()
    keys, most = tmp_path / "keys", 0
    for folder in (tmp_path / "0", keys):
        folder.mkdir()
    server.script["report"] = server.script["slow"] = Hold()
    for life, abreast in enumerate(LIVES):
        folder = tmp_path / str(life)
        ledger = Ledger(folder / "taskgate.db", clock)
        async with serve(config(server, issuer, folder), Environment(clock=clock), data_directory=keys) as gateway:
            ledger.check()
            storm = Storm(gateway, server, issuer, ledger, chance)
            await storm.arrive()
            async with bounded(60):
                raging = asyncio.create_task(storm.rage(200, 100, abreast))
                fall = chance.randint(20, 180)
                await eventually(lambda: storm.ended >= fall, within=60)  # noqa: B023
                # The next life begins with what a kill at this moment leaves.
                ledger.image(tmp_path / str(life + 1))
                await raging
                await storm.calm()
                await storm.hoard("ann", "reports")
                await storm.fill()
            refusals += storm.refusals
            most = max(most, ledger.most["global"])
    # It was a storm: nearly every cap was met.
    assert most > CAPS["tasks_per_tenant"]
    assert {"context", "tenant", "global", "bytes"} <= refusals.keys()

    ledger = Ledger(tmp_path / str(len(LIVES)) / "taskgate.db", clock)
    async with serve(
        config(server, issuer, ledger.path.parent), Environment(clock=clock), data_directory=keys
    ) as gateway:
        storm = Storm(gateway, server, issuer, ledger, chance)
        await storm.arrive()
        clock.advance(LONGER_THAN_ANY)
        async with bounded():
            await eventually(lambda: not ledger.kept())
            await storm.fill()
        assert "bytes" not in storm.refusals
        assert ledger.unfinished()["global"].total() == CAPS["tasks_global"]
