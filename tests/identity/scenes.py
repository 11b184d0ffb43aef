"""Alice, what she has behind a gateway, and somebody who is about to ask for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.identity_provider import IdentityProvider
from helpers.server import ScriptedServer
from identity.gateways import Belongings, acquire, guarded, inside, key_file, resource, scripted

Issuers = tuple[IdentityProvider, IdentityProvider]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Somebody who asks. By default it is Alice once more: the same claims in the same token, and another session.

    `token` is the very same as Alice's, a new one, none, or no token at all; `subject` None is a client on its own
    behalf. `session` is one of the asker's own or Alice's. `restarted` says whether the gateway was since, and
    with which deployment key: a rotated one has the one before it beside it.
    """

    token: Literal["same", "new", "none", "garbage"] = "new"
    provider: int = 0
    client: str = "host-a"
    subject: str | None = "alice"
    scopes: tuple[str, ...] = ("reports.read", "reports.run")
    lifetime: int = 300
    audience: str = "reports"
    mount: str = "reports"
    session: Literal["own", "alice's"] = "own"
    restarted: Literal["no", "same key", "rotated key", "replaced key"] = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One question about to be asked. `alice` has a session beside the one that is asked for."""

    server: ScriptedServer
    owned: Belongings
    asker: Host
    alice: Host

    @property
    def intruder(self) -> Host:
        """The asker, with the id of Alice's session."""
        return inside(self.asker, self.owned)


@asynccontextmanager
async def scene_of(asker: Asker, issuers: Issuers, folder: Path, *, cursor: bool) -> AsyncIterator[Scene]:
    """Alice makes what she has; the gateway is started anew if it is to be; the asker is about to ask."""
    stays = asker.restarted == "no"
    auth = {"context": {"key_file": str(key_file(folder / "key", "first"))}}
    token = await issuers[0].token(subject="alice", resource=resource("reports"))
    async with scripted() as server:
        config = guarded(server, *issuers, auth=auth, folder=None if stays else folder)
        async with serve(config) as gateway:
            owned = await acquire(await gateway.greeted(token=token), cursor=cursor, runs=stays)
            if stays:
                yield await about_to_ask(gateway, server, asker, owned, issuers, token)
        if not stays:
            names = {"same key": ("first",), "rotated key": ("second", "first"), "replaced key": ("second",)}
            key_file(folder / "key", *names[asker.restarted])
            async with serve(config) as gateway:
                yield await about_to_ask(gateway, server, asker, owned, issuers, token)


async def about_to_ask(
    gateway: Gateway,
    server: ScriptedServer,
    asker: Asker,
    owned: Belongings,
    issuers: Issuers,
    token: str,
) -> Scene:
    """The scene, with the asker in the session that it asks from."""
    host = gateway.host(asker.mount, await token_of(asker, issuers, token))
    if asker.session == "own":
        await host.initialize()
    else:
        host = inside(host, owned)
    return Scene(server=server, owned=owned, asker=host, alice=await gateway.greeted(token=token))


async def token_of(asker: Asker, issuers: Issuers, alices: str) -> str | None:
    """What the asker sends."""
    match asker.token:
        case "same":
            return alices
        case "none":
            return None
        case "garbage":
            return "garbage"
    return await issuers[asker.provider].token(
        asker.client,
        subject=asker.subject,
        scopes=asker.scopes,
        lifetime=asker.lifetime,
        resource=resource(asker.audience),
    )
