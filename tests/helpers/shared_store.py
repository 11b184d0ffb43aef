"""Real Redis and Valkey for tests.

A test that pauses, kills or configures a server starts one of its own (`SharedServer`, `Watched`, `Clustered`). All
others share one of each kind, under a prefix that no other test has: they ask for `valkey_server`, `redis_server` or,
for each in turn, `shared_server`, and `shared_options`, which also holds each of them to leave no key that never
expires. These servers are to be asked for by name, in the signature of a test or of a fixture: one that is first
started in the middle of a test is taken to be left behind by it.
"""

from collections.abc import Iterator

import pytest

from helpers.store_failover import Clustered, Watched
from helpers.store_server import KINDS, Kind, SharedServer, redis_binary, valkey_binary
from taskgate.stores.redis.options import RedisOptions

__all__ = [
    "KINDS",
    "Clustered",
    "Kind",
    "SharedServer",
    "Watched",
    "expect_every_key_to_expire",
    "redis_binary",
    "redis_server",
    "shared_options",
    "shared_server",
    "valkey_binary",
    "valkey_server",
]


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A Valkey that tests share."""
    with SharedServer(tmp_path_factory.mktemp("valkey"), "valkey") as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A Redis that tests share."""
    with SharedServer(tmp_path_factory.mktemp("redis"), "redis") as server:
        yield server


@pytest.fixture(scope="session", params=KINDS)
def shared_server(request: pytest.FixtureRequest) -> SharedServer:
    """Both in turn."""
    server: SharedServer = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def shared_options(shared_server: SharedServer) -> Iterator[RedisOptions]:
    """A prefix of the test's own at either; what is kept there when the test ends must expire."""
    options = shared_server.options()
    yield options
    expect_every_key_to_expire(shared_server, options)


def expect_every_key_to_expire(server: SharedServer, options: RedisOptions) -> None:
    """Fail a test that leaves a key which stays for ever, and remove what it kept."""
    for_ever = server.without_expiry(options.key_prefix)
    if keys := server.keys(options.key_prefix):
        server.ask("DEL", *keys)
    assert not for_ever, f"never expire: {for_ever}"
