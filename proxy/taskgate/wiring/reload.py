"""Another configuration for a gateway that runs: everything new is made first, then all of it takes effect in one step.

What must not live here: reading files, when that is done (`cli`, the operators' listener), what runs meanwhile. What
holds: a configuration that cannot be had changes nothing, and no call is cut off for one that can.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Final

from taskgate.auth.key_file import KeyFileRefused
from taskgate.config import ConfigurationError, GatewayConfig
from taskgate.config.reload import fingerprint, restart_needed, without_restart
from taskgate.config.settings import admission_rules
from taskgate.listener.listener import PublicListener
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.events import ConfigReloaded
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.authentication import Authenticator, build_authenticator, deployment_keys, metadata_documents
from taskgate.wiring.build import Environment, Runtime
from taskgate.wiring.observation import TelemetryPipeline
from taskgate.wiring.reloadable_authenticator import opened

SUCCESS: Final = "success"
INVALID: Final = "invalid"
UNCHANGED: Final = "unchanged"
NEEDS_RESTART: Final = "needs_restart"

log = getLogger("taskgate.wiring.reload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What came of it: `result` is success, unchanged, needs_restart or invalid.

    `needs_restart` names the keys that changed and wait for a restart, by their dotted paths; what else changed has
    taken effect. `problems` is why nothing has.
    """

    result: str
    needs_restart: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a configuration takes effect on. `relog` is called where what is logged is to change."""

    runtime: Runtime
    listener: PublicListener
    sight: TelemetryPipeline
    around: Environment
    data_directory: Path | None
    port: int
    relog: Callable[[GatewayConfig], None] = lambda _: None


class Reload:
    """One gateway's configuration, and how another takes its place. One at a time."""

    def __init__(self, config: GatewayConfig, stage: Stage, mark: int) -> None:
        """`mark` is the configuration's fingerprint."""
        self._config = config
        self._stage = stage
        self._mark = mark
        self._refused: tuple[str, ...] = ()

    async def apply(self, config: GatewayConfig) -> Reloaded:
        """Have that configuration from now on, but for what needs a restart. Never raises."""
        try:
            waits = restart_needed(self._config, config)
            wanted = without_restart(self._config, config)
            # Beside the loop: it is made to take its time.
            mark = await asyncio.to_thread(fingerprint, wanted)
            changed = await self._take(wanted)
        except Exception as error:
            return self.fail(error)
        self._mark, self._refused = mark, ()
        result = NEEDS_RESTART if waits else SUCCESS if changed else UNCHANGED
        self._stage.sight.emit(ConfigReloaded(result, mark, waits=waits))
        log.info("configuration reloaded", extra={"result": result})
        if waits:
            log.warning("changed configuration keys need a restart", extra={"keys": ", ".join(waits)})
        return Reloaded(result=result, needs_restart=waits)

    def refuse(self, problems: tuple[str, ...]) -> Reloaded:
        """Stay as it is, and tell why: at length where it is for other problems than the last time."""
        if problems == self._refused:
            told = {"problems": len(problems)}
            log.warning("configuration not reloaded, for the same problems as before", extra=told)
        else:
            for problem in problems:
                log.warning("configuration not reloaded", extra={"problem": problem})
        self._refused = problems
        self._stage.sight.emit(ConfigReloaded(INVALID, self._mark, problems=problems))
        return Reloaded(result=INVALID, problems=problems)

    def fail(self, error: Exception) -> Reloaded:
        """As `refuse`, for what came in the way."""
        match error:
            case ConfigurationError(problems=problems):
                return self.refuse(tuple(map(str, problems)))
            case TlsFileRefused() | KeyFileRefused() | AuditUnavailable():
                return self.refuse((str(error),))
        # Its class alone: what it says may quote the file, and so its secrets.
        return self.refuse((f"unexpected error: {type(error).__name__}",))

    async def _take(self, config: GatewayConfig) -> bool:
        """Whether anything is different from before.

        Raises TlsFileRefused, KeyFileRefused or AuditUnavailable; then nothing is.
        """
        mounting, rules = self._stage.runtime.mounting, admission_rules(config)
        documents = metadata_documents(config, self._stage.port)
        prepared = await mounting.prepare(config, rules)
        authenticator = None
        try:
            authenticator = await self._authenticator(config)
            seen = await self._stage.sight.prepare(config)
        except BaseException:
            await mounting.discard(prepared)
            if authenticator is not None:
                await authenticator.close(self._stage.runtime.callers.authenticator)
            raise
        before, self._config = self._config, config
        if config == before and authenticator is None and not prepared.is_new and not seen.is_new:
            await self._stage.sight.discard(seen)
            return False
        # From here on nothing waits and nothing fails.
        runtime, stage = self._stage.runtime, self._stage
        runtime.live.now = rules
        mounting.switch(prepared)
        if authenticator is not None:
            runtime.callers.switch(authenticator)
        if runtime.penalties is not None:
            failures = config.auth.lookup_failures
            runtime.penalties.adjust(failures.threshold, failures.window, failures.penalty)
        stage.listener.show(documents)
        stage.sight.switch(seen)
        if config.logging != before.logging:
            stage.relog(config)
        return True

    async def _authenticator(self, config: GatewayConfig) -> Authenticator | None:
        """Another gatehouse, open, where this configuration or its key file asks for one. Raises KeyFileRefused."""
        stage, present = self._stage, self._stage.runtime.callers.authenticator
        entropy = stage.around.entropy
        keys = deployment_keys(config, stage.data_directory, entropy, before=present.deployment)
        if config.auth == self._config.auth and keys == present.deployment:
            return None
        authenticator = build_authenticator(
            config, keys, stage.sight.event_sink, stage.around.clock, entropy, before=present
        )
        try:
            await opened(authenticator, present)
        except BaseException:
            await authenticator.close(present)
            raise
        return authenticator
