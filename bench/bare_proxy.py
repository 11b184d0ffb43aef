"""Baseline: the smallest aiohttp reverse proxy. It streams long bodies both ways and knows nothing of MCP."""

import contextlib
from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from bench import serving

# Heads that belong to one hop; the length is kept, so that a body of known size stays one.
_OWN_HOP = {"connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


_WHOLE = 65_536  # bytes; a body known to be no longer than this passes in one piece, any other as a stream


def _passed_on(heads: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in heads.items() if name.lower() not in _OWN_HOP)


class BareProxy:
    """Forwards every request to one origin."""

    def __init__(self, upstream: aiohttp.ClientSession, origin: str) -> None:
        self._upstream = upstream
        self._origin = origin

    async def forward(self, inbound: web.Request) -> web.StreamResponse:
        """Send `inbound` on and pass the answer back."""
        body: object = None
        if inbound.can_read_body:
            whole = inbound.content_length is not None and inbound.content_length <= _WHOLE
            body = await inbound.read() if whole else inbound.content
        url, heads = self._origin + inbound.path_qs, _passed_on(inbound.headers)
        async with self._upstream.request(
            inbound.method, url, headers=heads, data=body, allow_redirects=False
        ) as answer:
            heads = _passed_on(answer.headers)
            if answer.content_length is not None and answer.content_length <= _WHOLE:
                return web.Response(status=answer.status, headers=heads, body=await answer.read())
            outbound = web.StreamResponse(status=answer.status, headers=heads)
            await outbound.prepare(inbound)
            async for part in answer.content.iter_any():
                await outbound.write(part)
            await outbound.write_eof()
            return outbound


@contextlib.asynccontextmanager
async def opened(port: int, origin: str) -> AsyncIterator[serving.Server]:
    """The proxy, listening on loopback."""
    connector = aiohttp.TCPConnector(limit=0)
    unbounded = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=unbounded, auto_decompress=False) as upstream:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", BareProxy(upstream, origin).forward)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        assert runner.server is not None
        async with await serving.listen(runner.server, port) as server:
            yield server
        await runner.cleanup()


def main() -> None:
    """Serve until told to end."""
    parser = serving.arguments("a reverse proxy without any feature")
    parser.add_argument("--origin", required=True, help="the upstream's origin, e.g. http://127.0.0.1:3000")
    given = parser.parse_args()
    serving.serve(opened(given.port, given.origin))


if __name__ == "__main__":
    main()
