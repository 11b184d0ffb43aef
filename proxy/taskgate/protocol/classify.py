"""Which era a message belongs to, and whether a request of the modern era says all that every one has to say.

The ladder of V-ERA-1, climbed once for every message, after the listener's own checks. What a message asks is not
looked at beyond that (`legacy`, `modern`), nor is a session. Nothing is remembered from one message to the next but how
a `_meta` reads, which depends on its text alone.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.domain.versions import Era, Peer, Revision, find_modern_revision, find_revision
from taskgate.errors import (
    IncompleteMeta,
    InvalidParams,
    MalformedMessage,
    MissingCapability,
    UnknownMethod,
    UnsupportedVersion,
    VerbNotServed,
)
from taskgate.jsontext.spans import UNREAD, Members, RawJson, members
from taskgate.protocol.envelope import Message, Notification, Request, Response
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.faults import TASKS_NEEDED
from taskgate.protocol.headers import RequestHeaders, check_headers, check_single
from taskgate.protocol.jsonrpc import is_id
from taskgate.protocol.modern_requests import RequestMeta
from taskgate.protocol.reading import cut, kept_info, meta_of, value_of
from taskgate.protocol.vocabulary import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    IDEMPOTENCY_KEY,
    INITIALIZE,
    LOG_LEVEL,
    LOG_LEVELS,
    MODERN_METHODS,
    MODERN_TASK_METHODS,
    PROTOCOL_VERSION,
    SUBSCRIPTIONS_LISTEN,
    TASKS_EXTENSION,
    TASKS_UPDATE,
)


class InitializeMessage(NamedTuple):
    """`initialize`, of the legacy era."""


class InSession(NamedTuple):
    """Any other message of the legacy era; `revision` is the header's, None where it names none (V-ERA-3)."""

    revision: Revision | None


class Dropped(NamedTuple):
    """A notification of the modern era, which has none for a server: taken, and nothing done (H-MOD-12)."""


Route = InitializeMessage | InSession | RequestMeta | Dropped


def classify(
    message: Message,
    revision: str | None,
    read: Callable[[], RequestHeaders],
    *,
    offers_tasks: bool,
    strict_names: bool,
    extensions: ExtensionPolicy,
) -> Route:
    """The era of a message that came in a POST, as its parser read it with `_meta` open.

    `revision` is its MCP-Protocol-Version as sent; `read` gives all headers that repeat a part of the body, and is
    called for requests of the modern era alone. `offers_tasks` is whether any call at this place can become a task,
    `strict_names` whether requests about tasks must name them in their headers (AMB-8), `extensions` what crosses.

    Raises only for the modern era, in the order of AMB-10: HeaderMismatch (sent twice), IncompleteMeta,
    HeaderMismatch (against the body), UnsupportedVersion, UnknownMethod, MissingCapability, InvalidParams. Of a
    notification only the version is judged; a response, which nobody there waits for, is a MalformedMessage (H-MOD-8).
    """
    meta = {} if isinstance(message, Response) else meta_of(message.params)
    if PROTOCOL_VERSION not in meta:
        if isinstance(message, Request) and message.method == INITIALIZE:
            return InitializeMessage()
        legacy = find_revision(revision)
        if legacy is not None or revision is None:
            return InSession(legacy)
    if isinstance(message, Request):
        return _modern(
            message, meta, read(), offers_tasks=offers_tasks, strict_names=strict_names, extensions=extensions
        )
    if isinstance(message, Notification):
        return _dropped(revision, meta)
    raise MalformedMessage("No host is asked anything, so none has anything to answer")


def check_verb(revision: str | None) -> None:
    """Refuse a GET or a DELETE that names a revision of the modern era, which has neither (V-ERA-4).

    Whatever else it names is for the legacy era to judge. Raises VerbNotServed.
    """
    if find_modern_revision(revision) is not None:
        raise VerbNotServed("POST")


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether these capabilities have the tasks extension: an object, whatever is in it (M-NEG-1)."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS_EXTENSION), dict)


# --- the modern era, in the order of AMB-10 -------------------------------------------------------------------


def _modern(
    request: Request,
    meta: Members,
    headers: RequestHeaders,
    *,
    offers_tasks: bool,
    strict_names: bool,
    extensions: ExtensionPolicy,
) -> RequestMeta:
    check_single(headers)
    host = _host(request, meta)
    check_headers(headers, request, host.version, strict_names=strict_names)
    if host.said is None:
        raise _unsupported(host.version)
    if request.method not in MODERN_METHODS:
        if not extensions.relays(request.method, Era.MODERN):
            raise UnknownMethod("The method does not exist in this protocol version")
    elif request.method in MODERN_TASK_METHODS and not offers_tasks:
        raise UnknownMethod("The method does not exist in this protocol version")
    if not host.said.declares_tasks and _needs_tasks(request, host.said.peer.capabilities):
        raise MissingCapability(TASKS_NEEDED)
    if host.wrong is not None:
        raise InvalidParams(host.wrong)
    token = _progress_token(meta)
    if token is None and not headers.params:
        return host.said
    peer, level, _, has_tasks, _ = host.said
    return RequestMeta(peer, level, token, has_tasks, headers.params)


class _Host(NamedTuple):
    """What a `_meta` says besides its progress token. `said` is None where its version is none of this era.

    `wrong` is what is to be refused in what it may leave out, None where nothing is.
    """

    version: str
    said: RequestMeta | None
    wrong: str | None


def _host(request: Request, meta: Members) -> _Host:
    """What a request says of its host. Raises IncompleteMeta.

    Hosts say the same in every request, so it is read once: what stands as progress token, or as key, makes no
    difference.
    """
    place = request.params.get("_meta")
    if place is None or place.end - place.start > _LONGEST_KEPT:
        return _read_host(meta)
    text, token = request.text, meta.get("progressToken")
    if IDEMPOTENCY_KEY in meta:
        ours = [(each.start, each.end, "0") for each in (token, meta[IDEMPOTENCY_KEY]) if each is not None]
        return _remembered(cut(text, place.start, place.end, ours))
    if token is None:
        return _remembered(text[place.start : place.end])
    return _remembered(f"{text[place.start : token.start]}0{text[token.end : place.end]}")


@lru_cache(maxsize=256)
def _remembered(meta: RawJson) -> _Host:
    return _read_host(members(meta))


def _read_host(meta: Members) -> _Host:
    version, capabilities = _required(meta)
    revision, info, level = find_modern_revision(version), value_of(meta, CLIENT_INFO), value_of(meta, LOG_LEVEL)
    wrong = None
    # One with very many parts is not read.
    if info is not None and info is not UNREAD and not isinstance(info, dict):
        wrong = f"{CLIENT_INFO} must be an object"
    elif level is not None and level not in LOG_LEVELS:
        wrong = f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}"
    if revision is None:
        return _Host(version, None, wrong)
    peer = Peer(revision=revision, capabilities=capabilities, info=kept_info(info) if isinstance(info, dict) else {})
    said = RequestMeta(peer, level, progress_token=None, declares_tasks=declares_tasks(capabilities))
    return _Host(version, said, wrong)


def _dropped(announced: str | None, meta: Members) -> Dropped:
    said = (announced, value_of(meta, PROTOCOL_VERSION))
    if not any(find_modern_revision(version) for version in said):
        raise _unsupported(announced)
    return Dropped()


def _unsupported(version: str | None) -> UnsupportedVersion:
    # Nothing but what could be a version is told back.
    requested = version if version and version.isascii() and len(version) <= _LONGEST_VERSION else ""
    return UnsupportedVersion("The protocol version is not supported", requested=requested)


def _required(meta: Members) -> tuple[str, dict[str, Any]]:
    """What every request must say: its version and its host's capabilities (V-META-1)."""
    version, capabilities = value_of(meta, PROTOCOL_VERSION), value_of(meta, CLIENT_CAPABILITIES)
    if not isinstance(version, str):
        raise IncompleteMeta(f"_meta must have {PROTOCOL_VERSION}, a string")
    if not isinstance(capabilities, dict):
        raise IncompleteMeta(f"_meta must have {CLIENT_CAPABILITIES}, an object")
    return version, capabilities


def _needs_tasks(request: Request, capabilities: Mapping[str, Any]) -> bool:
    """Whether a request is for hosts with tasks alone; this is known before any id is looked up (M-NEG-4).

    A host with the tasks of the legacy era may still look at those and cancel them (AMB-19).
    """
    if request.method == SUBSCRIPTIONS_LISTEN:
        wanted = value_of(request.params, "notifications")
        return isinstance(wanted, dict) and "taskIds" in wanted
    if request.method != TASKS_UPDATE and isinstance(capabilities.get("tasks"), dict):
        return False
    return request.method in MODERN_TASK_METHODS


def _progress_token(meta: Members) -> RequestId | None:
    if "progressToken" not in meta:
        return None
    token: RequestId = meta["progressToken"].value
    if not is_id(token):
        raise InvalidParams("The progress token must be a string or an integer")
    return token


_LONGEST_VERSION: Final = 64
"""Characters; those of the specification have ten."""

_LONGEST_KEPT: Final = 4 * 1024
"""Letters of a `_meta` that is remembered; those of hosts have some hundreds."""
