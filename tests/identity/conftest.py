"""Fixtures of the tests with a real identity provider, which is skipped where there is no Node.js to run it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helpers.identity_provider import IdentityProvider
from provider import install


@pytest.fixture(scope="session")
def provider_installed() -> None:
    """Skips the test where the provider cannot be had; a failure where nothing may be missing."""
    try:
        install.ensure()
    except install.ProviderNotInstalled as reason:
        if install.nothing_may_be_missing():
            pytest.fail(f"nothing may be missing here, but: {reason}", pytrace=False)
        pytest.skip(str(reason))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def provider(provider_installed: None) -> AsyncIterator[IdentityProvider]:
    """One provider for all tests that change nothing about it."""
    async with IdentityProvider() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def issuers(
    provider: IdentityProvider, provider_installed: None
) -> AsyncIterator[tuple[IdentityProvider, IdentityProvider]]:
    """The provider, and another one with the same clients."""
    async with IdentityProvider() as other:
        yield provider, other


@pytest.fixture
async def own_provider(provider_installed: None) -> AsyncIterator[IdentityProvider]:
    """A provider for one test, whose keys may be exchanged."""
    async with IdentityProvider() as running:
        yield running
