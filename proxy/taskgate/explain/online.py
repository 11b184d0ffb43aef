"""Questions to other machines: `ask_all` asks servers, issuers and the store whether they answer.

`taskgate check --online` is the user. Each question has a bound of its own, and they are asked at the
same time. A failure comes with its reason and what to do.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Final, NamedTuple

from taskgate.auth.claims import IssuerSettings
from taskgate.auth.fetch import FetchFailed, HttpFetcher
from taskgate.auth.metadata import DiscoveryRefused
from taskgate.clock import SystemClock
from taskgate.config import GatewayConfig
from taskgate.egress import Egress
from taskgate.errors import StoreUnavailable
from taskgate.explain.inputs import ServerNotAsked, ask_server
from taskgate.protocol.handoff import LIST
from taskgate.stores.open import expect_server
from taskgate.wiring.authentication import place_of_keys

_AT_ONCE: Final = 8
"""Questions that are asked at the same time: each may start a program."""
_FETCH_ADVICE: Final = {
    "unreachable": "no connection; check the address and the network",
    "address": "the metadata leads to an address that is not public; set jwks_uri or jwks_file",
    "tls": "its certificate is not trusted; set ca_file if its authority is private",
    "ca_file": "ca_file cannot be used; name a readable file with certificates as PEM",
    "timeout": "no answer in time; raise jwks.timeout, or check the network",
    "redirect": "it redirects, which is not followed; write the final address",
    "status": "it does not answer with HTTP 200; check issuer or jwks_uri",
    "content_type": "the answer is no JSON; check issuer or jwks_uri",
    "issuer": "the metadata names another issuer; write issuer as its tokens have it",
    "key_set": "there is no usable key; check algorithms",
}
"""What to do about a failed fetch of keys, by reason."""


class Answer(NamedTuple):
    """The answer of one party: `passed` is None if it was not asked."""

    key: str
    passed: bool | None
    message: str

    def __str__(self) -> str:
        words = {True: "ok", False: "FAILED", None: "not asked"}
        return f"{self.key}: {words[self.passed]}: {self.message}"


async def ask_all(config: GatewayConfig) -> list[Answer]:
    """Ask each server, each issuer and a shared store once, and return their answers in that order."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def asked(question: Awaitable[Answer]) -> Answer:
        async with turns:
            answer = await question
            return answer._replace(message=config.references.hide(answer.message))

    return list(await asyncio.gather(*map(asked, _questions(config))))


def _questions(config: GatewayConfig) -> Iterator[Awaitable[Answer]]:
    for name in config.upstreams:
        yield _ask_server(config, name)
    for settings in config.auth.to_issuer_settings() if config.auth.mode == "required" else ():
        yield _ask_issuer(settings, place_of_keys(config, settings), config.to_egress())
    if config.store.backend == "redis":
        yield _ask_store(config)


async def _ask_server(config: GatewayConfig, name: str) -> Answer:
    key = f"upstreams.{name}"
    if config.upstreams[name].credentials.mode == "token_exchange":
        return Answer(key, None, "its credentials need the token of a caller; try taskgate explain --online --token")
    # No host gets a tool of any server that has the name of one of the gateway.
    reserved = config.tasks.to_reserved(config.tasks.to_policy(config.auth.mode))
    try:
        peer, tools = await ask_server(config, name, None, None, lists_tools=bool(reserved))
    except ServerNotAsked as failed:
        text = str(failed).removeprefix(f"{key} ").removeprefix("was asked in vain ")
        # The query of a URL may have a key in it.
        place = (config.upstreams[name].url or "").partition("?")[0]
        at = f" at {place}" if place else ""
        return Answer(key, False, f"{text}{at}; check that the server runs, and its url or command")
    if taken := sorted(reserved.intersection(tools)):
        which = ", ".join(taken)
        renamed = "that of the server" if LIST.name in taken else "that of tasks.handoff.tools"
        text = f"it has a tool {which}, which hosts do not get, as the gateway has; rename {renamed}"
        return Answer(key, False, text)
    return Answer(key, True, f"it speaks {peer.revision}")


async def _ask_issuer(settings: IssuerSettings, place: str, egress: Egress) -> Answer:
    # They load the libraries of signatures, which a gateway without authentication saves.
    from taskgate.auth.jwks import fetch_key_set  # noqa: PLC0415
    from taskgate.auth.keyset import KeySetRefused  # noqa: PLC0415

    key, fetcher = f"auth.issuers.{settings.name}", HttpFetcher(egress)
    try:
        keys = await fetch_key_set(settings, fetcher, SystemClock())
    except (FetchFailed, DiscoveryRefused, KeySetRefused) as failed:
        advice = _FETCH_ADVICE.get(failed.reason, "the answer cannot be used; check issuer or jwks_uri")
        cause = f": {failed.cause}" if isinstance(failed, FetchFailed) else ""
        return Answer(key, False, f"({failed.reason}) {place}{cause}; {advice}")
    finally:
        await fetcher.close()
    return Answer(key, True, f"{keys.count} usable {'key' if keys.count == 1 else 'keys'}")


async def _ask_store(config: GatewayConfig) -> Answer:
    try:
        await expect_server(config.store.redis.to_options())
    except StoreUnavailable as failed:
        return Answer("store.redis", False, str(failed))
    return Answer("store.redis", True, "it answers, and is fit")
