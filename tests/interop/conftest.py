"""Fixtures of the interop tests: every pinned release of the SDK, and a real server on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from interop.servers import VERSIONS, LegacyServer, legacy_server, require_environment


@pytest.fixture(params=VERSIONS)
def server_version(request: pytest.FixtureRequest) -> str:
    """Each pinned release in turn; its environment is there."""
    version: str = request.param
    require_environment(version)
    return version


@pytest.fixture
async def reports_server(server_version: str, tmp_path: Path) -> AsyncIterator[LegacyServer]:
    """The reports server on that release."""
    async with legacy_server(server_version, tmp_path) as server:
        yield server
