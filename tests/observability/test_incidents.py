"""Incidents with real parts: within a minute of each, every place where operators look says what is wrong."""

import asyncio
from pathlib import Path

import pytest

from helpers.prometheus_server import require_prometheus
from helpers.store_server import SharedServer
from observability.incident_scene import PLACES, playing
from observability.incidents import INCIDENTS, Incident

pytestmark = [pytest.mark.alone, pytest.mark.timeout(240)]

CAUSES = Path(__file__).parents[2] / "docs" / "operate" / "causes.md"
WITHIN = 60.0


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.what)
def test_the_documentation_has_what_each_place_says(incident: Incident) -> None:
    assert incident.row in CAUSES.read_text()


async def test_each_incident_is_in_every_place_within_a_minute(valkey_server: SharedServer, tmp_path: Path) -> None:
    require_prometheus()
    loop = asyncio.get_running_loop()
    async with playing(tmp_path, valkey_server) as scene:
        missing = {incident: set(PLACES) for incident in INCIDENTS}
        began = loop.time()
        await scene.break_all()
        while any(missing.values()) and loop.time() - began < WITHIN:
            for gateway in {incident.gateway for incident, places in missing.items() if places}:
                found = await scene.look(gateway)
                for incident in (each for each in INCIDENTS if each.gateway == gateway):
                    missing[incident] -= scene.showing(incident, found)
    assert {incident.what: places for incident, places in missing.items() if places} == {}
