"""State of all sessions with one server, `UpstreamContext`, and of all sessions of one host, `Lasting`.

`client` creates a context for each upstream. A session has its own `transport` (`SessionTransport`),
and a modern one its own `era_lost`. All other fields are shared.
`Patience` has the timeouts of each tool; sessions of both eras ask it for each request. The
`HandshakeLog` is for operators: how the server answers `initialize`, and in which era it is asked.

A host sets log level and resource subscriptions once. They last as long as the host session, through
all sessions at the server. A legacy session notes them from the host's requests, and sends them again
in each new connection (`legacy.connection`). A modern session keeps them itself: for the log level of
its requests, and for its subscription stream.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import chain, repeat
from logging import DEBUG, getLogger
from typing import Any, Final

from yarl import URL

from taskgate.clock import Entropy
from taskgate.domain.versions import Era, Eras, Revision
from taskgate.errors import MalformedMessage, UpstreamFailed, UpstreamReason
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import members
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.vocabulary import (
    LOG_LEVELS,
    LOGGING_SET_LEVEL,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
    TOOLS_CALL,
)
from taskgate.system.redaction import SecretRedaction
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.base import Transport
from taskgate.upstream.calls import CallBounds, briefly
from taskgate.upstream.failures import NoCredentials, Unwelcome
from taskgate.upstream.settings import FixedHeader, ToolTimeouts, UpstreamObserver, UpstreamSettings

MAX_URIS: Final = 1_000
"""Resources that one session may subscribe to."""

MAX_URI: Final = 4_096
"""Characters of a URI that is stored."""

LASTING: Final = frozenset({LOGGING_SET_LEVEL, RESOURCES_SUBSCRIBE, RESOURCES_UNSUBSCRIBE})
"""Methods of requests that set some of it."""


class Lasting:
    """Log level and subscriptions of one session.

    `level` is the log level that the host wants, None if it set none. `uris` has the number of
    subscriptions of each resource: always 1 in the legacy era.
    """

    def __init__(self) -> None:
        self.level: str | None = None
        self.uris: dict[str, int] = {}

    def note(self, method: str, params: Params | None) -> None:
        """Store what a request of a method in LASTING sets, after the legacy server agreed.

        Other requests set nothing. Subscriptions beyond the limits are not stored.
        """
        if params is None:
            return
        if method == LOGGING_SET_LEVEL:
            self.level = level_of(params) or self.level
            return
        uri = uri_of(params)
        if uri is None:
            return
        if method == RESOURCES_UNSUBSCRIBE:
            self.uris.pop(uri, None)
        elif method == RESOURCES_SUBSCRIBE and len(uri) <= MAX_URI and len(self.uris) < MAX_URIS:
            self.uris[uri] = 1


def level_of(params: Params) -> str | None:
    """Return the level in the parameters of `logging/setLevel`; None if it is no valid level."""
    level = _member(params, "level")
    return level if level in LOG_LEVELS else None


def uri_of(params: Params) -> str | None:
    """Return the resource URI in parameters; None without one, or if it cannot be encoded again."""
    uri = _member(params, "uri")
    return uri if isinstance(uri, str) and uri.encode("utf-8", "ignore").decode() == uri else None


def level_params(level: str) -> Params:
    """Return the parameters of `logging/setLevel`."""
    return Params(dump({"level": level}))


def uri_params(uri: str) -> Params:
    """Return the parameters of `resources/subscribe`."""
    return Params(dump({"uri": uri}))


def _member(params: Params, name: str) -> Any:
    """Return a member, None if missing. Decoded again from the text, since a long text may have
    been cut."""
    text = params.with_token(0)
    try:
        found = members(text).get(name)
    except MalformedMessage:
        return None
    return None if found is None else json.loads(text[found.start : found.end])


log = getLogger("taskgate.upstream")

_KEY: Final = 16
"""Characters of the shortest part of a path that is taken for a key."""
QUIET: Final = 600.0
"""Seconds for which a failure with the same cause is not logged again."""
MOST_CAUSES: Final = 16
"""Causes of which that is known; of further ones the reason counts."""

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


class EraReason(StrEnum):
    """Why the gateway takes a server to be of an era, or of both."""

    CONFIGURED = "configured"
    TRANSPORT = "transport"
    """HTTP+SSE has the handshake alone."""
    OLDER_REVISION = "older_revision"
    """Servers of a revision before 2025-11-25 may end on an unknown method."""
    OWN_TASKS = "own_tasks"
    """The server makes tasks itself, and in this era alone.

    A server with tasks of 2025-11-25 is not asked `server/discover`: the question may stop them.
    """
    DISCOVERED = "discovered"
    """Its answer to `server/discover`, or its refusal of `initialize`, has a modern revision."""
    NOT_DISCOVERED = "not_discovered"
    """No answer to `server/discover` has one."""
    UNKNOWN = "unknown"
    """It could not be asked. This session uses the handshake; the next one asks again."""


class HandshakeLog:
    """The log lines about handshakes with one server. Belongs to one event loop.

    `secrets` have replaced those of the settings. None of either is in a line, even if the server
    says it.
    """

    __slots__ = ("_decided", "_logged_at", "_unlogged", "secrets")

    def __init__(self) -> None:
        self.secrets: tuple[str, ...] = ()
        # The last line about the era: sessions and health checks find it each for themselves.
        self._decided: tuple[Eras, Revision | None, EraReason] | None = None
        # By cause: the loop time of the last line, and the failures since that.
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def decided(self, settings: UpstreamSettings, eras: Eras, reason: EraReason, revision: Revision | None) -> None:
        """Log which eras the server speaks and why, unless the last line says so. `revision` is None
        if it is not known yet."""
        decided = eras, revision, reason
        if decided == self._decided or not log.isEnabledFor(DEBUG):
            return
        self._decided = decided
        of = {"upstream": settings.name, "era": _name_of(eras), "reason": reason.value}
        log.debug(
            "the era of a server is decided", extra=of | ({} if revision is None else {"revision": revision.value})
        )

    def lost(self, settings: UpstreamSettings, era: Era) -> None:
        """Log that the server stopped answering in an era."""
        if self._decided is not None and era in self._decided[0]:
            self._decided = None
            of = {"upstream": settings.name, "era": _name_of((era,))}
            log.debug("a server left its era: the next request finds the era again", extra=of)

    def failed(self, settings: UpstreamSettings, failure: UpstreamFailed, said: str = "") -> None:
        """Log that `initialize` failed, if an answer of the server is the cause.

        `said` is what the server itself said; it is logged without secrets.
        """
        reason = failure.reason
        if reason not in _ITS_OWN or isinstance(failure, NoCredentials):
            return
        if isinstance(failure, Unwelcome):
            said = said or words_of(failure.error)
        # A server may answer with any type of content.
        cause = failure.cause if failure.cause in self._logged_at or len(self._logged_at) < MOST_CAUSES else reason
        now, times = asyncio.get_running_loop().time(), self._unlogged.get(cause, 0) + 1
        if now - self._logged_at.get(cause, float("-inf")) < QUIET:
            self._unlogged[cause] = times
            return
        self._logged_at[cause], self._unlogged[cause] = now, 0
        of: dict[str, object] = {"upstream": settings.name, "reason": reason, "text": str(failure), "times": times}
        if said:
            of["said"] = _redacted((*secrets_of(settings), *self.secrets), said)
        log.warning("a server did not accept `initialize`: requests to it fail, and the next one tries again", extra=of)


def _name_of(eras: Eras) -> str:
    return eras[0].name.lower() if len(eras) == 1 else "both"


def words_of(error: Mapping[str, Any]) -> str:
    """Return code and message of a JSON-RPC error; empty without one."""
    return f"{error.get('code')} {error.get('message')}" if error else ""


def secrets_of(settings: UpstreamSettings) -> tuple[str, ...]:
    """Return the secrets that a server gets by these settings."""
    fixed = settings.headers if settings.stdio is None else settings.stdio.env
    shown = (settings.credentials.value,) if isinstance(settings.credentials, FixedHeader) else ()
    return (*fixed.values(), *shown)


def hidden_from_hosts(settings: UpstreamSettings, *shown: str) -> Iterator[str]:
    """Yield what no text of the server may tell hosts: the address of the server, and what the gateway has `shown` it
    in headers."""
    for value in shown:
        # The scheme before a token is no secret.
        yield from (value, value.rpartition(" ")[2])
    if settings.url is not None:
        url = URL(settings.url)
        yield from (settings.url, url.authority, url.host or "", url.raw_host or "")
        yield from (url.path_qs, url.raw_path_qs, url.path, url.raw_path)
        written = URL(settings.url, encoded=True)
        yield from (written.raw_path_qs, written.raw_path)
        yield from url.query.values()
        # A shorter one is rather a word.
        yield from (part for part in url.parts if len(part) >= _KEY)


def _redacted(secrets: tuple[str, ...], said: str) -> str:
    redaction = SecretRedaction(secrets)
    text = redaction.redacted(said[: redaction.needed].encode(errors="replace"), is_whole=len(said) <= redaction.needed)
    # A log line must not contain newlines.
    return " ".join(text.split())


class Patience:
    """The timeouts of calls to one server."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.usual = _bounds(settings)
        """The timeouts of a request that no rule changes."""
        self.has_rules = bool(settings.tools or settings.extensions.streams)
        """Whether a tool or a method may have other timeouts, so that `of` must be asked."""
        self._streams = settings.extensions.streams
        self._tools = tuple((rule.tool, _bounds(rule)) for rule in settings.tools)

    def of(self, tool: str | None = None, method: str = TOOLS_CALL) -> CallBounds:
        """Return the timeouts of a call to `tool`, by the first rule that matches; without a tool,
        of any request.

        A request of a method that lasts as long as its host listens has no timeout (X-EXT-32).
        """
        if tool is not None:
            for glob, bounds in self._tools:
                if fnmatchcase(tool, glob):
                    return bounds
        return self.usual if method not in self._streams else _ENDLESS


def _bounds(settings: UpstreamSettings | ToolTimeouts) -> CallBounds:
    return CallBounds(settings.call.total_seconds(), settings.ceiling.total_seconds(), settings.idle)


_ENDLESS: Final = briefly(timedelta(days=3650))
"""Longer than any process lives, and short enough for every clock."""


@dataclass(slots=True)
class Running:
    """Number of requests that wait for an answer of one server now."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamContext:
    """Shared state of all legacy sessions with one server.

    `ids` gives the request ids, which are progress tokens too and unique among all sessions.
    `alarms` are the timers of calls, `patience` has their timeouts, and `running` counts the calls.
    `reception` logs how the server answers `initialize`. `transport` is one session's own
    (`SessionTransport`). `outlives`: the server and its state of a call survive the end of this
    process, so another process can resume the call.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: LegacyUpstream
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: TimerWheel
    patience: Patience
    running: Running = field(default_factory=Running)
    reception: HandshakeLog = field(default_factory=HandshakeLog)
    outlives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernUpstreamContext:
    """Shared state of all modern sessions with one server.

    `ids` gives the request ids and progress tokens, which are unique among all sessions. `alarms`
    runs the timers of calls, which `patience` gives; `running` counts the calls. `era_lost` is
    called when the server answers as if it had left this era: the session is then replaced by one
    of the other era. That may be wrong, and the call must neither raise nor wait. `outlives`: the
    server and its tasks survive the end of this process, so that another process can resume calls.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: ModernUpstream
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: TimerWheel
    patience: Patience
    running: Running = field(default_factory=Running)
    era_lost: Callable[[], None]
    outlives: bool = True


def request_ids(entropy: Entropy) -> Iterator[int]:
    """Return the ids of a process, endless: each fits the signed integer of 32 bits that some servers keep it in.

    They count from a random one, so that they hardly equal those of an earlier process (T17). After
    the largest comes 1: an id comes again after two thousand million others.
    """
    first = int.from_bytes(entropy.token(4)) % LARGEST_ID + 1
    return chain(range(first, LARGEST_ID + 1), chain.from_iterable(repeat(range(1, LARGEST_ID + 1))))


LARGEST_ID: Final = 2**31 - 1
