"""The event stream of the API of operators, as commands read it: `EventStream`."""

import json
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.protocol.sse import EventDecoder, EventTooLarge

OPENED: Final = "opened"
"""The notice that a stream is open: what happened before may have no event."""
ALIVE: Final = "alive"
"""The notice that something came which is no event: the gateway sends a comment each 15 s."""
RESET: Final = "reset"
"""The event that others were missed."""
MAX_EVENT: Final = 2**20
"""Bytes of an event; a longer one ends the stream as an error."""
SILENCE: Final = 45.0
"""Seconds without a byte after which a stream counts as broken."""
_PAUSE, _MAX_PAUSE = 2.0, 30.0


class Notice(NamedTuple):
    """An event, or one of OPENED and ALIVE, which have no data."""

    name: str
    data: Mapping[str, Any]


class EventStream:
    """The events of some kinds, over one connection after another.

    `pause` is how many seconds to wait before the next connection.
    """

    def __init__(self, client: AdminClient, *kinds: str) -> None:
        self._client = client
        self._kinds = ",".join(kinds)
        self._last: str | None = None
        self.pause = _PAUSE

    def read(self) -> Generator[Notice]:
        """Connect, and return notices until the connection ends. Resumes after the last event before.

        Raises ApiRefused, and GatewayUnreachable.
        """
        found: list[Notice] = []
        decoder = EventDecoder(MAX_EVENT, other=lambda name, data: found.append(_notice(name, data)))
        query = [("kinds", self._kinds)]
        found.append(Notice(OPENED, {}))
        with closing(self._client.read_stream("/events", query, last_event=self._last, silence=SILENCE)) as chunks:
            for chunk in chunks:
                try:
                    decoder.feed(chunk)
                except EventTooLarge:
                    raise GatewayUnreachable(f"an event of {self._client.url} is too large") from None
                self._last = decoder.last_id or self._last
                if decoder.retry is not None:
                    self.pause = min(decoder.retry / 1000, _MAX_PAUSE)
                yield from found or [Notice(ALIVE, {})]
                found.clear()


def explain_refusal(error: ApiRefused) -> Exception:
    """The error for the operator, if the gateway refuses the stream for good."""
    if error.status in (200, 404, 405):
        return GatewayUnreachable(
            "the gateway has no event stream (GET /api/v1/events): upgrade it, or ask once with `tasks show` or "
            "`top --once`"
        )
    return error


def _notice(name: bytes, data: bytes) -> Notice:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    return Notice(name.decode(errors="replace"), document if isinstance(document, dict) else {})
