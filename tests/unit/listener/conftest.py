"""What every test of the listeners gets."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from unit.listener.gate import PLANTED, Gate, opened
from unit.listener.operating import operated

__all__ = ["operated"]


@pytest.fixture(autouse=True)
def nothing_of_the_peers_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which a log line, whatever its level or logger, holds what a peer sent."""
    caplog.set_level(logging.DEBUG)
    yield
    formatter = logging.Formatter()
    for record in caplog.get_records("call"):
        assert PLANTED not in formatter.format(record)
        assert PLANTED not in repr(vars(record))


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    """A listener whose engine answers each request with its number."""
    async with opened() as gate:
        yield gate
