"""What becomes of the extensions of an upstream: those that are known, those that the file names, and all others.

The findings are plain values that become JSON as they are, in the words of the file. What must not live here: what
crosses, which is asked of the policy that a gateway asks (`protocol.extensions`), and asking a server (`servers`).
"""

from typing import Any, Final

from taskgate.config import GatewayConfig
from taskgate.config.sections.extensions import ERAS
from taskgate.domain.versions import Era, Peer, era_of
from taskgate.explain import bounds
from taskgate.explain.places import place
from taskgate.protocol.extensions import AUTHORIZATION, BUILT_IN, Extension, ExtensionPolicy, is_declared
from taskgate.protocol.vocabulary import TASKS_EXTENSION

MOST: Final = 64
"""Identifiers that a server declares and that are told."""
LONGEST: Final = 256
"""Letters of one of them that are told; see config.sections.extensions."""

_LISTS: Final = ("methods", "notifications", "filters", "result_types", "cacheable")


def extensions(config: GatewayConfig, upstream: str, server: Peer | None = None) -> dict[str, Any]:
    """What becomes of each, and of those that `server` declares, if it was asked."""
    section = config.upstreams[upstream].extensions
    policy = section.to_policy()
    names = [*BUILT_IN, TASKS_EXTENSION, *sorted(AUTHORIZATION)]
    names += [name for name in section.named if name not in names]
    return {
        "default": bounds.said(config, "upstreams", upstream, "extensions", "default"),
        "each": {name: _one(config, upstream, policy, name) for name in names},
        "declared": None if server is None else _declared(policy, server),
    }


def _one(config: GatewayConfig, upstream: str, policy: ExtensionPolicy, name: str) -> dict[str, Any]:
    where = place(config, "upstreams", upstream, "extensions", name)
    between = {host: [each for each in ERAS if policy.carries(name, ERAS[host], ERAS[each])] for host in ERAS}
    allowed = policy.allowed.get(name, Extension())
    return {
        "becomes": _becomes(name, crosses=any(between.values())),
        "servers_by_host": between,
        **{key: sorted(getattr(allowed, key)) for key in _LISTS},
        "from": where.path,
        "default": where.is_default,
    }


def _declared(policy: ExtensionPolicy, server: Peer) -> dict[str, Any]:
    """By identifier, hosts of which eras are told of it."""
    era, capabilities = era_of(server.revision), server.capabilities
    written = capabilities.get("extensions")
    names = list(written) if isinstance(written, dict) else []
    names += [name for name, each in BUILT_IN.items() if name not in names and is_declared(name, each, capabilities)]
    return {
        "revision": server.revision.value,
        "era": _word(era),
        "each": {_shown(name): _told(policy, name, era) for name in names[:MOST]},
        "left_out": max(0, len(names) - MOST),
    }


def _told(policy: ExtensionPolicy, name: str, server: Era) -> dict[str, Any]:
    hosts = [host for host in ERAS if policy.carries(name, ERAS[host], server)]
    return {"becomes": _becomes(name, crosses=bool(hosts)), "hosts": hosts}


def _becomes(name: str, *, crosses: bool) -> str:
    if name == TASKS_EXTENSION:
        return "own"
    return "crosses" if crosses else "denied"


def _word(era: Era) -> str:
    return next(word for word, each in ERAS.items() if each is era)


def _shown(name: str) -> str:
    """An identifier as it can be printed, whatever a server put there."""
    cut = name[:LONGEST]
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()
