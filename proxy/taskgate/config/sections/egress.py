"""Section `egress`: the proxy through which servers, issuers and token endpoints are reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

from pydantic import AfterValidator, Field, PlainSerializer

from taskgate.config.addresses import read_host
from taskgate.config.fields import Section, json_pattern
from taskgate.config.problems import Conflict, mapping_at
from taskgate.egress import DIRECT, WRONG_PROXY, Egress, read_exceptions, read_proxy

ENVIRONMENT, NONE = "environment", "none"
_TARGET = r"^[^\s,/]+(/[0-9]{1,3})?$"


def read_choice(written: str) -> str:
    """Return the URL of a proxy, or one of the two words."""
    if written not in (ENVIRONMENT, NONE):
        if not written.startswith("http://"):
            raise ValueError(f"must be environment, none, {WRONG_PROXY.removeprefix('must be ')}")
        read_proxy(written)
    return written


def _read_exception(written: str) -> str:
    if re.fullmatch(_TARGET, written):
        (found,) = read_exceptions(written)
        if found.network is not None or found.name == "*":
            return written
        with suppress(ValueError):
            # A port that no URL has is left in the name.
            if ":" not in read_host(found.name):
                return written
    raise ValueError("must be a name, an address, a network or *, without scheme or path, such as a.example:8443")


def _masked(written: str) -> str:
    return written if written in (ENVIRONMENT, NONE) else str(read_proxy(written))


ProxyChoice = Annotated[
    str,
    AfterValidator(read_choice),
    PlainSerializer(_masked, when_used="json"),
    json_pattern(r"^(environment|none|http://\S+)$"),
]
DirectTarget = Annotated[str, AfterValidator(_read_exception), json_pattern(_TARGET)]


class EgressSection(Section):
    """The proxy through which servers, issuers and token endpoints are reached."""

    proxy: ProxyChoice = Field(default=ENVIRONMENT, repr=False)
    """environment: the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY; none: no proxy; else the URL of
    a proxy for http and https, such as http://proxy.corp:3128.
    """
    no_proxy: tuple[DirectTarget, ...] = ()
    """With the URL of a proxy: names with all below them, addresses, networks or * that are reached
    directly. Loopback always is.
    """

    def to_egress(self, environment: Egress) -> Egress:
        """Return which proxy leads to a target; `environment` is what the variables say."""
        if self.proxy == ENVIRONMENT:
            return environment
        if self.proxy == NONE:
            return DIRECT
        proxy = read_proxy(self.proxy)
        return Egress(http=proxy, https=proxy, exceptions=read_exceptions(",".join(self.no_proxy)))


def egress_conflicts(raw: object) -> Iterator[Conflict]:
    """Find exceptions that nothing uses."""
    section = mapping_at(raw, "egress")
    if section.get("no_proxy") and section.get("proxy", ENVIRONMENT) in (ENVIRONMENT, NONE):
        yield ("egress", "no_proxy"), "must not be given unless egress.proxy is a URL: else NO_PROXY is the list"
