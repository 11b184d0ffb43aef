"""The keys of a store that gateways share: what they take and refuse, what they say together, what they become."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.fields import MASK
from taskgate.config.model import DEFAULTS
from taskgate.config.sections.store import store_conflicts
from taskgate.stores.redis.options import RedisOptions

Loads = Callable[..., GatewayConfig]


def text(
    redis: str,
    *,
    auth: str = "{mode: none, context: {key_file: /k}}",
    lease: str = "{}",
    audit: str = "{enabled: false}",
) -> str:
    upstreams = "{a: {path: /a, url: 'http://a'}}"
    store = f"store: {{backend: redis, lease: {lease}, redis: {{{redis}}}}}"
    return f"version: 1\nauth: {auth}\nupstreams: {upstreams}\naudit: {audit}\n\n{store}\n"


def test_a_server_needs_its_address_alone(loads: Loads) -> None:
    options = loads(text("url: 'redis://Valkey.internal'")).store.redis.to_options()
    assert options == RedisOptions(host="valkey.internal", port=6379, database=0)


def test_every_key_reaches_the_store(loads: Loads) -> None:
    keys = (
        "url: 'rediss://[::1]:7000/3', username: gate, password: '${PW}', key_prefix: 'a/b.c_d-e:', mode: standalone, "
        "tls: {ca_file: /ca, cert_file: /cert, key_file: /key}, pool: {max_connections: 7, timeout: 1s}, "
        "timeouts: {connect: 3s, command: 4s}, wait_replicas: 1"
    )
    assert loads(text(keys), {"PW": "s3cret"}).store.redis.to_options() == RedisOptions(
        mode="standalone",
        host="::1",
        port=7000,
        database=3,
        username="gate",
        password="s3cret",
        key_prefix="a/b.c_d-e:",
        tls=True,
        ca_file=Path("/ca"),
        cert_file=Path("/cert"),
        key_file=Path("/key"),
        max_connections=7,
        pool_timeout=timedelta(seconds=1),
        connect_timeout=timedelta(seconds=3),
        command_timeout=timedelta(seconds=4),
        wait_replicas=1,
    )


@pytest.mark.parametrize(
    ("url", "tls", "database"), [("null", False, 0), ("'redis:///2'", False, 2), ("'rediss://'", True, 0)]
)
def test_sentinels_know_where_the_primary_is(loads: Loads, url: str, tls: bool, database: int) -> None:
    keys = f"url: {url}, mode: sentinel, sentinel: {{service: main, nodes: [A, 'b:1', '[::1]', '[::2]:2']}}"
    options = loads(text(keys)).store.redis.to_options()
    assert (options.mode, options.service, options.tls, options.database) == ("sentinel", "main", tls, database)
    assert options.sentinels == (("a", 26379), ("b", 1), ("::1", 26379), ("::2", 2))


def test_a_cluster_is_entered_by_any_node(loads: Loads) -> None:
    options = loads(text("url: 'redis://node:7001', mode: cluster")).store.redis.to_options()
    assert (options.mode, options.host, options.port) == ("cluster", "node", 7001)


def test_the_password_is_shown_to_nobody(loads: Loads) -> None:
    config = loads(text("url: 'redis://a', password: s3cret"))
    shown = effective(config)
    assert f"    password: '{MASK}'" in shown.splitlines()
    for told in (shown, repr(config), str(config), config.model_dump_json()):
        assert "s3cret" not in told


def test_a_password_that_is_nowhere_is_none(loads: Loads) -> None:
    block = (
        text("").replace("redis: {}}", "PW").replace("{backend: redis, lease: {}, PW", "\n  backend: redis\n  redis:")
    )
    config = loads(f"{block}    url: redis://a\n    password: ${{PW:-}}\n")
    assert config.store.redis.to_options().password is None


def test_what_is_shown_loads_to_the_same(loads: Loads) -> None:
    config = loads(
        text("mode: sentinel, sentinel: {service: main, nodes: ['[0::1]', B]}", lease="{ttl: 2s, heartbeat: 1s}")
    )
    assert loads(effective(config)) == config


@pytest.mark.parametrize("odd", [None, 1, "a", [], [1], {"service": []}, {"ttl": 1, "heartbeat": []}], ids=str)
def test_malformed_parts_contradict_nothing(odd: object) -> None:
    redis = {"url": odd, "mode": odd, "sentinel": odd, "tls": odd, "username": None, "password": odd}
    store = {"backend": "redis", "redis": redis, "lease": odd}
    for tree in (odd, {"store": odd}, {"store": {"backend": odd}}, {"auth": odd, "audit": odd, "store": store}):
        told = {".".join(map(str, where)) for where, _ in store_conflicts(tree, DEFAULTS)}
        assert told <= {"store.redis.url", "auth.context.key_file", "audit.hmac_key_file"}
