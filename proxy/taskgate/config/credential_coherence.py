"""What the keys about credentials for servers say together.

What lives here: the rules between keys of `credentials`, `identity_headers` and `tls`, and those that depend on
`auth.mode`. What must not: the models. What holds: as in coherence, malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from taskgate.config.problems import Location, dotted
from taskgate.config.written import Contradiction, listed, section

_HEADER = ("header", "value")
_CLIENT = ("token_url", "client_id", "client_secret")
_TARGET = ("resource", "audience")
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "header": _HEADER,
    "client_credentials": _CLIENT,
    "token_exchange": _CLIENT,
    "mtls": (),
}
_TAKEN: Mapping[str, tuple[str, ...]] = {
    "header": _HEADER,
    "client_credentials": (*_CLIENT, *_TARGET),
    "token_exchange": (*_CLIENT, *_TARGET),
}


def credential_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    anonymous = section(written, "auth").get("mode") == "none"
    for name in section(written, "upstreams"):
        here = ("upstreams", name)
        upstream = section(written, *here)
        yield from _of_mode(upstream, here, anonymous=anonymous)
        yield from _of_headers(upstream, here, anonymous=anonymous)
        yield from _of_tls(upstream, here)


def _of_mode(upstream: Mapping[str, object], here: Location, *, anonymous: bool) -> Iterator[Contradiction]:
    given, where = section(upstream, "credentials"), (*here, "credentials")
    mode = given.get("mode", "none")
    if not isinstance(mode, str) or mode not in _NEEDED:
        return
    for key in _NEEDED[mode]:
        if given.get(key) is None:
            yield (*where, key), f"is required with mode {mode}"
    for key in (*_HEADER, *_CLIENT, *_TARGET):
        if given.get(key) is not None and key not in _TAKEN.get(mode, ()):
            yield (*where, key), f"must be null with mode {mode}"
    asks = mode in ("client_credentials", "token_exchange")
    if listed(given, "scopes") and not asks:
        yield (*where, "scopes"), f"must be empty with mode {mode}"
    if given.get("cache") is False and not asks:
        yield (*where, "cache"), f"must be true with mode {mode}"
    if mode == "token_exchange" and all(given.get(key) is None for key in _TARGET):
        yield (*where, "audience"), "is required with mode token_exchange, unless resource is given"
    if mode == "token_exchange" and anonymous:
        yield (*where, "mode"), "must not be token_exchange with auth.mode none, where nobody has a token"


def _of_headers(upstream: Mapping[str, object], here: Location, *, anonymous: bool) -> Iterator[Contradiction]:
    credentials, identity = section(upstream, "credentials"), section(upstream, "identity_headers")
    if anonymous and identity.get("subject") is not None:
        where = (*here, "identity_headers", "subject")
        yield where, "must be null with auth.mode none, where nobody has a subject"
    owners: dict[str, Location] = {}
    for location, name in (
        ((*here, "credentials", "header"), credentials.get("header")),
        ((*here, "identity_headers", "context"), identity.get("context")),
        ((*here, "identity_headers", "subject"), identity.get("subject")),
    ):
        if isinstance(name, str) and owners.setdefault(name.lower(), location) != location:
            yield location, f"must not be the header of {dotted(owners[name.lower()])}"


def _of_tls(upstream: Mapping[str, object], here: Location) -> Iterator[Contradiction]:
    tls, url, where = section(upstream, "tls"), upstream.get("url"), (*here, "tls")
    mode = section(upstream, "credentials").get("mode")
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tls.get(one) is None and (tls.get(other) is not None or mode == "mtls"):
            yield (*where, one), f"is required with {'mode mtls' if mode == 'mtls' else other}"
    if not isinstance(url, str) or url.lower().startswith("https:"):
        return
    if mode == "mtls":
        yield (*here, "url"), "must be https with mode mtls"
    for key in ("ca_file", "cert_file", "key_file", "server_name"):
        if tls.get(key) is not None:
            yield (*where, key), "must be null unless url is https"
    if tls.get("insecure_skip_verify") is True:
        yield (*where, "insecure_skip_verify"), "must be false unless url is https"
