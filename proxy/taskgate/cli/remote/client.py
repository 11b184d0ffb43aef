"""Requests to the operators' listener: `AdminClient`.

It uses the HTTP client of the standard library, which loads faster than aiohttp. Redirects are not
followed, and proxies of the environment are not used, so a token reaches the named address alone.
"""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLCertVerificationError, SSLError
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from taskgate.cli.printing import one_line

API: Final = "/api/v1"
MAX_ANSWER: Final = 32 * 2**20
"""Bytes of an answer; a longer one is an error."""
MAX_CHUNK: Final = 64 * 1024
"""Bytes of an event stream that are read at once."""
MAX_PAGE: Final = 100
"""The most items that the API puts on a page."""
_PORTS: Final = {"http": 80, "https": 443}
_WRONG_URL: Final = "--admin must be http://HOST:PORT or https://HOST:PORT"


class AdminUrlInvalid(ValueError):
    """The address of the operators' listener is none; the text is for the operator."""


class GatewayUnreachable(Exception):
    """The gateway did not answer, or what answered is none; the text is for the operator."""


class ApiRefused(Exception):
    """The API refused a request; the text is for the operator, `status` the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Reply(NamedTuple):
    """The answer to a request: its status, and its document if it is JSON, else None."""

    status: int
    document: Any


class Listed(NamedTuple):
    """The items of a list of the API, and the time of the last answer.

    `is_complete` is False if the gateway did not look at all that there is; `has_more` tells whether
    there are more items than were asked for.
    """

    items: list[dict[str, Any]]
    now: Any
    is_complete: bool
    has_more: bool


class AdminClient:
    """A client of one operators' listener; each request has a connection of its own.

    `url` is `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. Raises AdminUrlInvalid.
    `timeout` is in seconds, for the connection and for each read. `token` is sent with each
    request.
    """

    def __init__(self, url: str, *, timeout: float, token: str | None = None) -> None:
        self._timeout = timeout
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port or _PORTS[parts.scheme]
        except (KeyError, ValueError):
            raise AdminUrlInvalid(_WRONG_URL) from None
        if not parts.hostname or parts.path not in ("", "/") or parts.query or "@" in parts.netloc:
            raise AdminUrlInvalid(_WRONG_URL)
        self._host, self._port = parts.hostname, port
        self._connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self.url: Final = f"{parts.scheme}://{parts.netloc}"
        """The address as error texts name it."""

    def get(self, path: str) -> Reply:
        """Send a GET request. Raises GatewayUnreachable."""
        status, body = self._send("GET", path)
        return Reply(status, _json_or_none(body))

    def get_text(self, path: str) -> tuple[int, str]:
        """Send a GET request, and return the status and the text. Raises GatewayUnreachable."""
        status, body = self._send("GET", path)
        return status, body.decode(errors="replace")

    def ask(
        self, method: str, path: str, query: Iterable[tuple[str, str]] = (), body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request to the API, and return its document.

        `path` is below `/api/v1`; `body` is sent as JSON. Raises GatewayUnreachable, and ApiRefused for a refusal.
        """
        encoded = urlencode([*query])
        return self._ask(method, f"{API}{path}{'?' if encoded else ''}{encoded}", body)[0]

    def ask_whole(self, path: str) -> tuple[dict[str, Any], str]:
        """Send a GET request to the API, and return its document, and the text of that. Raises as `ask`."""
        document, text = self._ask("GET", f"{API}{path}")
        return document, text.decode()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], bytes]:
        status, answer = self._send(method, path, body)
        reply = Reply(status, _json_or_none(answer))
        if 200 <= reply.status < 300 and isinstance(reply.document, dict):
            return reply.document, answer
        raise ApiRefused(reply.status, _refusal(reply))

    def list_items(self, path: str, filters: Mapping[str, str | None], limit: int) -> Listed:
        """The first items of a list, from as many pages as that takes; a filter of None is none.

        Raises as `ask`.
        """
        given = [(name, value) for name, value in filters.items() if value is not None]
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            paging = [("limit", str(min(limit - len(items), MAX_PAGE))), *([("cursor", cursor)] if cursor else [])]
            page = self.ask("GET", path, [*given, *paging])
            found = page.get("items")
            items += [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
            cursor = page.get("next")
            if not cursor or len(items) >= limit:
                return Listed(items[:limit], page.get("now"), page.get("is_complete") is not False, bool(cursor))

    def read_stream(
        self, path: str, query: Iterable[tuple[str, str]], *, last_event: str | None, silence: float
    ) -> Generator[bytes]:
        """Send a request for an event stream to the API, and return its chunks until it ends.

        Raises as `ask`, also after `silence` seconds without a chunk.
        """
        connection = self._connection_class(self._host, self._port, timeout=self._timeout)
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last_event is not None:
            headers["Last-Event-ID"] = last_event
        with ExitStack() as stack:
            stack.callback(connection.close)
            with self._named_failures(self._timeout):
                connection.connect()
                opened = connection.sock
                connection.request("GET", f"{API}{path}?{urlencode([*query])}", headers=headers)
                response = stack.enter_context(connection.getresponse())
                if response.status != 200:
                    refused = Reply(response.status, _json_or_none(response.read(MAX_ANSWER)))
                    raise ApiRefused(refused.status, _refusal(refused))
                if response.headers.get_content_type() != "text/event-stream":
                    raise ApiRefused(response.status, "the answer is no event stream")
            opened.settimeout(silence)
            while True:
                with self._named_failures(silence):
                    chunk = response.read1(MAX_CHUNK)
                if not chunk:
                    return
                yield chunk

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        connection = self._connection_class(self._host, self._port, timeout=self._timeout)
        try:
            with self._named_failures(self._timeout):
                sent = None if body is None else json.dumps(body).encode()
                headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
                connection.request(method, path, body=sent, headers=headers)
                response = connection.getresponse()
                received = response.read(MAX_ANSWER + 1)
        finally:
            connection.close()
        if len(received) > MAX_ANSWER:
            raise self._unreachable("the answer is too large")
        return response.status, received

    @contextmanager
    def _named_failures(self, timeout: float) -> Iterator[None]:
        """Raise GatewayUnreachable for a connection that fails, or has nothing for `timeout` seconds."""
        try:
            yield
        except TimeoutError:
            raise self._unreachable(f"no answer within {timeout:g} s") from None
        except SSLCertVerificationError as error:
            advice = "name the file of a private authority in SSL_CERT_FILE"
            raise self._unreachable(
                f"its certificate is not trusted ({error.verify_message.rstrip('.')}); {advice}"
            ) from None
        except SSLError as error:
            reason = (error.reason or "no handshake").replace("_", " ").lower()
            raise self._unreachable(f"TLS failed: {reason}") from None
        except OSError as error:
            raise self._unreachable(error.strerror or type(error).__name__) from None
        except UnicodeError:
            raise self._unreachable("the host is not a name") from None
        except HTTPException:
            raise self._unreachable("the answer is not HTTP") from None

    def _unreachable(self, reason: str) -> GatewayUnreachable:
        return GatewayUnreachable(
            f"cannot ask the operators' listener at {self.url}: {reason}. Start the gateway, or name the address of "
            "its admin.listen with --admin URL (https:// with admin.tls)."
        )


def _refusal(reply: Reply) -> str:
    """What the API says of a refusal, and what to do."""
    error = reply.document.get("error") if isinstance(reply.document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    said = one_line(message) if isinstance(message, str) else f"HTTP status {reply.status}"
    if reply.status == 401:
        return f"{said}: give --token FILE with a token of admin.tokens, or the own one in the data directory"
    if reply.status == 421:
        return f"{said}: give --admin an IP address or localhost, or add the name to admin.allowed_hosts"
    return said


def _json_or_none(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
