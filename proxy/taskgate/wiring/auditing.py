"""The settings of the audit log from the configuration: `audit_settings`, with its keys and file
paths.

`TelemetryPipeline` uses it to open and reload the log (`telemetry.auditlog`). The command that
checks a configuration uses `expect_keys`.
"""

import os
import socket
from logging import getLogger
from pathlib import Path
from typing import Final

from taskgate.auth.key_file import KeyFileRefused, read_keys, read_or_make_keys
from taskgate.clock import Entropy
from taskgate.config import GatewayConfig
from taskgate.config.sections.audit import AuditSection, AuditSinkSection
from taskgate.system.secret_files import ADVICE, is_exposed
from taskgate.telemetry.auditlog.settings import AuditSettings, ChainSettings, LineOptions, SinkSettings
from taskgate.telemetry.auditlog.signing import SigningKeyError, signer_of

KEY_FILE: Final = "audit.key"
LOG_FILE: Final = "audit.jsonl"
_KEY_BYTES: Final = 32
_LONGEST_PEM: Final = 16 * 2**10
_OF: Final = "the audit log"

log = getLogger("taskgate.audit")


def audit_settings(
    config: GatewayConfig, data_directory: Path | None, entropy: Entropy, *, before: AuditSettings | None = None
) -> AuditSettings:
    """Return the settings of the log, with its keys. Raises KeyFileRefused.

    At a reload `before` are the present settings. If the log is on, no key file is created then: old
    lines could not be verified with a new key. A log that is off has no sinks. Without a data
    directory, a file sink without a path is left out, and a key without a file lasts as long as the
    process.
    """
    section = config.audit
    if not section.enabled:
        return AuditSettings(sinks=(), key=entropy.token(_KEY_BYTES) if before is None else before.key, node=_node())
    return AuditSettings(
        sinks=_sinks(section, data_directory),
        key=_key(section, data_directory, entropy, before),
        node=_node(),
        line_options=LineOptions(
            format=section.format,
            identity=section.identity,
            arguments=section.arguments,
            results=section.results,
            redact=section.redact,
        ),
        events=section.events,
        chain=_chain(section),
        queue=section.queue,
        on_full=section.on_full,
        block_timeout=section.block_timeout,
    )


def expect_keys(config: GatewayConfig) -> None:
    """Check the configured key files as `audit_settings` would. Raises KeyFileRefused."""
    section = config.audit
    if section.enabled:
        if section.hmac_key_file is not None:
            _named_key(section.hmac_key_file)
        _chain(section)


def read_pem(path: Path) -> bytes:
    """Read a file with a key in PEM form. Raises KeyFileRefused with the reason only."""
    try:
        with path.open("rb") as file:
            exposed = is_exposed(path, os.fstat(file.fileno()).st_mode, "audit.chain.sign_key_file")
            text = file.read(_LONGEST_PEM + 1)
    except (OSError, ValueError) as error:
        raise KeyFileRefused(f"cannot be read: {os.strerror(getattr(error, 'errno', 0) or 0)}") from None
    if exposed:
        raise KeyFileRefused(ADVICE)
    if len(text) > _LONGEST_PEM:
        raise KeyFileRefused("is too large for a key")
    return text


def _node() -> str:
    return socket.gethostname()


def _sinks(section: AuditSection, data_directory: Path | None) -> tuple[SinkSettings, ...]:
    found = []
    for sink in section.sinks:
        if sink.type == "file" and sink.path is None and data_directory is None:
            log.warning(
                "an audit sink is skipped: it has no path and there is no data directory", extra={"sink": sink.name}
            )
        else:
            found.append(_sink(sink, data_directory))
    return tuple(found)


def _sink(sink: AuditSinkSection, data_directory: Path | None) -> SinkSettings:
    path = None if sink.type == "stdout" else sink.path or (data_directory or Path()) / LOG_FILE
    rotate = sink.rotate
    return SinkSettings(
        name=sink.name,
        path=path,
        events=sink.events,
        rotate_size=None if rotate is None else rotate.size,
        keep=1 if rotate is None else rotate.keep,
        fsync=sink.fsync or "never",
        was_named=sink.type == "stdout" or sink.path is not None,
    )


def _key(section: AuditSection, data_directory: Path | None, entropy: Entropy, before: AuditSettings | None) -> bytes:
    if section.hmac_key_file is not None:
        return _named_key(section.hmac_key_file)
    if data_directory is not None:
        file = data_directory / KEY_FILE
        is_first = before is None or not before.sinks
        try:
            return (read_or_make_keys(file, entropy, of=_OF) if is_first else read_keys(file, of=_OF)).current
        except KeyFileRefused as refusal:
            raise KeyFileRefused(f"{KEY_FILE} in the data directory: {refusal}") from None
    return entropy.token(_KEY_BYTES) if before is None else before.key


def _named_key(path: Path) -> bytes:
    try:
        return read_keys(path, of=_OF).current
    except KeyFileRefused as refusal:
        raise KeyFileRefused(f"audit.hmac_key_file: {refusal}") from None


def _chain(section: AuditSection) -> ChainSettings:
    chain = section.chain
    pem = None
    if chain.sign_key_file is not None:
        try:
            pem = read_pem(chain.sign_key_file)
            signer_of(b"", pem)
        except (KeyFileRefused, SigningKeyError) as refusal:
            raise KeyFileRefused(f"audit.chain.sign_key_file: {refusal}") from None
    return ChainSettings(
        enabled=chain.enabled,
        checkpoint_events=chain.checkpoint_events,
        checkpoint_interval=chain.checkpoint_interval,
        signing_key=pem,
    )
