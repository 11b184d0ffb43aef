"""What the floors below make of `upstreams`: the configuration as values of theirs.

What lives here: that translation and nothing else. What must not: opening, reading or asking what the values name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from taskgate.config.credential_models import CredentialsSection
from taskgate.config.models import GatewayConfig
from taskgate.config.upstream_models import TimeoutsSection
from taskgate.mcp.versions import Revision
from taskgate.upstream.settings import (
    FixedHeader,
    GrantKind,
    GrantSettings,
    IdentityHeaders,
    TlsSettings,
    ToolTimeouts,
    UpstreamSettings,
)

_USUAL_CEILING: Final = timedelta(hours=24)


def upstream_settings(config: GatewayConfig, name: str) -> UpstreamSettings:
    """The server of that name."""
    section = config.upstreams[name]
    tls = section.tls
    return UpstreamSettings(
        name=name,
        url=section.url,
        revision=None if section.protocol_version == "auto" else Revision(section.protocol_version),
        connect=section.timeouts.connect,
        first_byte=section.timeouts.first_byte,
        idle=section.timeouts.idle,
        call=section.timeouts.call,
        ceiling=_ceiling(section.timeouts),
        tools=_tools(section.timeouts),
        max_result=config.tasks.max_result,
        credentials=_credentials(section.credentials),
        identity=IdentityHeaders(context=section.identity_headers.context, subject=section.identity_headers.subject),
        tls=TlsSettings(
            ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            server_name=tls.server_name,
            insecure_skip_verify=tls.insecure_skip_verify,
        ),
    )


def _ceiling(timeouts: TimeoutsSection) -> timedelta:
    return timeouts.ceiling or max(_USUAL_CEILING, timeouts.call)


def _tools(timeouts: TimeoutsSection) -> tuple[ToolTimeouts, ...]:
    """The rules for tools with nothing left open."""
    return tuple(
        ToolTimeouts(
            tool=rule.tool,
            call=rule.call or timeouts.call,
            ceiling=rule.ceiling or max(_ceiling(timeouts), rule.call or timeouts.call),
            idle=rule.idle or timeouts.idle,
        )
        for rule in timeouts.tools
    )


def _credentials(section: CredentialsSection) -> FixedHeader | GrantSettings | None:
    if section.mode == "header":
        assert section.header is not None, "the mode needs it"
        assert section.value is not None, "the mode needs it"
        return FixedHeader(name=section.header, value=section.value)
    if section.mode in ("client_credentials", "token_exchange"):
        assert section.token_url is not None, "the mode needs it"
        assert section.client_id is not None, "the mode needs it"
        assert section.client_secret is not None, "the mode needs it"
        return GrantSettings(
            kind=GrantKind(section.mode),
            token_url=section.token_url,
            client_id=section.client_id,
            client_secret=section.client_secret,
            resource=section.resource,
            audience=section.audience,
            scopes=section.scopes,
            keeps=section.cache,
        )
    return None
