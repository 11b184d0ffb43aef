"""Findings about this machine: files, folders, keys, certificates and addresses that a start needs.

The functions that a start uses read the keys and certificates, so the texts are the same. Nothing
is created. `checks` is the user.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from taskgate.auth.claims import IssuerSettings
from taskgate.auth.fetch import FetchFailed
from taskgate.auth.key_file import KeyFileRefused, read_keys
from taskgate.authorities import AuthoritiesRefused, trust_of
from taskgate.clock import SystemEntropy
from taskgate.config import BindAddress, ConfigurationError, GatewayConfig, expect_data_directory, needs_data_directory
from taskgate.errors import StoreUnavailable
from taskgate.explain.findings import Findings
from taskgate.listener.tls import TlsRefused, made_context
from taskgate.stores.open import expect_usable
from taskgate.system.descriptors import is_locked
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.auditlog.sinks import expect_log
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingUnavailable, require_exporter
from taskgate.upstream.credentials.client_auth import ClientFileRefused, expect_client_file
from taskgate.upstream.settings import GrantSettings
from taskgate.upstream.wire.trust import TlsFileRefused, tls_context
from taskgate.wiring.app import ListenFailed, expect_address
from taskgate.wiring.audit_files import LOG_FILE, sink_reasons
from taskgate.wiring.authentication import KEY_FILE, deployment_keys, operator_tokens
from taskgate.wiring.observability import KEY_FILE as AUDIT_KEY_FILE
from taskgate.wiring.observability import OWN_KEYS, expect_keys

EXPIRES_SOON: Final = timedelta(days=30)
"""How long before the end of a certificate a warning begins."""
_MOST_NAMES: Final = 5
"""Names of a certificate that a warning has."""
_REFUSALS: Final = (
    KeyFileRefused,
    TlsRefused,
    TlsFileRefused,
    ClientFileRefused,
    TracingUnavailable,
    StoreUnavailable,
    ListenFailed,
)


def check_machine(
    config: GatewayConfig, environ: Mapping[str, str], found: Findings, *, is_running: bool, now: datetime
) -> None:
    """Add what a start on this machine would find.

    With `is_running` a gateway runs with this configuration: its ports and files are in use.
    """
    directory = _check_data_directory(config, environ, found)
    for step in _steps(config):
        try:
            step()
        except _REFUSALS as refused:
            found.refused(refused)
    _check_store(config, directory, found, is_running=is_running)
    _check_sinks(config, directory, found, is_running=is_running)
    _check_certificates(config, now, found)
    _check_key_sets(config, found)
    if not is_running:
        for key, address in (("server.listen", config.server.listen), ("admin.listen", config.admin.listen)):
            _check_address(key, address, found)


def _steps(config: GatewayConfig) -> Iterator[Callable[[], object]]:
    """The checks that end with the error of a start."""
    yield lambda: expect_keys(config)
    if config.auth.context.key_file is not None:
        yield lambda: deployment_keys(config, None, SystemEntropy())
    yield lambda: operator_tokens(config)
    for tls in (config.server.tls.to_settings("server.tls"), config.admin.tls.to_settings("admin.tls")):
        if tls is not None:
            yield partial(made_context, tls)
    for name in config.upstreams:
        yield partial(_expect_upstream_tls, config, name)
        yield partial(_expect_client_file, config, name)
        yield partial(_expect_authorities, f"upstreams.{name}.credentials", config.upstreams[name].credentials.ca_file)
    for name, issuer in config.auth.issuers.items():
        yield partial(_expect_authorities, f"auth.issuers.{name}", issuer.ca_file)
    if config.tracing.enabled:
        yield lambda: require_exporter(Exporter(config.tracing.exporter))


def _expect_upstream_tls(config: GatewayConfig, name: str) -> None:
    section = config.upstreams[name]
    if section.url is not None and section.url.lower().startswith("https:"):
        try:
            tls_context(section.tls.to_settings())
        except TlsFileRefused as refused:
            raise TlsFileRefused(f"upstreams.{name}.{refused}") from None


def _expect_client_file(config: GatewayConfig, name: str) -> None:
    grant = config.upstreams[name].credentials.to_settings()
    if isinstance(grant, GrantSettings):
        try:
            expect_client_file(grant)
        except ClientFileRefused as refused:
            raise ClientFileRefused(f"upstreams.{name}.{refused}") from None


def _expect_authorities(section: str, ca_file: Path | None) -> None:
    if ca_file is not None:
        try:
            trust_of(ca_file)
        except AuthoritiesRefused as refused:
            raise TlsFileRefused(f"{section}.ca_file: {refused}") from None


def _check_address(key: str, address: BindAddress, found: Findings) -> None:
    try:
        expect_address(key, address)
    except ListenFailed as failed:
        is_taken = isinstance(failed.__context__, OSError) and failed.__context__.errno == errno.EADDRINUSE
        advice = "; if a gateway runs with this file, check with --running" if is_taken else ""
        found.error("", f"{failed}{advice}")


# --- the data directory, the store and the audit log ------------------------------------------------------------------


def _check_data_directory(config: GatewayConfig, environ: Mapping[str, str], found: Findings) -> Path | None:
    if not needs_data_directory(config):
        return None
    try:
        directory = expect_data_directory(environ)
    except ConfigurationError as wrong:
        found.refused(wrong)
        return None
    needed = {KEY_FILE: config.auth.mode == "required" and config.auth.context.key_file is None}
    needed[AUDIT_KEY_FILE] = config.audit.enabled and config.audit.hmac_key_file is None
    for name, is_needed in needed.items():
        if is_needed and (directory / name).exists():
            try:
                read_keys(directory / name)
            except KeyFileRefused as refused:
                found.error(f"{name} in the data directory", str(refused))
    return directory


def _check_store(config: GatewayConfig, directory: Path | None, found: Findings, *, is_running: bool) -> None:
    store = config.store
    try:
        if store.backend == "redis":
            expect_usable(store.redis.to_options(), is_running=is_running)
        elif store.backend == "sqlite" and (store.sqlite.path or directory):
            expect_usable(store.sqlite.to_options(directory), is_running=is_running)
    except StoreUnavailable as refused:
        if store.backend == "redis":
            found.error("store.redis", str(refused))
        else:
            found.error("store.sqlite.path", f"{store.sqlite.to_options(directory).path}: {refused}")


def _check_sinks(config: GatewayConfig, directory: Path | None, found: Findings, *, is_running: bool) -> None:
    reasons = sink_reasons(config, directory, OWN_KEYS)
    for sink in config.audit.sinks if config.audit.enabled else ():
        path = sink.path or (None if directory is None else directory / LOG_FILE)
        if sink.type != "file" or path is None:
            continue
        # The data directory is created by a start; the folder of a named path is not.
        reason = _unusable(path, is_running=is_running) if sink.path or path.parent.exists() else None
        reason = reasons.get(sink.name, reason)
        if reason is not None:
            found.error(f"audit.sinks ({sink.name})", reason)


def _unusable(path: Path, *, is_running: bool) -> str | None:
    """Say why an audit file cannot be written; None if it can."""
    if not path.parent.is_dir():
        return f"cannot be written: there is no folder {path.parent}; create it"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"cannot be written: the folder {path.parent} cannot be written: no permission"
    if path.exists() and not path.is_file():
        return "must be a regular file"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"cannot be written: {path}: no permission"
    try:
        expect_log(path)
    except AuditUnavailable as refused:
        return str(refused)
    except OSError as failed:
        return f"cannot be written: {failed.strerror}"
    return None if is_running or not path.exists() else _lock_reason(path)


def _lock_reason(path: Path) -> str | None:
    with path.open("rb") as file:
        if is_locked(file.fileno()):
            return f"{path} is in use by another process; if it is this gateway, check with --running"
    return None


# --- certificates and key sets ----------------------------------------------------------------------------------------


def _check_certificates(config: GatewayConfig, now: datetime, found: Findings) -> None:
    files: list[tuple[str, Path | None]] = [
        ("server.tls.cert_file", config.server.tls.cert_file),
        ("server.tls.client_ca_file", config.server.tls.client_ca_file),
        ("admin.tls.cert_file", config.admin.tls.cert_file),
        ("admin.tls.client_ca_file", config.admin.tls.client_ca_file),
    ]
    for name, section in config.upstreams.items():
        files += [(f"upstreams.{name}.tls.{key}", getattr(section.tls, key)) for key in ("ca_file", "cert_file")]
        files.append((f"upstreams.{name}.credentials.ca_file", section.credentials.ca_file))
    files += [(f"auth.issuers.{name}.ca_file", issuer.ca_file) for name, issuer in config.auth.issuers.items()]
    if config.store.backend == "redis":
        files += [(f"store.redis.tls.{key}", getattr(config.store.redis.tls, key)) for key in ("ca_file", "cert_file")]
    for key, path in files:
        if path is not None:
            for text in _time_left(path, now):
                found.warn(key, text)
    public = urlsplit(config.server.public_url or "")
    own = config.server.tls.cert_file
    # A proxy that adds a forwarding header ends the TLS of hosts, with a certificate of its own.
    if own is not None and public.scheme == "https" and public.hostname and not config.server.trusted_proxies:
        reason = _name_reason(own, public.hostname)
        if reason is not None:
            found.warn("server.tls.cert_file", reason)


def _name_reason(path: Path, host: str) -> str | None:
    """Say that the first certificate of a file is for other hosts; None if it is for this one, or is unreadable."""
    from cryptography import x509  # noqa: PLC0415

    try:
        extensions = x509.load_pem_x509_certificates(path.read_bytes())[0].extensions
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = alternatives.get_values_for_type(x509.DNSName)
        addresses = [str(each) for each in alternatives.get_values_for_type(x509.IPAddress)]
    except x509.ExtensionNotFound:
        names, addresses = [], []
    except (OSError, ValueError):
        return None
    try:
        is_named = str(ip_address(host)) in addresses
    except ValueError:
        is_named = any(_is_named(host, name) for name in names)
    if is_named:
        return None
    given = [*names, *addresses]
    more = [f"{len(given) - _MOST_NAMES} more"] if len(given) > _MOST_NAMES else []
    found = ", ".join([*given[:_MOST_NAMES], *more]) or "no host (no subjectAltName)"
    return (
        f"the certificate is for {found}; server.public_url needs one for {host}, so hosts refuse it: "
        "renew it with that name, or correct the URL"
    )


def _is_named(host: str, name: str) -> bool:
    """Tell whether a name of a certificate is that of a host. A wildcard stands for one label, the first."""
    host, name = host.lower(), name.lower()
    if name.startswith("*."):
        # Hosts refuse a wildcard below a top-level domain.
        first, _, rest = host.partition(".")
        return bool(first) and "." in rest and rest == name[2:]
    return host == name


def _time_left(path: Path, now: datetime) -> Iterator[str]:
    """Say which certificates of a file have expired, expire soon, or are not valid yet."""
    # It takes a tenth of a second to load, which a gateway without certificates saves.
    from cryptography import x509  # noqa: PLC0415

    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        # What cannot be read is an error already.
        return
    for each in certificates:
        until, since = each.not_valid_after_utc, each.not_valid_before_utc
        name = each.subject.rfc4514_string() or "without a name"
        if until <= now:
            yield f"the certificate {name} expired on {_day(until)}; renew it"
        elif since > now:
            yield f"the certificate {name} is not valid before {_day(since)}"
        elif until - now < EXPIRES_SOON:
            yield f"the certificate {name} expires on {_day(until)}, in {(until - now).days} days; renew it"


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()


def _check_key_sets(config: GatewayConfig, found: Findings) -> None:
    if config.auth.mode != "required":
        return
    for settings in config.auth.to_issuer_settings():
        if settings.keys.file is not None and (reason := _key_set_reason(settings, settings.keys.file)):
            found.error(f"auth.issuers.{settings.name}.jwks_file", reason)


def _key_set_reason(settings: IssuerSettings, path: Path) -> str | None:
    """Say why a file is no key set that tokens can be verified with; None if it is one."""
    # They load the libraries of signatures, which a gateway without authentication saves.
    from taskgate.auth.jwks import read_file  # noqa: PLC0415
    from taskgate.auth.keyset import KeySet, KeySetRefused  # noqa: PLC0415

    try:
        KeySet.read(read_file(path, settings.keys.max_size), settings.algorithms)
    except FetchFailed as failed:
        if failed.reason == "too_large":
            return f"{path} is larger than jwks.max_size"
        try:
            path.open("rb").close()
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        return f"{path} is not a regular file"
    except KeySetRefused:
        algorithms = ", ".join(settings.algorithms)
        return f"{path} has no usable key: it must be a JWK set with a public key for one of {algorithms}"
    return None
