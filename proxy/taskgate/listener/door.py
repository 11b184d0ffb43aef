"""The checks of a request's head, before its body is read: `Door`.

`Endpoint` calls `Door.admit`. In this order it checks framing, `Host`, `Origin`, path, method,
media types, declared length, and repeated headers. A failed check raises RequestRejected with a
constant `Rejection`, so that nothing that a host sent can come back in an answer. Doubtful framing
also ends the connection. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiohttp import HttpVersion, hdrs
from aiohttp.http import HttpVersion10, HttpVersion11
from multidict import CIMultiDictProxy, istr

from taskgate.domain.versions import find_modern_revision
from taskgate.protocol.vocabulary import SESSION_HEADER, VERSION_HEADER
from taskgate.streams.exchange import HttpMethod, ListenerRefused
from taskgate.telemetry import events

Headers = CIMultiDictProxy[str]

_SESSION: Final = istr(SESSION_HEADER)
_VERSION: Final = istr(VERSION_HEADER)
_LAST_EVENT: Final = istr("Last-Event-ID")
_VERBS: Final = {verb.value: verb for verb in HttpMethod}
_LONGEST_ID: Final = 256
_NO_ID: Final = "?"
"""Replaces an invalid id of a session or event. It is never generated, so it is always unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The answer to a rejected request. `reason` is the label of `taskgate_http_rejections_total`,
    if it has one.
    """

    status: int
    reason: str | None = None
    text: str = ""
    close: bool = False
    allow: str | None = None


BAD_REQUEST: Final = Rejection(status=400, text="Bad request\n", close=True)
TOO_SLOW: Final = Rejection(status=408, text="Request not received in time\n", close=True)
HEAD_TOO_LARGE: Final = Rejection(status=431, reason="header_too_large", text="Request head too large\n", close=True)
BODY_TOO_LARGE: Final = Rejection(status=413, reason="body_too_large", text="Request body too large\n", close=True)
NOT_IMPLEMENTED: Final = Rejection(status=501, text="Not implemented\n", close=True)
WRONG_HTTP: Final = Rejection(status=505, text="HTTP version not supported: use HTTP/1.1\n", close=True)
WRONG_EXPECTATION: Final = Rejection(status=417, text="Unsupported Expect header: only 100-continue is supported\n")
WRONG_HOST: Final = Rejection(status=421, reason="bad_host", text="Host not allowed: see server.allowed_hosts\n")
WRONG_ORIGIN: Final = Rejection(
    status=403, reason="bad_origin", text="Origin not allowed: see server.allowed_origins\n"
)
UNKNOWN_PATH: Final = Rejection(status=404, reason="unknown_path", text="No server is mounted at this path\n")
WRONG_METHOD: Final = Rejection(status=405, text="Method not allowed\n", allow=", ".join(_VERBS))
WRONG_MEDIA: Final = Rejection(status=415, reason="media_type", text="The body must be application/json in UTF-8\n")
NOT_ACCEPTABLE: Final = Rejection(
    status=406,
    reason="not_acceptable",
    text="The Accept header must allow application/json or text/event-stream; for GET, text/event-stream\n",
)
NO_ROOM: Final = Rejection(status=503, reason=events.AUDIT_FULL, text="The audit log has no room for the request\n")
NO_BYTES: Final = Rejection(status=429, reason="bytes", text="Too many bytes of requests are in flight\n", close=True)
SENT_TWICE: Final = Rejection(status=400, reason="header_mismatch", text="A header was sent twice\n")


class RequestRejected(ListenerRefused):
    """A request is rejected by the listener."""

    def __init__(self, refusal: Rejection) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


class RequestHead(NamedTuple):
    """The checked head of a request."""

    verb: HttpMethod
    path: str
    host_session: str | None
    revision: str | None
    accepts_json: bool
    accepts_stream: bool
    authorization: tuple[str, ...]
    query: str
    last_event_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The checks of a listener. Names are in lower case, sizes in bytes."""

    hosts: frozenset[str]
    origins: frozenset[str]
    is_mount: Callable[[str], bool]
    max_body: int

    def admit(self, method: str, target: str, version: HttpVersion, headers: Headers) -> RequestHead:
        """Check a head, and return it. Raises RequestRejected at the first failed check."""
        check_framing(method, version, headers)
        self._check_host(headers.get(hdrs.HOST, ""))
        if hdrs.ORIGIN in headers:
            self._check_origins(headers.getall(hdrs.ORIGIN))
        path, _, query = target.partition("?")
        if not self.is_mount(path):
            raise RequestRejected(UNKNOWN_PATH)
        verb = _VERBS.get(method)
        if verb is None:
            raise RequestRejected(WRONG_METHOD)
        if verb is HttpMethod.POST:
            check_media(headers)
        accepts_json, accepts_stream = check_accept(verb, headers)
        if int(headers.get(hdrs.CONTENT_LENGTH, 0)) > self.max_body:
            raise RequestRejected(BODY_TOO_LARGE)
        revision = _revision(headers)
        if find_modern_revision(revision) is not None:
            # The modern era has neither sessions nor resumable streams: these headers are ignored
            # (V-ERA-4).
            host_session = last_event = None
        else:
            host_session = _id(_single(headers, _SESSION))
            # Hosts without an event id may send an empty header.
            last_event = _id(_single(headers, _LAST_EVENT) or None) if verb is HttpMethod.GET else None
        return RequestHead(
            verb,
            path,
            host_session,
            revision,
            accepts_json,
            accepts_stream,
            tuple(headers.getall(hdrs.AUTHORIZATION, ())),
            query,
            last_event,
        )

    def greet(self, method: str, version: HttpVersion, headers: Headers) -> None:
        """Check a request for a public document: only framing and host. Raises RequestRejected."""
        check_framing(method, version, headers)
        self._check_host(headers.get(hdrs.HOST, ""))

    def _check_host(self, host: str) -> None:
        if host not in self.hosts and host.lower() not in self.hosts:
            raise RequestRejected(WRONG_HOST)

    def _check_origins(self, origins: list[str]) -> None:
        if any(origin.lower() not in self.origins for origin in origins):
            raise RequestRejected(WRONG_ORIGIN)


def path_of(target: str) -> str:
    """Return the request target without its query. It is never decoded."""
    return target.partition("?")[0] if "?" in target else target


def head_size(target: str, fields: tuple[tuple[bytes, bytes], ...]) -> int:
    """Return the size of a head in bytes, except spacing around values."""
    return len(target) + sum(len(name) + len(value) + len(": \r\n") for name, value in fields)


def check_framing(method: str, version: HttpVersion, headers: Headers) -> None:
    """Reject what two parsers could read differently, and whatever would change the protocol."""
    if version not in (HttpVersion11, HttpVersion10):
        raise RequestRejected(WRONG_HTTP)
    if hdrs.TRANSFER_ENCODING in headers:
        if version == HttpVersion10:
            raise RequestRejected(BAD_REQUEST)
        if headers[hdrs.TRANSFER_ENCODING].lower() != "chunked":
            raise RequestRejected(NOT_IMPLEMENTED)
    if hdrs.UPGRADE in headers or method == hdrs.METH_CONNECT:
        raise RequestRejected(NOT_IMPLEMENTED)
    if hdrs.EXPECT in headers and headers[hdrs.EXPECT].lower() != "100-continue":
        raise RequestRejected(WRONG_EXPECTATION)


def check_media(headers: Headers) -> None:
    """Reject a body that does not declare itself as JSON in UTF-8, uncompressed."""
    kind = headers.get(hdrs.CONTENT_TYPE, "")
    if kind != "application/json" and not _is_json(kind):
        raise RequestRejected(WRONG_MEDIA)
    if any(coding.lower() != "identity" for coding in headers.getall(hdrs.CONTENT_ENCODING, ())):
        raise RequestRejected(WRONG_MEDIA)


def check_accept(verb: HttpMethod, headers: Headers) -> tuple[bool, bool]:
    """Return whether the host accepts JSON, and event streams.

    Raises RequestRejected if it accepts no answer that the method can have.
    """
    accept = ",".join(headers.getall(hdrs.ACCEPT, ()))
    accepted = _USUAL_ACCEPTS.get(accept) or read_accept(accept)
    accepts_json, accepts_stream = accepted
    if verb is HttpMethod.GET and not accepts_stream:
        raise RequestRejected(NOT_ACCEPTABLE)
    if verb is HttpMethod.POST and not (accepts_json or accepts_stream):
        raise RequestRejected(NOT_ACCEPTABLE)
    return accepted


def read_accept(accept: str) -> tuple[bool, bool]:
    """Return whether JSON and event streams are acceptable. An empty value excludes nothing.

    The most specific matching range decides. q=0 excludes; all other weights are equal.
    """
    wanted: dict[str, bool] = {}
    for element in accept.split(","):
        media, *parameters = (part.strip().lower() for part in element.split(";"))
        if media:
            wanted[media] = wanted.get(media, False) or not any(_is_zero_weight(each) for each in parameters)
    if not wanted:
        return True, True
    anything = wanted.get("*/*", False)
    return (
        wanted.get("application/json", wanted.get("application/*", anything)),
        wanted.get("text/event-stream", wanted.get("text/*", anything)),
    )


def _is_zero_weight(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    value = value.strip()
    return name.strip() == "q" and value.startswith("0") and not value.strip("0.")


def _is_json(kind: str) -> bool:
    media, *parameters = (part.strip().lower() for part in kind.split(";"))
    charsets = (
        value.strip(' "') for name, _, value in (each.partition("=") for each in parameters) if name == "charset"
    )
    return media == "application/json" and all(charset == "utf-8" for charset in charsets)


def _single(headers: Headers, name: istr) -> str | None:
    values = headers.getall(name, None)
    if values is None:
        return None
    if len(values) > 1:
        raise RequestRejected(SENT_TWICE)
    return values[0]


def _revision(headers: Headers) -> str | None:
    values = headers.getall(_VERSION, ())
    if len(values) <= 1:
        return values[0] if values else None
    # The modern era has its own error for this, raised after the message is known.
    modern = next((value for value in values if find_modern_revision(value) is not None), None)
    if modern is None:
        raise RequestRejected(SENT_TWICE)
    return modern


def _id(text: str | None) -> str | None:
    """Return an id as it was sent, or the unknown id if it is invalid, so that no store gets it."""
    if text is None:
        return None
    visible = text.isascii() and text.isprintable() and " " not in text
    return text if visible and 0 < len(text) <= _LONGEST_ID else _NO_ID


_USUAL_ACCEPTS: Final = {
    accept: read_accept(accept)
    for accept in (
        "application/json, text/event-stream",
        "text/event-stream, application/json",
        "application/json,text/event-stream",
        "application/json",
        "text/event-stream",
        "*/*",
    )
}
"""The values that released hosts send, parsed once."""
