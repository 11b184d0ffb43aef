"""What the keys about who may do what say together.

What lives here: the rules between keys of `auth` and `authorization`, and those that depend on `auth.mode`, but for how
long tasks are kept (retention). What must not: the models. What holds: as in coherence, malformed parts contradict
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from taskgate.config.addresses import read_listen
from taskgate.config.problems import dotted
from taskgate.config.written import Contradiction, listed, read, section

_ISSUERS = ("auth", "issuers")


def auth_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    mode = section(written, "auth").get("mode")
    if mode == "none":
        yield from _without_authentication(written)
    if mode == "required":
        yield from _with_authentication(written)
    for name in section(written, *_ISSUERS):
        yield from _sources_of_keys(section(written, *_ISSUERS, name), (*_ISSUERS, name))
    yield from _same_issuers(written)
    for index, rule in enumerate(listed(written, "authorization", "rules")):
        if section(rule).get("effect") == "deny" and listed(rule, "require_scopes"):
            where = ("authorization", "rules", index, "require_scopes")
            yield where, "must be empty with effect deny, which refuses whatever the scopes"


def _without_authentication(written: object) -> Iterator[Contradiction]:
    if section(written, *_ISSUERS):
        yield _ISSUERS, "must be empty with auth.mode none, which asks nobody for a token"
    if section(written, "auth").get("allow_insecure") is not True:
        for keys in (("server", "listen"), ("admin", "listen")):
            address = read((written, {keys[0]: {"listen": None}}), keys, read_listen)
            if address and not address.is_loopback:
                addresses = "a loopback address (127.0.0.1, [::1] or localhost)"
                yield keys, f"must be {addresses} with auth.mode none, unless auth.allow_insecure is true"
    for index, rule in enumerate(listed(written, "authorization", "rules")):
        for key, thing in (("require_scopes", "scopes"), ("claims", "claims")):
            if listed(rule, key) or section(rule, key):
                where = ("authorization", "rules", index, key)
                yield where, f"must be empty with auth.mode none, where nobody has {thing}"


def _with_authentication(written: object) -> Iterator[Contradiction]:
    if not section(written, *_ISSUERS):
        yield _ISSUERS, "must name at least one issuer with auth.mode required"
    if section(written, "auth").get("allow_insecure") is True:
        yield ("auth", "allow_insecure"), "can be true only with auth.mode none"
    address = read((written, {"server": {"listen": None}}), ("server", "listen"), read_listen)
    if address and address.is_everywhere and section(written, "server").get("public_url") is None:
        why = "with auth.mode required where server.listen is every address: tokens are made for one"
        yield ("server", "public_url"), f"must be given {why}"


def _sources_of_keys(issuer: Mapping[str, object], where: tuple[str, ...]) -> Iterator[Contradiction]:
    given = [key for key in ("jwks_uri", "jwks_file") if issuer.get(key) is not None]
    if len(given) > 1:
        yield (*where, "jwks_file"), f"must not be given beside {dotted((*where, 'jwks_uri'))}"
    if not given and issuer.get("discovery") is False:
        yield (*where, "discovery"), "must be true, or else jwks_uri or jwks_file must be given"


def _same_issuers(written: object) -> Iterator[Contradiction]:
    owners: dict[str, str] = {}
    for name in section(written, *_ISSUERS):
        issuer = section(written, *_ISSUERS, name).get("issuer")
        if isinstance(issuer, str) and owners.setdefault(issuer, name) != name:
            yield (*_ISSUERS, name, "issuer"), f"must not be the issuer of {dotted((*_ISSUERS, owners[issuer]))}"
