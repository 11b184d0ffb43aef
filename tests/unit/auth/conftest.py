"""Fixtures of the tests of an issuer's keys."""

from collections.abc import AsyncIterator

import pytest

from helpers.manual_clock import ManualClock
from taskgate.auth.jwks import IssuerKeys
from unit.auth.scripted_fetch import FIRST, URI, Heard, ScriptedFetch, closing, key_set, settings_of


@pytest.fixture
def fetch() -> ScriptedFetch:
    """An address that has the first key."""
    fetch = ScriptedFetch()
    fetch.answers[URI] = key_set(FIRST)
    return fetch


@pytest.fixture
def heard() -> Heard:
    """Hears how refreshes go."""
    return Heard()


@pytest.fixture
async def keys(fetch: ScriptedFetch, clock: ManualClock, heard: Heard) -> AsyncIterator[IssuerKeys]:
    """The keys at URI, nothing fetched yet and nothing in the background."""
    async with closing(IssuerKeys(settings_of(uri=URI), fetch, clock, heard)) as keys:
        yield keys
