"""Operators are told where those come from who are not let in, by whom they trust to know."""

from collections.abc import Mapping
from typing import Any

import pytest

from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from requirements import covers

UNKNOWN = "U" * 32
LIES = {"Forwarded": "for=192.0.2.1, for=192.0.2.2", "X-Forwarded-For": "192.0.2.1, 192.0.2.7"}


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Mapping[str, Any]]]:
    """The lines about security, and their fields."""
    caught = [record for record in caplog.records if record.name == "taskgate.security"]
    keys = ("reason", "upstream", "address", "left_out")
    return [(each.getMessage(), {key: value for key, value in vars(each).items() if key in keys}) for each in caught]


@pytest.mark.parametrize(
    ("trusted", "address"),
    [([], "127.0.0.1"), (["10.0.0.0/8", "::1"], "127.0.0.1"), (["127.0.0.1"], "192.0.2.7")],
    ids=["nobody is trusted", "somebody else is trusted", "the peer is trusted"],
)
async def test_a_refusal_is_told_with_the_address_that_can_be_believed(
    server: ScriptedServer, issuer: TokenIssuer, caplog: pytest.LogCaptureFixture, trusted: list[str], address: str
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, server={"trusted_proxies": trusted})) as gateway:
        old = issuer.token(gateway.url(), exp=1)
        for token in (None, old, old, old):
            assert (await gateway.host(token=token).ask("ping", headers=LIES)).status == 401
    line = {"upstream": "reports", "address": address, "left_out": 0}
    refused = "a request was refused: its caller could not be authenticated"
    assert told(caplog)[:2] == [(refused, {"reason": "missing", **line}), (refused, {"reason": "expired", **line})]
    assert len(told(caplog)) < 4


@pytest.mark.parametrize(("trusted", "address"), [([], "127.0.0.1"), (["127.0.0.0/8"], "192.0.2.7")])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_whoever_tries_ids_is_told_of_with_the_address(
    server: ScriptedServer,
    issuer: TokenIssuer,
    caplog: pytest.LogCaptureFixture,
    trusted: list[str],
    address: str,
    method: str,
) -> None:
    failures = {"lookup_failures": {"threshold": 1}}
    config = guarded({"reports": server.url}, issuer, auth=failures, server={"trusted_proxies": trusted})
    async with serve(config) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        for letter in "ABCD":
            await host.ask(method, {"taskId": letter * 32}, headers=LIES)
    suspected = "a caller is penalized: too many look-ups of unknown tasks"
    assert told(caplog) == [(suspected, {"upstream": "reports", "address": address, "left_out": 0})]


FIELDS = {"x-forwarded-for": ("X-Forwarded-For", "{}"), "forwarded": ("Forwarded", "for={}")}


@covers("T27")
@pytest.mark.requirement("T27")
@pytest.mark.parametrize("header", [None, "x-forwarded-for", "forwarded"])
async def test_a_host_evades_no_limit_by_the_header_that_its_proxy_does_not_set(
    server: ScriptedServer, issuer: TokenIssuer, header: str | None
) -> None:
    """The proxy sets one header and passes the other on, in which the host names another host each time."""
    set_by_proxy = header or "x-forwarded-for"
    name, form = FIELDS[set_by_proxy]
    other, other_form = FIELDS["forwarded" if set_by_proxy == "x-forwarded-for" else "x-forwarded-for"]
    listener = {"trusted_proxies": ["127.0.0.1"]} | ({} if header is None else {"forwarded_header": header})
    rate = {"name": "ip", "scope": "ip", "rate": "1/h", "burst": 3, "before_auth": True}
    config = guarded({"reports": server.url}, issuer, server=listener, limits={"rate": [rate]})
    async with serve(config) as gateway:
        host = gateway.host(token=issuer.token(gateway.url()))

        async def ask(address: str, lie: str) -> bool:
            headers = {name: form.format(address), other: other_form.format(lie)}
            return (await host.ask("ping", headers=headers)).status != 429

        assert [await ask("192.0.2.7", f"192.0.2.{number}") for number in range(100, 106)] == [True] * 3 + [False] * 3
        assert await ask("192.0.2.105", "192.0.2.7"), "who was named is locked out of nothing"


@pytest.mark.parametrize("trusted", [[], ["127.0.0.0/8"]])
async def test_nothing_else_is_decided_by_what_is_said_of_an_address(
    server: ScriptedServer, issuer: TokenIssuer, trusted: list[str]
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, server={"trusted_proxies": trusted})) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        task = await host.start("echo", {"a": 1})
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]}, headers=LIES)
    assert answer.result["structuredContent"] == {"a": 1}
    assert not {"forwarded", "x-forwarded-for"} & {name for each in server.requests for name in each.headers}
