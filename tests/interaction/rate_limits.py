"""Gateways with rates, and hosts that ask too often of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded

Opens = Callable[..., AbstractAsyncContextManager[Gateway]]
TASK = "A" * 32
CALLS = {"name": "calls", "scope": "context", "rate": "1/m", "burst": 2, "methods": ["tools/call"]}


def present() -> ManualClock:
    """A clock that stands still; at the present, for the sake of tokens."""
    return ManualClock(datetime.now(UTC))


@asynccontextmanager
async def limited(
    server: ScriptedServer, clock: ManualClock, *rates: dict[str, Any], **limits: Any
) -> AsyncIterator[Gateway]:
    """A gateway with these rates, in front of one server under two names. It refuses at once, without `wait`."""
    servers = {"reports": server.url, "search": server.url}
    config = configuration(servers, limits={"rate": list(rates), "wait": "0s", **limits})
    async with serve(config, Environment(clock=clock)) as gateway:
        yield gateway


@asynccontextmanager
async def limited_by_token(
    server: ScriptedServer,
    issuer: TokenIssuer,
    clock: ManualClock,
    *rates: dict[str, Any],
    tenants: bool = False,
    audit: Any = None,
    tasks: Any = None,
    **limits: Any,
) -> AsyncIterator[Gateway]:
    """The same, but who asks is known by a token, and its tenant, where `tenants`, by the claim `org`."""
    section = {**issuer.section, **({"claims": {"tenant": "org"}} if tenants else {})}
    config = guarded(
        {"reports": server.url},
        issuer,
        auth={"issuers": {"corp": section}},
        limits={"rate": list(rates), "wait": "0s", **limits},
        **({"audit": audit} if audit else {}),
        **({"tasks": tasks} if tasks else {}),
    )
    async with serve(config, Environment(clock=clock)) as gateway:
        yield gateway


async def passes(host: Host, *tools: str) -> list[bool]:
    """Of calls of these tools, one after the other, which were let through."""
    return [not is_refused(await host.call(tool)) for tool in tools]


def is_refused(answer: Answer) -> bool:
    """Whether a limit refused it."""
    message = answer.message
    return message is not None and "error" in message and message["error"].get("code") == 429
