"""The largest event that a host takes is found by its name, or by its User-Agent."""

import pytest

from taskgate.domain.versions import Client
from taskgate.streams.event_limits import EventLimit, EventLimits

LIMITS = EventLimits((EventLimit("desk/1.*", 10), EventLimit("desk/*", 20), EventLimit("lib/*", 30)))


@pytest.mark.parametrize(
    ("name", "version", "agent", "most"),
    [
        ("desk", "1.2", None, 10),
        ("desk", "2", "lib/3", 20),
        ("desk", None, None, 20),
        ("other", "1", "lib/2.16.2", 30),
        ("Desk", "1", None, None),
        (None, None, "python-httpx/0.28", None),
    ],
)
def test_the_first_glob_that_matches_the_host_or_its_user_agent_counts(
    name: str | None, version: str | None, agent: str | None, most: int | None
) -> None:
    assert LIMITS.most(Client(name, version), agent) == most


def test_without_a_glob_no_host_has_a_limit() -> None:
    assert EventLimits().most(Client("desk", "1"), "lib/3") is None
