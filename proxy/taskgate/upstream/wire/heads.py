"""Heads of answers: `AnswerHeads` parses them with aiohttp, and remembers the last few of a server.

The heads of one server are alike: within a second only their Content-Length differs. So a whole head
is looked up by its bytes without that number. A head is remembered only if aiohttp's parser accepted
it, with one Content-Length of plain digits, or with none. `AnswerHead` is what `Connection` and
`HttpIncoming` need of a head.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from aiohttp import ClientPayloadError, hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import parse_content_type
from aiohttp.http_parser import HttpResponseParser, RawResponseMessage

from taskgate.clock import SystemClock
from taskgate.content_codings import CodingRefused, coding_of
from taskgate.protocol.vocabulary import SESSION_HEADER
from taskgate.upstream.pauses import asked_pause

CHUNKED: Final = -1
"""The length of a body in chunks."""
UNTIL_CLOSE: Final = -2
"""The length of a body that ends with its connection."""

SWITCHED: Final = 101
_BODILESS: Final = frozenset({204, 304})

REMEMBERED: Final = 128
"""Heads that are remembered for one server; those of its sessions may differ by their id."""
LONGEST: Final = 1024
"""The most bytes of a head that is remembered."""

HEAD_END: Final = re.compile(rb"\n\r?\n").search
"""The end of a head: an empty line. aiohttp's parser accepts lines of answers that end in LF alone."""
LONGEST_LENGTH: Final = 15
"""Digits of a Content-Length."""
LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,%d})(?=\r\n)" % LONGEST_LENGTH).search


class AnswerHead:
    """The head of an answer. `length` is that of the body, CHUNKED or UNTIL_CLOSE; it does not hold
    for the next answer with the same head.

    - `status`, `session`, `streams`, `retry_after`: as in `Incoming`. `location`: where a redirect leads.
    - `is_of_now`: `retry_after` counts from now, so it does not hold for another answer.
    - `closes`: the connection carries no other request.
    - `has_length`: the length is that of a Content-Length.
    - `has_valid_type`: the Content-Type, if any, is valid.
    - `coding`: gzip or deflate, if the body is compressed.
    - `unreadable`: why the body must not be read, and the cause for operators. That is no failure for
      those who need the status.
    """

    __slots__ = (
        "closes",
        "coding",
        "has_length",
        "has_valid_type",
        "is_of_now",
        "length",
        "location",
        "retry_after",
        "session",
        "status",
        "streams",
        "unreadable",
    )

    def __init__(self, message: RawResponseMessage) -> None:
        headers = message.headers
        self.status: Final = message.code
        self.closes: Final = message.should_close or message.code == SWITCHED
        self.session: Final = headers.get(SESSION_HEADER)
        self.location: Final = headers.get(hdrs.LOCATION)
        self.length, self.has_length = _length_of(message)
        self.retry_after: timedelta | None = None
        self.is_of_now = False
        if hdrs.RETRY_AFTER in headers:
            date = _date_of(headers)
            self.is_of_now = date is None
            self.retry_after = asked_pause(headers[hdrs.RETRY_AFTER], date or SystemClock.wall())
        self.has_valid_type = True
        media_type, written = None, headers.get(hdrs.CONTENT_TYPE)
        try:
            media_type = None if written is None else parse_content_type(written)[0]
        except ValueError:
            self.has_valid_type = False
        self.streams: Final = media_type == "text/event-stream"
        self.unreadable: tuple[str, str | None] | None = None
        self.coding: str | None = None
        if not (self.streams or media_type == "application/json" or (self.status >= 400 and _explains(media_type))):
            self.unreadable = "its answer is neither JSON nor an event stream", _as_cause(media_type)
        elif hdrs.CONTENT_ENCODING in headers:
            self._see_coding(headers.getall(hdrs.CONTENT_ENCODING))

    def _see_coding(self, written: list[str]) -> None:
        """Note the content coding of the body, which no request asks for."""
        try:
            self.coding = coding_of(written)
        except CodingRefused as refused:
            self.unreadable = f"its answer has the content encoding {refused}, which was not requested", None

    @property
    def is_interim(self) -> bool:
        """Whether another head follows, that of the answer itself."""
        return 100 <= self.status < 200 and self.status != SWITCHED


def _date_of(headers: Mapping[str, str]) -> datetime | None:
    """Return the time of day by the clock of the server, None if the answer does not have it."""
    try:
        date = parsedate_to_datetime(headers.get(hdrs.DATE, ""))
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _as_cause(media_type: str | None) -> str:
    """Return the cause of a failure that is an answer of such a type."""
    if media_type is None:
        return "answers without a content type, not MCP"
    return f"answers {media_type if _TYPE(media_type) else 'an odd content type'}, not MCP"


_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,40}").fullmatch


def _explains(media_type: str | None) -> bool:
    """Whether a body under an error status may say why: JSON of any kind, text, or without a type."""
    return media_type is None or media_type == "text/plain" or media_type.endswith("+json")


def _length_of(message: RawResponseMessage) -> tuple[int, bool]:
    """Return the length of the body, as llhttp takes it from a head that it accepts, and whether it
    is that of a Content-Length."""
    if 100 <= message.code < 200 or message.code in _BODILESS:
        return 0, False
    if message.chunked:
        return CHUNKED, False
    written = message.headers.get(hdrs.CONTENT_LENGTH)
    if written is None or hdrs.TRANSFER_ENCODING in message.headers:
        return UNTIL_CLOSE, False
    return int(written), True


class HeadTooLarge(Exception):
    """A head has more bytes than `AnswerHeads.longest`."""


class AnswerHeads:
    """The heads of one server's answers, for all connections to it; each has at most `longest` bytes."""

    __slots__ = ("_loop", "_protocol", "counted", "longest", "others")

    def __init__(self, loop: asyncio.AbstractEventLoop, longest: int) -> None:
        self.longest: Final = longest
        self._loop = loop
        self._protocol = BaseProtocol(loop)
        self.counted: dict[bytes, AnswerHead] = {}
        """Heads with one Content-Length in the usual form (LENGTH), by their bytes without its digits
        and without the empty line."""
        self.others: dict[bytes, AnswerHead] = {}
        """Other heads, by their bytes without the empty line."""

    def parser(self) -> HttpResponseParser:
        """Return a new parser, for one head and the interim ones before it."""
        return HttpResponseParser(
            self._protocol,
            self._loop,
            2**16,
            payload_exception=ClientPayloadError,
            read_until_eof=True,
            auto_decompress=False,
            # The sum is bounded, not the lines.
            max_line_size=self.longest,
            max_field_size=self.longest,
            max_headers=self.longest,
        )


def remember(known: dict[bytes, AnswerHead], key: bytes, head: AnswerHead) -> None:
    """Store a head that is not too long, in place of the oldest one if there are enough."""
    if len(key) > LONGEST or head.is_of_now:
        return
    if len(known) >= REMEMBERED:
        del known[next(iter(known))]
    known[key] = head
