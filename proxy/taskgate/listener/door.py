"""The head of a request, `HostHead`, and its checks before the body is read: `Door`.

`Endpoint` calls `Door.admit`. In this order it checks framing, `Host`, `Origin`, path, method,
media types, declared length, and repeated headers. A failed check raises RequestRejected with a
constant `Rejection`, so that nothing that a host sent can come back in an answer. Doubtful framing
also ends the connection.

The checks get the header fields of `ADMISSION_FIELDS` and no others, and the length of the body. So a
connection can remember a head (`HostHead`) with its admission. It admits a later one without a check
if it has the same bytes (`find_head`), or the same values of these fields (`find_admission`).

The configuration makes the names to check against with `allowed_hosts` and `allowed_origins`. Each
set is complete and in lower case, because the door looks headers up in it. Pure.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import repeat
from operator import attrgetter
from typing import Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion, hdrs
from aiohttp.http import HttpVersion10, HttpVersion11
from multidict import CIMultiDict, istr

from taskgate.domain.versions import MODERN
from taskgate.ip_addresses import Network
from taskgate.listener.peers import read_peer
from taskgate.protocol.vocabulary import SESSION_HEADER, VERSION_HEADER
from taskgate.streams.exchange import Admission, HttpMethod, ListenerRefused
from taskgate.telemetry import events
from taskgate.telemetry.request_context import RequestContext

_SESSION: Final = istr(SESSION_HEADER)
_VERSION: Final = istr(VERSION_HEADER)
_LAST_EVENT: Final = istr("Last-Event-ID")
_API_KEY: Final = istr("X-API-Key")

Fields = Mapping[istr, Sequence[str]]
"""The values of each of ADMISSION_FIELDS, in their order; empty for a field that was not sent."""
ADMISSION_FIELDS: Final = (
    hdrs.ACCEPT,
    hdrs.AUTHORIZATION,
    hdrs.CONTENT_ENCODING,
    hdrs.CONTENT_TYPE,
    hdrs.EXPECT,
    hdrs.FORWARDED,
    hdrs.HOST,
    _LAST_EVENT,
    _SESSION,
    _VERSION,
    hdrs.ORIGIN,
    hdrs.TRANSFER_ENCODING,
    hdrs.USER_AGENT,
    _API_KEY,
    hdrs.X_FORWARDED_FOR,
)
"""The fields that the admission of a head, its authentication and its RequestContext can read."""
MOST_REMEMBERED: Final = 8
"""The heads that a connection remembers: a proxy may send the requests of several callers on one."""
MOST_REMEMBERED_BYTES: Final = 32 * 1024
"""The bytes of these heads together."""

_VERBS: Final = {verb.value: verb for verb in HttpMethod}
_USUAL_PORTS: Final = ("80", "443")
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_ID: Final = re.compile("[!-~]{1,256}").fullmatch
_ABSOLUTE: Final = re.compile("https?://([^/?]*)(.*)", re.IGNORECASE).fullmatch
LONGEST_LENGTH: Final = 18
"""Digits of a Content-Length that is read as it is."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})[ \t]*\r\n" % LONGEST_LENGTH, re.IGNORECASE)
"""The field in a head that was parsed: there it has one value, and no line goes on in the next."""
_CORS: Final = (
    "Access-Control-Expose-Headers: Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy\r\n"
    "Vary: Origin\r\n"
)
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


BAD_REQUEST: Final = Rejection(status=400, text="Bad request", close=True)
TOO_SLOW: Final = Rejection(status=408, text="Request not received in time", close=True)
HEAD_TOO_LARGE: Final = Rejection(status=431, reason="header_too_large", text="Request head too large", close=True)
BODY_TOO_LARGE: Final = Rejection(status=413, reason="body_too_large", text="Request body too large", close=True)
NOT_IMPLEMENTED: Final = Rejection(status=501, text="Not implemented", close=True)
WRONG_HTTP: Final = Rejection(status=505, text="HTTP version not supported: use HTTP/1.1", close=True)
WRONG_EXPECTATION: Final = Rejection(status=417, text="Unsupported Expect header: only 100-continue is supported")
WRONG_CLIENT: Final = Rejection(status=403, reason="bad_client", text="Address not allowed: see server.allowed_clients")
WRONG_HOST: Final = Rejection(status=421, reason="bad_host", text="Host not allowed: see server.allowed_hosts")
WRONG_ORIGIN: Final = Rejection(status=403, reason="bad_origin", text="Origin not allowed: see server.allowed_origins")
UNKNOWN_PATH: Final = Rejection(status=404, reason="unknown_path", text="No server is mounted at this path")
WRONG_METHOD: Final = Rejection(status=405, text="Method not allowed", allow=", ".join(_VERBS))
WRONG_MEDIA: Final = Rejection(status=415, reason="media_type", text="The body must be application/json in UTF-8")
NOT_ACCEPTABLE: Final = Rejection(
    status=406,
    reason="not_acceptable",
    text="The Accept header must allow application/json or text/event-stream; for GET, text/event-stream",
)
NO_ROOM: Final = Rejection(status=503, reason=events.AUDIT_FULL, text="The audit log has no room for the request")
NO_BYTES: Final = Rejection(status=429, reason="bytes", text="Too many bytes of requests are in flight", close=True)
NO_MEMORY: Final = Rejection(status=503, reason="overload", text="The gateway is short of memory", close=True)
SENT_TWICE: Final = Rejection(status=400, reason="header_mismatch", text="A header was sent with two values")


class RequestRejected(ListenerRefused):
    """A request is rejected by the listener."""

    def __init__(self, refusal: Rejection) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


class AdmissionGeneration:
    """The number of the present generation of admissions. A reload ends it."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def end(self) -> None:
        """Have no head admitted as it was before."""
        self.number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The checks of a listener. Names are in lower case, sizes in bytes.

    Requests come from `clients`, or from anywhere if there are none. Pages of `cors_origins` may read
    answers. `paths` are those of the present mounts. A reload may change them while a request waits,
    and ends the `generation`.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    paths: Container[str]
    max_body: int
    cors_origins: frozenset[str] = frozenset()
    clients: tuple[Network, ...] = ()
    generation: AdmissionGeneration = field(default_factory=AdmissionGeneration)

    def admit(self, method: str, target: str, version: HttpVersion, fields: Fields, length: int = 0) -> Admission:
        """Check a head with its Content-Length, and return its admission.

        Raises RequestRejected at the first failed check.
        """
        self.greet(method, version, fields)
        # An empty one is none.
        if fields[hdrs.ORIGIN] and any(each and each.lower() not in self.origins for each in fields[hdrs.ORIGIN]):
            raise RequestRejected(WRONG_ORIGIN)
        path, _, query = target.partition("?")
        if path not in self.paths:
            raise RequestRejected(UNKNOWN_PATH)
        verb = _VERBS.get(method)
        if verb is None:
            raise RequestRejected(WRONG_METHOD)
        if verb is HttpMethod.POST:
            # The body must declare itself as JSON, uncompressed.
            media = fields[hdrs.CONTENT_TYPE][:1]
            if not media or (media[0] != "application/json" and not _is_json(media[0])):
                raise RequestRejected(WRONG_MEDIA)
            if fields[hdrs.CONTENT_ENCODING] and not _is_identity(fields[hdrs.CONTENT_ENCODING]):
                raise RequestRejected(WRONG_MEDIA)
        accept = ",".join(fields[hdrs.ACCEPT])
        accepts_json, accepts_stream = _USUAL_ACCEPTS.get(accept) or read_accept(accept)
        # A POST is answered with either, a GET with a stream only. A DELETE has no body to accept.
        if not accepts_stream and (verb is HttpMethod.GET or (verb is HttpMethod.POST and not accepts_json)):
            raise RequestRejected(NOT_ACCEPTABLE)
        if length > self.max_body:
            raise RequestRejected(BODY_TOO_LARGE)
        revisions = fields[_VERSION]
        revision = None if not revisions else revisions[0] if len(revisions) == 1 else _only_one(revisions)
        host_session = last_event = None
        # The modern era has neither sessions nor resumable streams: their headers are ignored
        # (V-ERA-4).
        if revision not in MODERN:
            sessions, last_events = fields[_SESSION], fields[_LAST_EVENT] if verb is HttpMethod.GET else ()
            if (len(sessions) > 1 and len(set(sessions)) > 1) or (len(last_events) > 1 and len(set(last_events)) > 1):
                raise RequestRejected(SENT_TWICE)
            # An invalid id becomes the unknown one, so that no store gets it.
            if sessions:
                host_session = sessions[0] if _ID(sessions[0]) else _NO_ID
            # Hosts without an event id may send an empty header.
            if last_events and last_events[0]:
                last_event = last_events[0] if _ID(last_events[0]) else _NO_ID
        return Admission(
            verb,
            path,
            host_session,
            revision,
            accepts_json,
            accepts_stream,
            tuple(fields[hdrs.AUTHORIZATION]),
            query,
            last_event,
            self.generation.number,
            api_keys=tuple(fields[_API_KEY]),
        )

    def admits_client(self, address: str) -> bool:
        """Return whether requests may come from this address, as `Peers` returns it."""
        found, _ = read_peer(address)
        return found is not None and any(found in network for network in self.clients)

    def cors_fields(self, fields: Fields) -> str:
        """Return the header lines by which a browser lets a page read the answer; none for others."""
        origin = fields[hdrs.ORIGIN][0].lower() if len(fields[hdrs.ORIGIN]) == 1 else ""
        return f"Access-Control-Allow-Origin: {origin}\r\n{_CORS}" if origin in self.cors_origins else ""

    def greet(self, method: str, version: HttpVersion, fields: Fields) -> None:
        """Check framing and host, which is all for a request for a public document.

        Raises RequestRejected.
        """
        expect_framing(method, version, fields)
        host = fields[hdrs.HOST][0] if fields[hdrs.HOST] else ""
        if host not in self.hosts and host.lower() not in self.hosts:
            raise RequestRejected(WRONG_HOST)


def expect_framing(method: str, version: HttpVersion, fields: Fields) -> None:
    """Reject what two parsers could read differently, and whatever would change the protocol.

    Raises RequestRejected.
    """
    if version not in (HttpVersion11, HttpVersion10):
        raise RequestRejected(WRONG_HTTP)
    if fields[hdrs.TRANSFER_ENCODING]:
        if version == HttpVersion10:
            raise RequestRejected(BAD_REQUEST)
        if fields[hdrs.TRANSFER_ENCODING][0].lower() != "chunked":
            raise RequestRejected(NOT_IMPLEMENTED)
    # An offer of another protocol (`Upgrade`) is not taken up, as RFC 9110, 7.8, allows.
    if method == hdrs.METH_CONNECT:
        raise RequestRejected(NOT_IMPLEMENTED)
    if fields[hdrs.EXPECT] and fields[hdrs.EXPECT][0].lower() != "100-continue":
        raise RequestRejected(WRONG_EXPECTATION)


def origin_form(target: str, headers: CIMultiDict[str]) -> str:
    """Return the path and query of a target in absolute form, as a client sends it that takes the
    gateway for its proxy. Other targets stay.

    What the target names replaces `Host` (RFC 9112, 3.2.2).
    """
    found = _ABSOLUTE(target)
    if found is None:
        return target
    headers[hdrs.HOST], path = found.groups()
    return path if path[:1] == "/" else f"/{path}"


def declared_length(digits: str) -> int:
    """Return the value of a Content-Length; of one of more than LONGEST_LENGTH digits, a part that is
    still too large.

    The parser takes any number of zeros before it, but `int` only some thousands of digits.
    """
    return int(digits.lstrip("0")[:LONGEST_LENGTH] or "0")


RawFields = tuple[tuple[bytes, bytes], ...]
"""All header fields of a request, as they came."""


@dataclass(slots=True, eq=False, repr=False)
class HostHead:
    """The head of a request, as it was parsed. Requests with the same head share it.

    Two heads are the same if all their bytes are, but for the digits of Content-Length. Its value
    belongs to one request, so it is left out here (`HostRequest.length`).

    - `target` is the path with the query, as it came. `fields` are those of `headers`.
    - `keep_alive`: the host wants to send another request on the connection.
    - `raw` are the bytes of a head that is not remembered. `before` and `after` are those of a
      remembered one, around the digits of Content-Length. Without Content-Length, `before` has all.
      `size` is their size.
    - `cors` are the header lines of `Door.cors_fields` that each answer to this head has.
    - `admission`, `address`, `agent` and `values`, the header fields that the admission depends on,
      are those of a remembered head.
    """

    method: str
    target: str
    version: HttpVersion
    headers: CIMultiDict[str]
    keep_alive: bool = False
    is_chunked: bool = False
    is_too_large: bool = False
    raw: bytes = b""
    before: bytes = b""
    after: bytes = b""
    size: int = 0
    cors: str = ""
    admission: Admission | None = None
    address: str = ""
    agent: str | None = None
    values: Fields | None = None
    fields: Collection[tuple[str, str]] = ()


def admission_fields(head: HostHead) -> Fields:
    """Return the fields of a head that its admission depends on."""
    return dict(zip(ADMISSION_FIELDS, map(head.headers.getall, ADMISSION_FIELDS, repeat(())), strict=True))


def find_head(heads: list[HostHead], data: bytes, at: int, end: int) -> HostHead | None:
    """Return the remembered head that these bytes of `data` are; None if they are another one.

    `end` is where the first empty line behind `at` ends. The head becomes the first of them.
    """
    for head in heads:
        after = head.after
        if data.startswith(head.before, at) and data.startswith(after, end - len(after)):
            digits = data[at + len(head.before) : end - len(after)]
            # A head without Content-Length is whole in `before`.
            if not after or (digits.isdigit() and len(digits) <= LONGEST_LENGTH):
                if head is not heads[0]:
                    heads.remove(head)
                    heads.insert(0, head)
                return head
    return None


def find_admission(heads: list[HostHead], head: HostHead, values: Fields, generation: int) -> Admission | None:
    """Return the admission of a remembered head that differs from `head` in other fields only.

    Such fields are those of one message, like the name of its tool, or the request id of a proxy.
    """
    for known in heads:
        admission = known.admission
        if (
            known.values == values
            and known.target == head.target
            and known.method == head.method
            and known.version == head.version
            and admission is not None
            and admission.generation == generation
        ):
            return admission
    return None


def remember(heads: list[HostHead], head: HostHead, admission: Admission, context: RequestContext) -> None:
    """Add an admitted head as the first of its connection, and drop the longest unused of too many.

    A head that is among them already gets another admission.
    """
    if raw := head.raw:
        length = _LENGTH.search(raw)
        if length is not None:
            head.before, head.after = raw[: length.start(1)], raw[length.end(1) :]
        elif b"content-length" in raw.lower():
            # A length of more digits than a usual one has.
            return
        else:
            head.before = raw
        head.raw, head.size = b"", len(raw)
        # One with the same bytes was parsed for a request that came before this head was known.
        heads[:] = [each for each in heads if each.before != head.before or each.after != head.after]
        heads.insert(0, head)
        while len(heads) > MOST_REMEMBERED or sum(map(_SIZE, heads)) > MOST_REMEMBERED_BYTES:
            del heads[-1]
        head.values = admission_fields(head)
    head.admission, head.address, head.agent = admission, context.address, context.agent


_SIZE: Final = attrgetter("size")


def allowed_hosts(
    public_url: str | None, listen_host: str, bound_port: int, configured: Iterable[str]
) -> frozenset[str]:
    """Return every value of `Host` that the listener answers to, in lower case.

    The entries are those of `configured`. If it is empty, the entry is the host of `public_url`, or
    the listen address if that is unset. A loopback listener then has localhost, 127.0.0.1 and [::1]
    with its port too.

    An entry without a port admits the bare name, and the name with the listener's port, 80 or 443.
    An entry with a port admits that port alone; for 80 and 443 also the bare name, since clients
    leave those ports out.
    """
    entries = list(configured)
    if not entries:
        here = f"[{listen_host}]" if ":" in listen_host else listen_host
        entries.append(urlsplit(public_url).netloc if public_url else f"{here}:{bound_port}")
        if _is_loopback(listen_host):
            entries.extend(f"{name}:{bound_port}" for name in _LOOPBACK_NAMES)
    return frozenset(spelling for entry in entries for spelling in _spellings(entry.lower(), bound_port))


def allowed_origins(hosts: Iterable[str], configured: Iterable[str]) -> frozenset[str]:
    """Return every accepted value of `Origin`, in lower case: the configured ones, or else `hosts`
    over http and https.

    `hosts` is the result of `allowed_hosts`. `null`, which sandboxed pages and local files send, is
    excluded.
    """
    entries = list(configured) or [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return frozenset(entry.lower() for entry in entries) - {"null"}


def _spellings(entry: str, bound_port: int) -> Iterator[str]:
    """Return the values of `Host` that one entry admits."""
    yield entry
    name, colon, port = entry.rpartition(":")
    if not colon or port.endswith("]"):
        for each in (str(bound_port), *_USUAL_PORTS):
            yield f"{entry}:{each}"
    elif port in _USUAL_PORTS:
        yield name


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def head_size(target: str, fields: RawFields) -> int:
    """Return the size of a head in bytes, except spacing around values."""
    return len(target) + sum(len(name) + len(value) + len(": \r\n") for name, value in fields)


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
    # The parameter has no meaning for JSON (RFC 8259, 11): the body is read as UTF-8, and checked.
    return media == "application/json" and not any(_is_wide(charset) for charset in charsets)


def _is_wide(charset: str) -> bool:
    """Return whether this encoding is UTF-16 or UTF-32, in any spelling."""
    return charset.replace("-", "").startswith(("utf16", "utf32"))


def _is_identity(codings: Sequence[str]) -> bool:
    return all(coding.lower() == "identity" for coding in codings)


def _only_one(revisions: Sequence[str]) -> str:
    """Return the modern one of several revisions, or the one that they all are.

    The modern era has its own error for two of them. It is raised after the message is known.
    """
    modern = next((each for each in revisions if each in MODERN), None)
    if modern is not None:
        return modern
    if len(set(revisions)) > 1:
        raise RequestRejected(SENT_TWICE)
    return revisions[0]


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
