"""Asking a server who it is, as a gateway with that configuration would: its handshake, or its discovery.

What must not live here: what becomes of what it says (`extensions`). What holds: the wait is bounded, the session ends
with the answer, and no key of the deployment is touched.
"""

import asyncio
from dataclasses import replace
from logging import NullHandler, getLogger

from taskgate.auth.context import Identity
from taskgate.clock import SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.settings import upstream_settings
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed
from taskgate.upstream.health import DEAF, QUIET
from taskgate.upstream.principal import Principal
from taskgate.upstream.stdio.nurse import Nurse
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.build import upstream_maker


class ServerNotAsked(Exception):
    """The server did not say who it is; the text says why."""


async def ask(config: GatewayConfig, upstream: str, identity: Identity | None, token: str | None) -> Peer:
    """What the server says of itself to that caller. Raises ServerNotAsked.

    The header for the reference of the caller's context is left out: it is made with a key of the deployment.
    """
    settings = upstream_settings(config, upstream)
    settings = replace(settings, identity=replace(settings.identity, context=None))
    within = settings.connect + 2 * settings.first_byte
    # What it has to say is in the error.
    log, silent = getLogger("taskgate"), NullHandler()
    log.addHandler(silent)
    nurse, entropy = Nurse(), SystemEntropy()
    try:
        server = upstream_maker(nurse, entropy)(settings, QUIET, SystemClock())
        session = server.session(DEAF, lambda: _speaker(identity, token))
        try:
            async with asyncio.timeout(within.total_seconds()):
                return (await session.open()).peer
        finally:
            await session.close()
            await server.close()
    except TlsFileRefused as refused:
        raise ServerNotAsked(f"upstreams.{upstream}.{refused}") from None
    except UpstreamFailed as failure:
        raise ServerNotAsked(f"upstreams.{upstream} was asked in vain ({failure.reason}): {failure}") from None
    except TimeoutError:
        raise ServerNotAsked(f"upstreams.{upstream} was asked in vain (timeout): it said nothing in time") from None
    finally:
        await nurse.close()
        log.removeHandler(silent)


def _speaker(identity: Identity | None, token: str | None) -> Principal:
    if identity is None:
        return Principal(context="explain")
    return Principal(
        context="explain",
        subject=identity.subject,
        client=identity.client_id,
        token=token,
        scopes=identity.scopes,
        good_until=identity.expires_at,
    )
