"""Requests to the operators' listener: `AdminClient`.

It uses the HTTP client of the standard library, which loads faster than aiohttp. Redirects are not
followed, and proxies of the environment are not used, so a token reaches the named address alone.
"""

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL: Final = "http://127.0.0.1:9464"
MAX_ANSWER: Final = 32 * 2**20
"""Bytes of an answer; a longer one is an error."""
_PORTS: Final = {"http": 80, "https": 443}


class AdminUrlInvalid(ValueError):
    """The address of the operators' listener is none; the text is for the operator."""


class GatewayUnreachable(Exception):
    """The gateway did not answer, or what answered is none; the text is for the operator."""


class Reply(NamedTuple):
    """The answer to a request: its status, and its document if it is JSON, else None."""

    status: int
    document: Any


class AdminClient:
    """A client of one operators' listener; each request has a connection of its own.

    `url` is `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. Raises AdminUrlInvalid.
    `timeout` is in seconds, for the connection and for each read.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        self._timeout = timeout
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port or _PORTS[parts.scheme]
        except (KeyError, ValueError):
            port = 0
        if not parts.hostname or not port or parts.path not in ("", "/") or parts.query or "@" in parts.netloc:
            raise AdminUrlInvalid("--admin must be http://HOST:PORT or https://HOST:PORT")
        self._host, self._port = parts.hostname, port
        self._connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self.url: Final = f"{parts.scheme}://{parts.netloc}"
        """The address as error texts name it."""

    def get(self, path: str) -> Reply:
        """Send a GET request. Raises GatewayUnreachable."""
        connection = self._connection_class(self._host, self._port, timeout=self._timeout)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            body = response.read(MAX_ANSWER + 1)
        except TimeoutError:
            raise self._unreachable(f"no answer within {self._timeout:g} s") from None
        except OSError as error:
            raise self._unreachable(error.strerror or type(error).__name__) from None
        except HTTPException:
            raise self._unreachable("the answer is not HTTP") from None
        finally:
            connection.close()
        if len(body) > MAX_ANSWER:
            raise self._unreachable("the answer is too large")
        return Reply(response.status, _json_or_none(body))

    def _unreachable(self, reason: str) -> GatewayUnreachable:
        return GatewayUnreachable(
            f"cannot ask the operators' listener at {self.url}: {reason}. Start the gateway, or name the address of "
            "its admin.listen with --admin URL."
        )


def _json_or_none(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
