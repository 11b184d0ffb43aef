"""Log of how one server answers `initialize`: `Reception`, for operators.

One per upstream, called by `era` and the legacy handshake. A failure is logged at most once per
reason and `QUIET` seconds, with the number of times it has happened since the line before.
"""

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import Any, Final

from taskgate.domain.versions import MODERN, NEWEST_LEGACY
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.failures import NoCredentials, Unwelcome
from taskgate.upstream.redaction import SecretRedaction
from taskgate.upstream.settings import FixedHeader, UpstreamSettings

log = getLogger("taskgate.upstream")

QUIET: Final = 600.0
"""Seconds for which the same failure is not logged again."""

BOTH: Final = (
    f"a server supports both eras, and the gateway uses {MODERN[-1].value}: if its tools fail when they ask the user"
    f' during a call, set `protocol_version: "{NEWEST_LEGACY.value}"` for it'
)

_ITS_OWN: Final = frozenset(
    {
        UpstreamReason.REFUSED.value,
        UpstreamReason.TIMEOUT.value,
        UpstreamReason.REDIRECT.value,
        UpstreamReason.MALFORMED.value,
        UpstreamReason.TOO_LARGE.value,
    }
)
"""Reasons of failures that are an answer of the server; an unreachable server is reported
elsewhere."""


class Reception:
    """Failures logged for one server. Belongs to one event loop."""

    __slots__ = ("_logged_at", "_speaks_both", "_unlogged")

    def __init__(self) -> None:
        # By reason: the loop time of the last line, and the failures since that.
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self._speaks_both = False

    def speaks_both(self, settings: UpstreamSettings) -> None:
        """Log once that the server accepts `initialize` and is of the modern era as well."""
        if self._speaks_both:
            return
        self._speaks_both = True
        log.info(BOTH, extra={"upstream": settings.name})

    def failed(self, settings: UpstreamSettings, failure: UpstreamFailed, said: str = "") -> None:
        """Log that `initialize` failed, if an answer of the server is the cause.

        `said` is what the server itself said; it is logged without secrets.
        """
        reason = failure.reason
        if reason not in _ITS_OWN or isinstance(failure, NoCredentials):
            return
        if isinstance(failure, Unwelcome):
            said = said or words_of(failure.error)
        now, times = asyncio.get_running_loop().time(), self._unlogged.get(reason, 0) + 1
        if now - self._logged_at.get(reason, float("-inf")) < QUIET:
            self._unlogged[reason] = times
            return
        self._logged_at[reason], self._unlogged[reason] = now, 0
        of: dict[str, object] = {"upstream": settings.name, "reason": reason, "text": str(failure), "times": times}
        if said:
            of["said"] = _redacted(settings, said)
        log.warning("a server did not accept `initialize`: requests to it fail, and the next one tries again", extra=of)


def words_of(error: Mapping[str, Any]) -> str:
    """Return code and message of a JSON-RPC error; empty without one."""
    return f"{error.get('code')} {error.get('message')}" if error else ""


def _redacted(settings: UpstreamSettings, said: str) -> str:
    secrets = [] if settings.stdio is None else list(settings.stdio.env.values())
    if isinstance(settings.credentials, FixedHeader):
        secrets.append(settings.credentials.value)
    redaction = SecretRedaction(secrets)
    told = redaction.told(said[: redaction.needed].encode(errors="replace"), is_whole=len(said) <= redaction.needed)
    # A log line must not contain newlines.
    return " ".join(told.split())
