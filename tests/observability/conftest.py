"""The scenario, played once for all tests that read what it left behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helpers.prometheus_server import require_prometheus
from interop.servers import require_environment
from observability.drive import LEGACY_RELEASE, MODERN_RELEASE, Drive, Run
from observability.reading import Archive
from provider import install


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What was left behind; skipped, or failed where nothing may be missing, without what the scenario needs."""
    require_prometheus()
    for release in (LEGACY_RELEASE, MODERN_RELEASE):
        require_environment(release)
    try:
        install.ensure()
    except install.ProviderNotInstalled as reason:
        if install.nothing_may_be_missing():
            pytest.fail(f"nothing may be missing here, but: {reason}", pytrace=False)
        pytest.skip(str(reason))
    return asyncio.run(Drive(tmp_path_factory.mktemp("scenario")).play())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def archive(run: Run) -> AsyncIterator[Archive]:
    """A Prometheus that has what the one of the scenario has seen, and sees nothing more."""
    async with Archive(run) as archive:
        yield archive
