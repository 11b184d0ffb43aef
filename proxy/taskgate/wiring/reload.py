"""The reload of a configuration while the gateway runs: `Reload`.

Everything new is created first; then all of it takes effect in one step without waits. An invalid
configuration changes nothing, and a valid one ends no call but those of API keys that it removes.
`Service.reload` calls `apply`, after a signal or a request of an operator. `restart_needed` names
the changed keys that cannot take effect without a restart: they are reported, and the rest of the
configuration is applied (`without_restart`).
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import scrypt
from logging import getLogger
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from taskgate.auth.key_file import KeyFileRefused
from taskgate.config import ConfigurationError, GatewayConfig, Problem
from taskgate.config.fields import Section
from taskgate.config.model import admission_rules, conflicts
from taskgate.config.problems import Location, dotted
from taskgate.config.references import NO_REFERENCES, References
from taskgate.listener.listener import PublicListener
from taskgate.operators.access import OperatorAccess
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.events import ConfigReloaded
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.authentication import (
    Authenticator,
    build_authenticator,
    deployment_keys,
    opened,
    operator_tokens,
    set_operators,
)
from taskgate.wiring.build import Environment, Runtime
from taskgate.wiring.observability import TelemetryPipeline
from taskgate.wiring.startup import public_documents

SUCCESS: Final = "success"
INVALID: Final = "invalid"
UNCHANGED: Final = "unchanged"
NEEDS_RESTART: Final = "needs_restart"

MAX_NAMED: Final = 32
"""Changed keys that one log line names."""

log = getLogger("taskgate.wiring.reload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The outcome of a reload. `result` is `success`, `unchanged`, `needs_restart`, `invalid` or `not_now`.

    `needs_restart` names the changed keys that take effect at a restart; the other changes have
    taken effect. `problems` are the reasons why nothing has.
    """

    result: str
    needs_restart: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Changes(NamedTuple):
    """The changes of a reload: dotted keys, and kinds of files whose contents are others."""

    keys: tuple[str, ...]
    files: tuple[str, ...]

    def fields(self) -> dict[str, Any]:
        """Return the fields of the log line: the first MAX_NAMED keys, and how many more there are."""
        found: dict[str, Any] = {"changed": list(self.keys[:MAX_NAMED])} if self.keys else {}
        if len(self.keys) > MAX_NAMED:
            found["left_out"] = len(self.keys) - MAX_NAMED
        return found | ({"files": list(self.files)} if self.files else {})


class Reload:
    """The present configuration, and its replacement by another.

    `Service` allows one `apply` at a time.
    """

    def __init__(
        self,
        config: GatewayConfig,
        configuration_fingerprint: int,
        *,
        runtime: Runtime,
        listener: PublicListener,
        telemetry: TelemetryPipeline,
        environment: Environment,
        access: OperatorAccess,
        data_directory: Path | None,
        port: int,
        admin: tuple[str, int],
        configure_logs: Callable[[GatewayConfig], None],
    ) -> None:
        """`configuration_fingerprint` is that of `config`; reports and metrics show it.

        `access` gets the tokens of operators, whose files are read again.

        `configure_logs` is called with the configuration after its logging settings have changed. `port` is
        the public listener's, and `admin` the address of the other one. `data_directory` is where keys
        without a configured file are.
        """
        self._config = config
        self._fingerprint = configuration_fingerprint
        self._runtime = runtime
        self._listener = listener
        self._telemetry = telemetry
        self._environment = environment
        self._access = access
        self._data_directory = data_directory
        self._port = port
        self._admin = admin
        self._configure_logs = configure_logs
        self._last_problems: tuple[str, ...] = ()

    @property
    def config(self) -> GatewayConfig:
        """The configuration in force."""
        return self._config

    async def apply(self, config: GatewayConfig) -> Reloaded:
        """Apply a configuration, except what needs a restart, and report the outcome. Never raises."""
        try:
            restart_keys = restart_needed(self._config, config)
            applicable = without_restart(self._config, config)
            # On a thread: the fingerprint is slow by design.
            configuration_fingerprint = await asyncio.to_thread(fingerprint, applicable)
            changes = await self._apply_all(applicable)
        except Exception as error:
            return self.fail(error, config.references)
        self._fingerprint, self._last_problems = configuration_fingerprint, ()
        result = NEEDS_RESTART if restart_keys else SUCCESS if changes else UNCHANGED
        self._telemetry.event_sink.emit(ConfigReloaded(result, configuration_fingerprint, waits=restart_keys))
        log.info("configuration reloaded", extra={"result": result} | ({} if changes is None else changes.fields()))
        if restart_keys:
            log.warning("changed configuration keys need a restart", extra={"keys": ", ".join(restart_keys)})
        return Reloaded(result=result, needs_restart=restart_keys)

    def refuse(self, problems: tuple[str, ...]) -> Reloaded:
        """Report a configuration that is not applied, and log its problems.

        The log line is brief if they are those of the last attempt.
        """
        if problems == self._last_problems:
            extra = {"problems": len(problems)}
            log.warning("configuration not reloaded, for the same problems as before", extra=extra)
        else:
            for problem in problems:
                log.warning("configuration not reloaded", extra={"problem": problem})
        self._last_problems = problems
        self._telemetry.event_sink.emit(ConfigReloaded(INVALID, self._fingerprint, problems=problems))
        return Reloaded(result=INVALID, problems=problems)

    def fail(self, error: Exception, references: References = NO_REFERENCES) -> Reloaded:
        """Report a configuration that is not applied because of an error, as `refuse` does.

        The text of the error may quote what came from `references`.
        """
        match error:
            case ConfigurationError(problems=problems):
                return self.refuse(tuple(map(str, problems)))
            case TlsFileRefused() | KeyFileRefused() | AuditUnavailable():
                return self.refuse((references.hide(str(error)),))
        # Only its class: the text may quote the file, and so its secrets.
        return self.refuse((f"unexpected error: {type(error).__name__}",))

    async def _apply_all(self, config: GatewayConfig) -> "Changes | None":
        """Apply a configuration, and return what has changed; None if nothing has.

        Raises TlsFileRefused, KeyFileRefused or AuditUnavailable; then nothing has.
        """
        runtime, telemetry, rules = self._runtime, self._telemetry, admission_rules(config)
        documents = public_documents(config, self._port, self._admin)
        tokens = await asyncio.to_thread(operator_tokens, config)
        prepared = await runtime.upstreams.prepare(config, rules)
        authenticator = next_telemetry = None
        try:
            authenticator = await self._authenticator(config)
            next_telemetry = await telemetry.prepare(config)
            # Last, because keys that are read are in use at once.
            reread = await (authenticator or runtime.callers.authenticator).reread_files()
        except BaseException:
            await runtime.upstreams.discard(prepared)
            if next_telemetry is not None:
                await telemetry.discard(next_telemetry)
            if authenticator is not None:
                await authenticator.close(runtime.callers.authenticator)
            raise
        # Nothing fails from here on, so the configuration counts as the present one.
        before, self._config = self._config, config
        has_other_tokens = set_operators(self._access, config, tokens)
        if (
            config == before
            and not has_other_tokens
            and authenticator is None
            and not prepared.is_new
            and not next_telemetry.is_new
            and not reread
        ):
            await telemetry.discard(next_telemetry)
            return None
        # From here on nothing waits and nothing fails.
        runtime.live.current = rules
        runtime.upstreams.switch(prepared)
        if authenticator is not None:
            runtime.callers.switch(authenticator)
        if runtime.penalties is not None:
            failures = config.auth.lookup_failures
            runtime.penalties.adjust(failures.threshold, failures.window, failures.penalty)
        self._listener.show(documents)
        self._listener.forget_admissions()
        telemetry.switch(next_telemetry)
        logged = (config.logging, config.references, config.names_callers)
        if logged != (before.logging, before.references, before.names_callers):
            self._configure_logs(config)
        files = {
            "admin tokens": has_other_tokens and config.admin == before.admin,
            "auth keys": authenticator is not None and config.auth == before.auth,
            "upstream TLS files": prepared.is_new and config == before,
            "audit keys": next_telemetry.is_new and config.audit == before.audit,
        }
        names = tuple(name for name, is_new in files.items() if is_new)
        return Changes(changed_keys(before, config), (*names, *(f"JWKS file of {issuer}" for issuer in reread)))

    async def _authenticator(self, config: GatewayConfig) -> Authenticator | None:
        """Create and open another authenticator if the configuration or its key file has changed.

        Raises KeyFileRefused.
        """
        present, clock, entropy = (
            self._runtime.callers.authenticator,
            self._environment.clock,
            self._environment.entropy,
        )
        keys = deployment_keys(config, self._data_directory, entropy, before=present.deployment)
        if config.auth == self._config.auth and keys == present.deployment:
            return None
        authenticator = build_authenticator(config, keys, self._telemetry.event_sink, clock, entropy, before=present)
        try:
            await opened(authenticator, present)
        except BaseException:
            await authenticator.close(present)
            raise
        return authenticator


RESTART_SECTIONS: Final = ("server", "admin", "store", "tracing", "egress")
"""Sections that change with a restart, all but the limits of streams in `server`, and in `admin` the
tokens, `identity`, `payloads` and `allowed_hosts`.
"""
_COMPARED: Final = (*RESTART_SECTIONS, "auth", "tasks")
_STREAMS: Final = ("max_streams_per_context", "max_streams_per_subject")
_OPERATORS: Final = ("tokens", "token_file", "identity", "payloads", "allowed_hosts")
_LIVE: Final = {*(("server", key) for key in _STREAMS), *(("admin", key) for key in _OPERATORS)}
_MODE: Final = ("auth", "mode")
_TTL: Final = ("tasks", "ttl")
_BYTES: Final = 6
SCRYPT_COST = 2**14
"""The cost of a fingerprint: KiB of memory, read and written twice. Tests lower it."""


def restart_needed(old: GatewayConfig, new: GatewayConfig) -> tuple[str, ...]:
    """Return the dotted paths of changed keys that need a restart, secrets included, () if there are none.

    They are in the order of RESTART_SECTIONS, then `auth` and `tasks`.
    """
    changed = (each for name in _COMPARED for each in _changed(getattr(old, name), getattr(new, name), (name,)))
    has_other_mode = old.auth.mode != new.auth.mode
    return tuple(dotted(where) for where in changed if _needs_restart(where) or (has_other_mode and where[:2] == _TTL))


def changed_keys(old: GatewayConfig, new: GatewayConfig) -> tuple[str, ...]:
    """Return the dotted paths of keys whose values differ, secrets included, in the order of the model."""
    return tuple(map(dotted, _changed(old, new, ())))


def without_restart(old: GatewayConfig, new: GatewayConfig) -> GatewayConfig:
    """Return the new configuration with the old values of keys that need a restart.

    If `auth.mode` changes, these are all of `auth`, and `tasks.ttl`, whose bounds depend on it.
    Raises ConfigurationError where old and new values conflict, such as rules that ask for claims
    and `auth.mode: none`.
    """
    kept: dict[str, Any] = {name: getattr(old, name) for name in RESTART_SECTIONS}
    kept["server"] = old.server.model_copy(update={key: getattr(new.server, key) for key in _STREAMS})
    # A permission that was removed must not stay valid until a restart.
    kept["admin"] = old.admin.model_copy(update={key: getattr(new.admin, key) for key in _OPERATORS})
    has_other_mode = old.auth.mode != new.auth.mode
    if has_other_mode:
        kept |= {"auth": old.auth, "tasks": new.tasks.model_copy(update={"ttl": old.tasks.ttl})}

    def is_of_old(where: Location) -> bool:
        if where[0] in RESTART_SECTIONS:
            return where[:2] not in _LIVE
        return has_other_mode and (where[0] == "auth" or where[:2] == _TTL)

    mixed = new.model_copy(update=kept).with_references(new.references.mixed(old.references, is_of_old))
    # A configuration has the proxies of the environment only if its own `egress` uses them.
    mixed = mixed.with_environment(old.environment)
    found = conflicts(mixed.model_dump(mode="json"), defaults={})
    if found:
        hint = " (without a restart)"
        raise ConfigurationError(Problem(path=dotted(where), message=f"{message}{hint}") for where, message in found)
    return mixed


def fingerprint(config: GatewayConfig) -> int:
    """Return 48 bits that are equal for configurations of equal effect, secrets included.

    Addresses to listen on and paths of files do not count: replicas on one machine differ in them.
    This takes tens of milliseconds, so that secrets cannot be guessed by comparing the fingerprint
    that metrics show.
    """
    dump = config.model_dump(mode="python", exclude={"server": {"listen"}, "admin": {"listen"}})
    dumped = json.dumps(dump, default=_fingerprinted, sort_keys=True)
    digest = scrypt(dumped.encode(), salt=b"taskgate configuration", n=SCRYPT_COST, r=8, p=1, dklen=_BYTES)
    return int.from_bytes(digest)


def _fingerprinted(value: object) -> str:
    return "path" if isinstance(value, PurePath) else repr(value)


def _needs_restart(where: Location) -> bool:
    return where == _MODE or (where[0] in RESTART_SECTIONS and where not in _LIVE)


def _changed(before: object, after: object, where: Location) -> Iterator[Location]:
    if isinstance(before, Mapping | Section) and isinstance(after, Mapping | Section):
        olds, news = dict(before), dict(after)
        # Keys that their author names, such as issuers, may be in one of the two alone.
        for key in olds | news:
            yield from _changed(olds.get(key), news.get(key), (*where, key))
    elif before != after:
        yield where
