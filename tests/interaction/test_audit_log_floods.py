"""Floods of requests without a known caller: what the audit log has of them, in bytes and in numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.raw import RawHost
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.audit_logs import REQUESTS, audited, kept, lines, of
from requirements import covers

BODY: Final = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
PIPELINED: Final = 50
FEW, MANY = 400, 4_000


def _post(gateway: Gateway, *fields: str, path: str = "/reports/mcp", host: str = "") -> str:
    head = (
        f"POST {path} HTTP/1.1",
        f"Host: {host or gateway.origin.removeprefix('http://')}",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
        *fields,
    )
    return "\r\n".join(head) + "\r\n\r\n" + BODY


KINDS: Final[dict[str, Callable[[Gateway], str]]] = {
    "legacy": lambda gateway: _post(gateway, "MCP-Protocol-Version: 2025-11-25"),
    "modern": lambda gateway: _post(gateway, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: ping"),
    "wrong token": lambda gateway: _post(gateway, "Authorization: Bearer abc"),
    "another origin": lambda gateway: _post(gateway, "Origin: https://evil.example"),
    "another host": lambda gateway: _post(gateway, host="evil.example"),
    "unknown path": lambda gateway: _post(gateway, path="/no/such"),
    "metadata": lambda gateway: (
        "GET /.well-known/oauth-protected-resource/reports/mcp HTTP/1.1\r\n"
        f"Host: {gateway.origin.removeprefix('http://')}\r\n\r\n"
    ),
}


async def _flood(gateway: Gateway, request: str, times: int) -> None:
    """Send a request so often, many at a time; again on a new connection after one that ends."""
    left = times
    while left:
        host = await RawHost.connect(gateway.address)
        try:
            while left:
                await host.send(request * min(left, PIPELINED))
                for _ in range(min(left, PIPELINED)):
                    answer = await host.answer()
                    left -= 1
                    if answer.headers.get("connection") == "close":
                        raise EOFError
        except (EOFError, OSError):
            pass
        finally:
            await host.close()


@covers("T52")
@pytest.mark.parametrize("kind", KINDS)
async def test_ten_times_the_requests_of_an_unknown_caller_take_no_more_of_the_log(
    server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path, kind: str
) -> None:
    sizes = []
    for times in (FEW, MANY):
        folder = tmp_path / str(times)
        folder.mkdir()
        config = guarded({"reports": server.url}, issuer, audit=audited(folder))
        async with kept(folder, config) as gateway:
            await gateway.modern(token=issuer.token(gateway.url(), subject="bob")).call("echo")
            await _flood(gateway, KINDS[kind](gateway), times)
            await gateway.modern(token=issuer.token(gateway.url(), subject="bob")).call("echo")
        written = lines(folder)
        requests = of(written, *REQUESTS)
        assert sum(line["data"].get("count", 0) for line in requests) == times
        assert [line["actor"]["sub"] for line in of(written, "rpc.call")] == ["bob"] * 2
        sizes.append(len([line for line in written if "count" in line["data"]]))
    # A line for each kind at once, and then at most one a second: a flood takes seconds.
    assert sizes[1] <= sizes[0] + 20 < 60
