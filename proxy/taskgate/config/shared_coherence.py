"""What the keys about a store that several gateways share say together.

What lives here: the rules between keys of `store.redis` and `store.lease`, and what gateways that share a store have to
have in common. What must not: the models. What holds: as in coherence, malformed parts contradict nothing; without
backend redis there is nothing to contradict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from taskgate.config.problems import Location
from taskgate.config.store_addresses import StoreAddress, place_of
from taskgate.config.units import DurationIn
from taskgate.config.written import Contradiction, listed, read, section, told

_REDIS: Final = ("store", "redis")
_URL: Final = (*_REDIS, "url")
_TLS: Final = (*_REDIS, "tls")
_HEARTBEAT: Final = ("store", "lease", "heartbeat")
_TTL: Final = ("store", "lease", "ttl")


def shared_contradictions(written: object, usual: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    if section(written, "store").get("backend") != "redis":
        return
    redis = section(written, *_REDIS)
    yield from _of_place(redis)
    yield from _of_sentinel(redis)
    yield from _of_tls(redis)
    if redis.get("username") is not None and redis.get("password") is None:
        yield (*_REDIS, "username"), "must be null without a password"
    yield from _of_lease(written, usual)
    yield from _in_common(written)


def _of_place(redis: Mapping[str, object]) -> Iterator[Contradiction]:
    mode, url = redis.get("mode", "standalone"), redis.get("url")
    if url is None:
        if mode in ("standalone", "cluster"):
            yield _URL, "is required with store.backend redis"
        return
    place = _place(url)
    if place is None:
        return
    if mode == "sentinel" and place.server is not None:
        yield _URL, "must not name a host with mode sentinel, where sentinels do: write redis:///0 or rediss:///0"
    if mode in ("standalone", "cluster") and place.server is None:
        yield _URL, "must name a host, unless mode is sentinel"
    if mode == "cluster" and place.database:
        yield _URL, "must not name a database but 0 with mode cluster, which has no other"


def _of_sentinel(redis: Mapping[str, object]) -> Iterator[Contradiction]:
    mode, sentinel, where = redis.get("mode", "standalone"), section(redis, "sentinel"), (*_REDIS, "sentinel")
    has_service, has_nodes = sentinel.get("service") is not None, bool(listed(sentinel, "nodes"))
    if mode == "sentinel":
        if not has_service:
            yield (*where, "service"), "is required with mode sentinel"
        if not has_nodes and sentinel.get("nodes", []) == []:
            yield (*where, "nodes"), "must not be empty with mode sentinel"
    elif mode in ("standalone", "cluster"):
        if has_service:
            yield (*where, "service"), f"must be null with mode {mode}"
        if has_nodes:
            yield (*where, "nodes"), f"must be empty with mode {mode}"


def _of_tls(redis: Mapping[str, object]) -> Iterator[Contradiction]:
    tls = section(redis, "tls")
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tls.get(one) is None and tls.get(other) is not None:
            yield (*_TLS, one), f"is required with {other}"
    place = _place(redis.get("url", "redis:///0") or "redis:///0")
    for key in ("ca_file", "cert_file", "key_file"):
        if place is not None and not place.tls and tls.get(key) is not None:
            yield (*_TLS, key), "must be null unless url is rediss://"


def _of_lease(written: object, usual: object) -> Iterator[Contradiction]:
    heartbeat = read((written, usual), _HEARTBEAT, DurationIn().read)
    ttl = read((written, usual), _TTL, DurationIn().read)
    if heartbeat is not None and ttl is not None and 2 * heartbeat > ttl:
        yield told(written, usual, _HEARTBEAT, _TTL, ("must be at most half of", "must be at least twice"))


def _in_common(written: object) -> Iterator[Contradiction]:
    """Keys that a gateway would otherwise make for itself."""
    needed: list[tuple[Location, str]] = [(("auth", "context", "key_file"), "store.backend redis")]
    if section(written, "audit").get("enabled", True) is True:
        needed.append((("audit", "hmac_key_file"), "store.backend redis, unless audit.enabled is false"))
    for where, when in needed:
        *above, last = map(str, where)
        if section(written, *above).get(last) is None:
            yield where, f"is required with {when}: it has to be the same in every gateway"


def _place(url: object) -> StoreAddress | None:
    try:
        return place_of(url) if isinstance(url, str) else None
    except ValueError:
        return None
