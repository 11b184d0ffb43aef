"""An operator sees what a gateway refused last, and for what reason."""

from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from interaction.operators import VIEWER, act, look, tokens


async def test_a_refused_call_is_listed_with_its_reason(server: ScriptedServer, tmp_path: Path) -> None:
    config = configuration({"reports": server.url}, admin=tokens(tmp_path))
    async with serve(config) as gateway:
        assert (await look(gateway, "/api/v1/refusals"))["items"] == []
        host = await gateway.greeted()
        assert (await act(gateway, "/api/v1/upstreams/reports/hold"))[0] == 200
        for _ in range(2):
            await host.call("report")
        found = await look(gateway, "/api/v1/refusals")
        [refusal] = found["items"]
        assert (refusal["kind"], refusal["reason"], refusal["upstream"]) == ("queue", "held", "reports")
        assert (refusal["count"], refusal["address"]) == (2, "127.0.0.0/24")
        assert refusal["at"] <= found["now"]


@pytest.mark.parametrize("limit", ["0", "201", "many"])
async def test_a_limit_out_of_range_is_refused(server: ScriptedServer, tmp_path: Path, limit: str) -> None:
    config = configuration({"reports": server.url}, admin=tokens(tmp_path))
    async with serve(config) as gateway:
        status, _ = await gateway.operators(f"/api/v1/refusals?limit={limit}", Authorization=VIEWER)
        assert status == 400
