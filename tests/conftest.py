"""What every test gets."""

import pytest
from hypothesis import settings

from helpers.leaks import no_task_left_behind, nothing_left_behind
from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.shared_store import redis_server, shared_options, shared_server, valkey_server
from helpers.told import MARKER, told

__all__ = [
    "clock",
    "entropy",
    "no_task_left_behind",
    "nothing_left_behind",
    "redis_server",
    "shared_options",
    "shared_server",
    "told",
    "valkey_server",
]

# How long one example takes says more about the machine than about the code. "few" is for what no luck may decide.
settings.register_profile("taskgate", deadline=None)
settings.register_profile("few", deadline=None, max_examples=5, derandomize=True, database=None)
settings.load_profile("taskgate")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known by which a test is not judged by what it tells."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    """Chance that is the same in every run."""
    return SeededEntropy()
