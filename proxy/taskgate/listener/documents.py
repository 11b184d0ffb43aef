"""The public documents beside the mounts: `Documents`.

They are the metadata of protected resources (RFC 9728), by which a host finds the authorization
server. They need no authentication, because they are the same for all. `Endpoint` serves them,
`wiring.authentication` makes them.
"""

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web
from multidict import CIMultiDict

from taskgate.listener.door import Rejection, RequestRejected
from taskgate.listener.protocol import SERVER_NAME

_METHODS: Final = "GET, HEAD, OPTIONS"
_FOR_EVERYBODY: Final = {hdrs.SERVER: SERVER_NAME, "Access-Control-Allow-Origin": "*"}
_HEADERS: Final = CIMultiDict(
    {**_FOR_EVERYBODY, hdrs.CONTENT_TYPE: "application/json", hdrs.CACHE_CONTROL: "public, max-age=300"}
)
_PREFLIGHT: Final = CIMultiDict(
    {
        **_FOR_EVERYBODY,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": "*",
        "Access-Control-Max-Age": "86400",
    }
)
_WRONG_METHOD: Final = Rejection(status=405, text="Method not allowed\n", allow=_METHODS)


class Documents:
    """JSON documents by path. Paths are compared byte by byte."""

    def __init__(self, by_path: Mapping[str, bytes]) -> None:
        self._by_path = dict(by_path)

    def replace(self, by_path: Mapping[str, bytes]) -> None:
        """Replace all documents in one step."""
        self._by_path = dict(by_path)

    def __contains__(self, path: str) -> bool:
        return path in self._by_path

    def answer(self, method: str, path: str) -> web.Response:
        """Return the document, or the answer to a browser's preflight request.

        Raises RequestRejected for another method.
        """
        if method == hdrs.METH_OPTIONS:
            return web.Response(status=204, headers=_PREFLIGHT)
        if method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            raise RequestRejected(_WRONG_METHOD)
        return web.Response(body=self._by_path[path], headers=_HEADERS)
