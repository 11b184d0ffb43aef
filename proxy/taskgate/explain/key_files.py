"""Whether the files with keys and certificates that a configuration names can be used, as a start would find them.

What must not live here: making a key. What holds: what is refused here `taskgate serve` refuses, with the same words.
"""

from __future__ import annotations

from taskgate.clock import SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.config.settings import upstream_settings
from taskgate.listener.tls import made_context
from taskgate.upstream.wire.trust import TlsFileRefused, tls_context
from taskgate.wiring.auditing import expect_keys
from taskgate.wiring.authentication import deployment_keys, operators_token


def expect_key_files(config: GatewayConfig) -> None:
    """Read each of them. Raises KeyFileRefused, TlsRefused or TlsFileRefused."""
    expect_keys(config)
    if config.auth.context.key_file is not None:
        deployment_keys(config, None, SystemEntropy())
    operators_token(config)
    tls = config.server.tls.to_settings()
    if tls is not None:
        made_context(tls)
    for name, section in config.upstreams.items():
        if section.url is not None and section.url.lower().startswith("https:"):
            try:
                tls_context(upstream_settings(config, name).tls)
            except TlsFileRefused as refused:
                raise TlsFileRefused(f"upstreams.{name}.{refused}") from None
