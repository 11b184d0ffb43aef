"""The era of a host's message, `classify`, and of a server by its first answers,
`era_of_discovery`.

`classify` runs once for every message of a host, after the listener's own checks (V-ERA-1). For a
modern request it also checks what every such request must declare. The dialects read the rest. Only
the reading of `_meta` is cached, which depends on its text alone. `era_of_refusal` and
`era_of_discovery` tell the gateway which era a server of unknown era speaks.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.domain.versions import LEGACY, Era, Peer, client_of, find_modern_revision
from taskgate.errors import (
    HeaderMismatch,
    IncompleteMeta,
    InvalidParams,
    MalformedMessage,
    MissingCapability,
    UnknownMethod,
    UnparsableMessage,
    UnsupportedVersion,
    VerbNotServed,
)
from taskgate.jsontext.edits import splice_range
from taskgate.jsontext.spans import UNREAD, Member, Members, RawJson, decode, members
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.faults import TASKS_NEEDED
from taskgate.protocol.headers import RequestHeaders, check_headers
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.jsonrpc import is_id
from taskgate.protocol.messages import Message, Notification, Request, Response, short_info, value_of
from taskgate.protocol.vocabulary import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HEADER_MISMATCH,
    IDEMPOTENCY_KEY,
    INITIALIZE,
    LOG_LEVEL,
    LOG_LEVELS,
    MISSING_CAPABILITY,
    MODERN_METHODS,
    MODERN_TASK_METHODS,
    PROTOCOL_VERSION,
    SUBSCRIPTIONS_LISTEN,
    TASKS_EXTENSION,
    TASKS_UPDATE,
    UNSUPPORTED_VERSION,
)


class IgnoredNotification(NamedTuple):
    """A notification of a modern host: accepted without effect, since the era has none
    (H-MOD-12).
    """


Route = RequestMeta | IgnoredNotification | None
"""The way that a message takes: RequestMeta is for a modern request, None for the legacy era."""
_LEGACY: Final = frozenset(revision.value for revision in LEGACY)
_NO_VERSION: Final = "The protocol version in the header is not supported, and _meta has none"


def classify(
    message: Message,
    revision: str | None,
    read: Callable[[], RequestHeaders],
    *,
    offers_tasks: bool,
    strict_names: bool,
    extensions: ExtensionPolicy,
) -> Route:
    """The era of a message from a POST, which was parsed with `_meta` open.

    A message is modern if its `_meta` has a version, whatever the header says. Without one,
    `initialize` is legacy, and for others the header decides. No header means legacy (V-ERA-3), and a
    header that names no legacy revision means modern. `revision` is its MCP-Protocol-Version as sent.
    `read` gives the headers that repeat parts of the body; it is called only for modern requests.
    `offers_tasks` says whether any call at this mount can become a task, `strict_names` whether
    task requests must name the task in a header (AMB-8).

    Raises only for the modern era, in the order of AMB-10: HeaderMismatch (sent twice),
    IncompleteMeta, HeaderMismatch (against the body), UnsupportedVersion, UnknownMethod,
    MissingCapability, InvalidParams. For a notification only the version is checked. A response
    raises MalformedMessage, since the era has no requests of servers (H-MOD-8).
    """
    member = None if isinstance(message, Response) else message.params.get("_meta")
    meta = (member and member.members) or {}
    if PROTOCOL_VERSION not in meta:
        is_handshake = isinstance(message, Request) and message.method == INITIALIZE
        if is_handshake or revision is None or revision in _LEGACY:
            return None
    if isinstance(message, Response):
        raise MalformedMessage("No host is asked anything, so none has anything to answer")
    if isinstance(message, Notification):
        return _ignored(revision, meta)
    # A request of the modern era, checked in the order of AMB-10.
    headers = read()
    if headers.duplicate is not None:
        # Two readers could take two values (H-MOD-4).
        raise HeaderMismatch(f"{headers.duplicate} was sent more than once")
    if PROTOCOL_VERSION not in meta and find_modern_revision(revision) is None:
        raise IncompleteMeta(_NO_VERSION)
    host = _host(message, meta)
    check_headers(headers, message, host.version, strict_names=strict_names)
    if host.meta is None:
        raise _unsupported(host.version)
    if message.method not in MODERN_METHODS:
        if not extensions.allows_method(message.method, Era.MODERN):
            raise UnknownMethod("The method does not exist in this protocol version")
    elif message.method in MODERN_TASK_METHODS and not offers_tasks:
        raise UnknownMethod("The method does not exist in this protocol version")
    if not host.meta.declares_tasks and _needs_tasks(message, host.meta.peer.capabilities):
        raise MissingCapability(TASKS_NEEDED)
    if host.problem is not None:
        raise InvalidParams(host.problem)
    token = _progress_token(meta["progressToken"]) if "progressToken" in meta else None
    if token is None and not headers.params:
        return host.meta
    peer, level, _, has_tasks, _, client = host.meta
    return RequestMeta(peer, level, token, has_tasks, headers.params, client)


def check_verb(revision: str | None) -> None:
    """Raise VerbNotServed for a GET or DELETE with a modern revision: that era has neither
    (V-ERA-4).
    """
    if find_modern_revision(revision) is not None:
        raise VerbNotServed("POST")


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether these capabilities have the tasks extension: any object counts (M-NEG-1)."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS_EXTENSION), dict)


# --- what a modern request declares -----------------------------------------------------------------------------------


class _HostMeta(NamedTuple):
    """The content of a `_meta` without its progress token; `meta` is None for an unknown version.

    `problem` is the text of the error in its optional members, None without one. It is kept here,
    because other checks come before its refusal.
    """

    version: str
    meta: RequestMeta | None
    problem: str | None


def _host(request: Request, meta: Members) -> _HostMeta:
    """The content of a request's `_meta`. Raises IncompleteMeta.

    Hosts send the same `_meta` with every request except for progress token and idempotency key.
    Both are replaced by 0, and the result is cached.
    """
    place = request.params.get("_meta")
    if place is None or place.end - place.start > MAX_CACHED_META:
        return _read_host(meta)
    text, token = request.text, meta.get("progressToken")
    if IDEMPOTENCY_KEY in meta:
        varying = [(each.start, each.end, "0") for each in (token, meta[IDEMPOTENCY_KEY]) if each is not None]
        return _cached_host(splice_range(text, place.start, place.end, varying))
    if token is None:
        return _cached_host(text[place.start : place.end])
    return _cached_host(f"{text[place.start : token.start]}0{text[token.end : place.end]}")


@lru_cache(maxsize=256)
def _cached_host(meta: RawJson) -> _HostMeta:
    return _read_host(members(meta))


def _read_host(meta: Members) -> _HostMeta:
    version, capabilities = _required(meta)
    revision, info, level = find_modern_revision(version), value_of(meta, CLIENT_INFO), value_of(meta, LOG_LEVEL)
    problem = None
    # An info with too many parts is an object, which is not read.
    if info is not None and info is not UNREAD and not isinstance(info, dict):
        problem = f"{CLIENT_INFO} must be an object"
    elif level is not None and level not in LOG_LEVELS:
        problem = f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}"
    if revision is None:
        return _HostMeta(version, None, problem)
    peer = Peer(revision=revision, capabilities=capabilities, info=short_info(info) if isinstance(info, dict) else {})
    has_tasks, client = declares_tasks(capabilities), client_of(peer.info)
    found = RequestMeta(peer, level, progress_token=None, declares_tasks=has_tasks, client=client)
    return _HostMeta(version, found, problem)


def _ignored(header: str | None, meta: Members) -> IgnoredNotification:
    """A notification of the modern era; UnsupportedVersion if neither header nor `_meta` names a
    known version.
    """
    versions = (header, value_of(meta, PROTOCOL_VERSION))
    if not any(find_modern_revision(version) for version in versions):
        raise _unsupported(header)
    return IgnoredNotification()


def _unsupported(version: str | None) -> UnsupportedVersion:
    # The error repeats only a text that could be a version.
    requested = version if version and version.isascii() and len(version) <= _MAX_VERSION else ""
    return UnsupportedVersion("The protocol version is not supported", requested=requested)


def _required(meta: Members) -> tuple[str, dict[str, Any]]:
    """The members that every request must have: version and capabilities of its host (V-META-1)."""
    version, capabilities = value_of(meta, PROTOCOL_VERSION), value_of(meta, CLIENT_CAPABILITIES)
    if not isinstance(version, str):
        raise IncompleteMeta(f"_meta must have {PROTOCOL_VERSION}, a string")
    if not isinstance(capabilities, dict):
        raise IncompleteMeta(f"_meta must have {CLIENT_CAPABILITIES}, an object")
    return version, capabilities


def _needs_tasks(request: Request, capabilities: Mapping[str, Any]) -> bool:
    """Whether a request is refused for hosts that do not declare the tasks extension.

    Decided before any id is looked up (M-NEG-4).

    A host with the tasks of the legacy era may still get and cancel those (AMB-19).
    """
    if request.method == SUBSCRIPTIONS_LISTEN:
        wanted = value_of(request.params, "notifications")
        return isinstance(wanted, dict) and "taskIds" in wanted
    if request.method != TASKS_UPDATE and isinstance(capabilities.get("tasks"), dict):
        return False
    return request.method in MODERN_TASK_METHODS


def _progress_token(member: Member) -> RequestId:
    token: RequestId = member.value
    if not is_id(token):
        raise InvalidParams("The progress token must be a string or an integer")
    return token


_MAX_VERSION: Final = 64
"""Characters of a version; those of the specification have ten."""

MAX_CACHED_META: Final = 4 * 1024
"""Characters of a cached `_meta`; those of hosts have some hundreds."""


# --- the era of a server ----------------------------------------------------------------------------------------------
#
# Two things alone show the modern era before anything is agreed (V-ERA-5, V-ERA-7).
# One is the name of a modern revision, the other an error that exists in that era alone. HTTP
# statuses and other errors prove nothing (T-17).

MAX_DEPTH: Final = 64


def era_of_refusal(error: dict[str, Any]) -> Era | None:
    """The era that a JSON-RPC error to `initialize` shows: modern, or None if it proves nothing
    (V-ERA-7).
    """
    return Era.MODERN if _names_modern(error) else None


def era_of_discovery(message: bytes) -> Era | None:
    """The era that an answer to `server/discover` shows; None for JSON that is no response.

    Legacy is whatever does not prove the modern era, also text that is not JSON. An error need not
    name the request: servers that refuse a request unread do not know its id.
    """
    try:
        response = json.loads(decode(message, MAX_DEPTH))
    except (UnparsableMessage, MalformedMessage, ValueError):
        return Era.LEGACY
    if not isinstance(response, dict) or ("result" not in response and "error" not in response):
        return None
    result, error = response.get("result"), response.get("error")
    if isinstance(result, dict) and _has_modern(result.get("supportedVersions")):
        return Era.MODERN
    if isinstance(error, dict) and (error.get("code") in _MODERN_CODES or _names_modern(error)):
        return Era.MODERN
    return Era.LEGACY


def discovers_tasks(message: bytes) -> bool:
    """Whether an answer to `server/discover` declares the tasks extension (M-NEG-1).

    `message` is an answer that shows the modern era, as `era_of_discovery` reads it.
    """
    result = json.loads(decode(message, MAX_DEPTH)).get("result")
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    return isinstance(capabilities, dict) and declares_tasks(capabilities)


def _names_modern(error: dict[str, Any]) -> bool:
    """Whether the error says that the server speaks a modern revision that the gateway knows."""
    data = error.get("data")
    return error.get("code") == UNSUPPORTED_VERSION and isinstance(data, dict) and _has_modern(data.get("supported"))


def _has_modern(versions: Any) -> bool:
    return isinstance(versions, list) and any(find_modern_revision(version) is not None for version in versions)


_MODERN_CODES: Final = (HEADER_MISMATCH, MISSING_CAPABILITY)
