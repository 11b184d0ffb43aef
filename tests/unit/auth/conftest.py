"""Fixtures of the tests of an issuer's keys."""

import pytest

from unit.auth.scripted_fetch import FIRST, URI, Heard, ScriptedFetch, key_set


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
