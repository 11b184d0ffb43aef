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
Tells = Callable[..., list[str]]

AT = "f:6: store.redis."
SHAPE = "must be redis://HOST:PORT/DATABASE, with TLS rediss://; the port and the database may be left out"
NAMED = "must name a host, and a port from 1 to 65535 if any"
NO_USER = "must not hold a user name or password: username and password are keys of their own"
PREFIX = "must be 1 to 64 of A-Z a-z 0-9 : . _ / -"


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


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        *((f"url: '{url}'", f"url: {SHAPE}") for url in ("http://a", "a:6379", "redis://a/x", "redis://a/0/1", "")),
        *(
            (f"url: '{url}'", f"url: {SHAPE}")
            for url in ("redis://a?db=1", "redis://a#b", "REDIS://a", "redis://a/10000")
        ),
        *(
            (f"url: '{url}'", f"url: {NAMED}")
            for url in ("redis://a:0", "redis://a:99999", "redis://1.2.3", "redis://é")
        ),
        ("url: 'redis://:s3cret@a'", f"url: {NO_USER}"),
        (
            "url: 'redis://a', password: ''",
            "password: must be 1 to 8192 characters of ASCII without control characters",
        ),
        *(
            (f"url: 'redis://a', key_prefix: {one}", f"key_prefix: {PREFIX}")
            for one in ("''", "'{a}'", "a*", "a b", "a" * 65, "é", '"a\\n"')
        ),
        ("url: 'redis://a', mode: ring", "mode: must be 'standalone', 'sentinel' or 'cluster'"),
        ("url: 'redis://a', pool: {max_connections: 0}", "pool.max_connections: must be at least 1"),
        ("url: 'redis://a', pool: {timeout: 2m}", "pool.timeout: must be at most 1m"),
        ("url: 'redis://a', timeouts: {connect: 0s}", "timeouts.connect: "),
        ("url: 'redis://a', timeouts: {command: 61s}", "timeouts.command: must be at most 1m"),
        ("url: 'redis://a', wait_replicas: 17", "wait_replicas: must be at most 16"),
        ("mode: sentinel, sentinel: {service: a, nodes: ['a:0']}", f"sentinel.nodes[0]: {NAMED}"),
        ("mode: sentinel, sentinel: {service: a, nodes: [a, 'a:26379']}", "sentinel.nodes: must not hold the same"),
    ],
)
def test_a_bad_value_is_told_and_nothing_else_is(tells: Tells, keys: str, told: str) -> None:
    [line] = tells(text(keys))
    assert line.startswith(f"{AT}{told}")
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("", "url: is required with store.backend redis"),
        ("mode: cluster", "url: is required with store.backend redis"),
        ("url: 'redis:///1'", "url: must name a host, unless mode is sentinel"),
        (
            "url: 'redis://a/1', mode: cluster",
            "url: must not name a database but 0 with mode cluster, which has no other",
        ),
        (
            "url: 'redis://a', mode: sentinel, sentinel: {service: a, nodes: [b]}",
            "url: must not name a host with mode sentinel, where sentinels do: write redis:///0 or rediss:///0",
        ),
        ("mode: sentinel, sentinel: {nodes: [b]}", "sentinel.service: is required with mode sentinel"),
        ("mode: sentinel, sentinel: {service: a}", "sentinel.nodes: must not be empty with mode sentinel"),
        ("url: 'redis://a', sentinel: {service: a}", "sentinel.service: must be null with mode standalone"),
        ("url: 'redis://a', mode: cluster, sentinel: {nodes: [b]}", "sentinel.nodes: must be empty with mode cluster"),
        ("url: 'rediss://a', tls: {cert_file: /a}", "tls.key_file: is required with cert_file"),
        ("url: 'rediss://a', tls: {key_file: /a}", "tls.cert_file: is required with key_file"),
        ("url: 'redis://a', tls: {ca_file: /a}", "tls.ca_file: must be null unless url is rediss://"),
        (
            "mode: sentinel, sentinel: {service: a, nodes: [b]}, tls: {ca_file: /a}",
            "tls.ca_file: must be null unless url is rediss://",
        ),
        ("url: 'redis://a', username: a", "username: must be null without a password"),
    ],
)
def test_keys_that_do_not_go_together_are_told(tells: Tells, keys: str, told: str) -> None:
    assert tells(text(keys)) == [f"{AT}{told}"]


@pytest.mark.parametrize(
    ("lease", "told"),
    [
        ("{ttl: 9s}", "store.lease.ttl: must be at least twice store.lease.heartbeat, which is 5s unless given"),
        (
            "{heartbeat: 8s}",
            "store.lease.heartbeat: must be at most half of store.lease.ttl, which is 15s unless given",
        ),
        ("{ttl: 3s, heartbeat: 2s}", "store.lease.heartbeat: must be at most half of store.lease.ttl"),
    ],
)
def test_one_lost_sign_of_life_does_not_cost_a_lease(tells: Tells, lease: str, told: str) -> None:
    assert tells(text("url: 'redis://a'", lease=lease)) == [f"f:6: {told}"]


def test_a_heartbeat_of_half_the_lease_will_do(loads: Loads) -> None:
    assert loads(text("url: 'redis://a'", lease="{ttl: 4s, heartbeat: 2s}")).store.lease.ttl == timedelta(seconds=4)


ISSUER = "issuers: {corp: {issuer: 'https://idp.example.com/'}}"


def test_gateways_that_share_a_store_are_given_their_keys(tells: Tells, loads: Loads) -> None:
    """One that made a key for itself would take its callers for others, and call tasks by other names in its log."""
    shared = "it has to be the same in every gateway"
    auth, audit = f"{{mode: required, {ISSUER}}}", "{}"
    assert tells(text("url: 'redis://a'", auth=auth, audit=audit)) == [
        f"f:2: auth.context.key_file: is required with store.backend redis: {shared}",
        f"f:4: audit.hmac_key_file: is required with store.backend redis, unless audit.enabled is false: {shared}",
    ]
    auth, audit = f"{{mode: required, {ISSUER}, context: {{key_file: /a}}}}", "{hmac_key_file: /b}"
    assert loads(text("url: 'redis://a'", auth=auth, audit=audit)).store.backend == "redis"


def test_with_another_backend_nothing_is_asked_for(loads: Loads, minimal: str) -> None:
    config = loads(minimal + "store: {redis: {username: a, mode: cluster}, lease: {ttl: 1s}}\n")
    assert config.store.backend == "sqlite"


@pytest.mark.parametrize("odd", [None, 1, "a", [], [1], {"service": []}, {"ttl": 1, "heartbeat": []}], ids=str)
def test_malformed_parts_contradict_nothing(odd: object) -> None:
    redis = {"url": odd, "mode": odd, "sentinel": odd, "tls": odd, "username": None, "password": odd}
    store = {"backend": "redis", "redis": redis, "lease": odd}
    for tree in (odd, {"store": odd}, {"store": {"backend": odd}}, {"auth": odd, "audit": odd, "store": store}):
        told = {".".join(map(str, where)) for where, _ in store_conflicts(tree, DEFAULTS)}
        assert told <= {"store.redis.url", "auth.context.key_file", "audit.hmac_key_file"}
