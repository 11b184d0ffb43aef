"""Hosts with API keys: who they are, what they are told, and what becomes of them when a key is removed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final

import aiohttp
import pytest

from helpers.gateway.configuration import GatewayConfig
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Era, Host, both_eras
from helpers.secrets import noted
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction import audit_logs
from interaction.bare_requests import WELL_KNOWN, seen
from interaction.rate_limits import present
from interaction.reloads import DONE, SUCCESS, echoed, refused
from requirements import covers

ADVICE: Final = (
    "Authentication is required: an API key (tgk_...) is sent as Authorization: Bearer KEY, or as X-API-Key: KEY"
)
UNKNOWN: Final = "the API key is unknown or was removed: ask the operator for another"
HEADERS: Final = pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
JUDGED: Final = "taskgate_auth_requests_total"


def made() -> str:
    """Another key."""
    return noted(f"tgk_{token_urlsafe(32)}")


def digest(key: str) -> str:
    """The hash of a key, in hexadecimal digits."""
    return sha256(key.encode()).hexdigest()


class KeyHost(Host):
    """A host whose key is in a header of its own; its `token` is the key."""

    def head(self) -> dict[str, str]:
        """The headers that go with every message."""
        head = super().head()
        return {"X-API-Key" if name == "Authorization" else name: head[name].removeprefix("Bearer ") for name in head}


class Keys:
    """Made keys by name, and the configuration that knows them."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.made: dict[str, str] = {}

    def entry(self, name: str, subject: str, **more: Any) -> dict[str, Any]:
        """The entry of a key, which is made if there is none of that name."""
        key = self.made.setdefault(name, made())
        return {"hash": f"sha256:{digest(key)}", "subject": subject, **more}

    def config(self, *issuers: TokenIssuer, auth: Any = None, **sections: Any) -> GatewayConfig:
        """A configuration with the keys old and new of ann, and one of bob, unless `auth` has others."""
        usual = {"old": self.entry("old", "ann"), "new": self.entry("new", "ann"), "bob": self.entry("bob", "bob")}
        return guarded({"reports": self.server.url}, *issuers, auth={"api_keys": usual, **(auth or {})}, **sections)

    def without(self, name: str, **sections: Any) -> GatewayConfig:
        """The usual configuration without one of the keys."""
        config = self.config(**sections)
        keys = {each: key for each, key in config.auth.api_keys.items() if each != name}
        return config.model_copy(update={"auth": config.auth.model_copy(update={"api_keys": keys})})


@pytest.fixture
def keys(server: ScriptedServer) -> Keys:
    return Keys(server)


@pytest.fixture
async def gateway(keys: Keys) -> AsyncIterator[Gateway]:
    """A gateway without an issuer, for hosts with keys alone."""
    async with serve(keys.config()) as gateway:
        yield gateway


async def opened(gateway: Gateway, key: str, era: Era = "legacy", header: str = "X-API-Key") -> Host:
    """A host with that key in that header; one of the legacy era has a session."""
    kind = Host if header == "Authorization" else KeyHost
    host = kind(gateway.http, gateway.url(), key, era=era)
    await host.open()
    return host


async def listening(host: Host, **wishes: Any) -> None:
    """Listen until the gateway ends the stream."""
    async with host.listen(**wishes) as stream:
        await stream.end()


# --- who a host is ---------------------------------------------------------------------------------------------------


@covers("A-AUTH-18")
@both_eras
@HEADERS
async def test_a_key_in_either_header_lets_its_host_call_and_goes_no_further(
    keys: Keys, server: ScriptedServer, tmp_path: Path, era: Era, header: str
) -> None:
    config = keys.config(audit=audit_logs.audited(tmp_path))
    async with audit_logs.kept(tmp_path, config) as gateway:
        host = await opened(gateway, keys.made["old"], era, header)
        assert await echoed(host) == "the first"
        await audit_logs.told_of(tmp_path, "rpc.call")
        assert await gateway.counts(JUDGED, "issuer", "reason") == {("_API_KEYS", ""): 1 if era == "modern" else 3}
    heads = str([dict(request.headers) for request in server.requests])
    assert keys.made["old"] not in heads
    assert "x-api-key" not in heads.lower()
    assert "authorization" not in heads.lower()
    lines = audit_logs.lines(tmp_path)
    assert {line["actor"]["method"] for line in audit_logs.of(lines, "auth.accepted", "rpc.call")} == {"api_key"}
    actor = audit_logs.of(lines, "rpc.call")[0]["actor"]
    assert (actor["iss"], actor["sub"], actor["jti"]) == ("urn:taskgate:api-keys", "ann", "old")
    assert digest(keys.made["old"]) not in audit_logs.text(tmp_path)


@covers("A-AUTH-13", "A-AUTH-18")
@both_eras
async def test_another_key_of_the_subject_finds_its_tasks_and_the_key_of_another_does_not(
    keys: Keys, gateway: Gateway, server: ScriptedServer, era: Era
) -> None:
    server.script["report"] = hold = Hold()
    rules = {"upgrade": [{"tool": "report", "mode": "always"}]}
    assert await gateway.reload(keys.config(tasks=rules)) == SUCCESS
    old = await opened(gateway, keys.made["old"], era)
    task = (await old.start("report"))["taskId"]
    old.token = keys.made["new"]
    assert (await old.task(task))["status"] == "working"
    bob = await opened(gateway, keys.made["bob"], era)
    assert (await bob.ask("tasks/get", {"taskId": task})).error["message"] == "Task not found"
    hold.release(DONE)


async def test_keys_that_alternate_on_one_connection_are_told_apart(keys: Keys, gateway: Gateway) -> None:
    """Heads that are equal but for the key."""
    ann = await opened(gateway, keys.made["old"])
    for key, status in [("bob", 404), ("new", 200), ("bob", 404), ("old", 200)] * 2:
        ann.token = keys.made[key]
        assert (await ann.ask("ping")).status == status


@covers("A-AUTH-18")
async def test_a_key_and_a_token_of_one_name_are_two_callers(
    keys: Keys, issuer: TokenIssuer, server: ScriptedServer
) -> None:
    async with serve(keys.config(issuer)) as gateway:
        by_token = await gateway.greeted(token=issuer.token(gateway.url(), subject="ann"))
        by_key = await opened(gateway, keys.made["old"])
        assert await echoed(by_token) == await echoed(by_key) == "the first"
        by_key.session = by_token.session
        assert (await by_key.ask("ping")).status == 404


async def test_rates_count_the_keys_of_a_subject_together(keys: Keys) -> None:
    rate = {"name": "calls", "scope": "subject", "methods": ["tools/call"], "rate": "1/h", "burst": 2}
    async with serve(keys.config(limits={"rate": [rate], "wait": "0s"})) as gateway:
        old, new, bob = [await opened(gateway, keys.made[name]) for name in ("old", "new", "bob")]
        assert [await echoed(old), await echoed(new)] == ["the first"] * 2
        assert refused(await new.call("echo")) == (429, "rate")
        assert await echoed(bob) == "the first"


async def test_rates_and_overrides_know_the_tenant_of_a_key(keys: Keys) -> None:
    rate = {"name": "calls", "scope": "tenant", "methods": ["tools/call"], "rate": "1/h", "burst": 2}
    override = {"match": {"tenant": "big"}, "rate": {"calls": "2/h"}}
    entries = {name: keys.entry(name, name, tenant=name[:3]) for name in ("big-1", "big-2", "low-1", "low-2")}
    limits = {"rate": [rate], "wait": "0s", "overrides": [override]}
    async with serve(keys.config(auth={"api_keys": entries}, limits=limits)) as gateway:
        for tenant, most in (("big", 4), ("low", 2)):
            hosts = [await opened(gateway, keys.made[f"{tenant}-{number}"]) for number in (1, 2)]
            answers = [await hosts[number % 2].call("echo") for number in range(6)]
            assert ["error" in (each.message or {}) for each in answers] == [False] * most + [True] * (6 - most)


async def test_rules_judge_the_scopes_and_the_name_of_a_key(keys: Keys) -> None:
    rules = [
        {"tool": "broken", "claims": {"jti": ["new"]}, "effect": "deny"},
        {"methods": ["tools/call"], "require_scopes": ["a.call"]},
    ]
    entries = {"old": keys.entry("old", "ann"), "new": keys.entry("new", "ann", scopes=["a.call"])}
    config = keys.config(auth={"api_keys": entries}, authorization={"rules": rules})
    async with serve(config) as gateway:
        old, new = [await opened(gateway, keys.made[name]) for name in ("old", "new")]
        lacking = await old.call("echo")
        assert (lacking.status, lacking.headers["WWW-Authenticate"]) == (
            403,
            'Bearer error="insufficient_scope", scope="a.call"',
        )
        assert await echoed(new) == "the first"
        assert refused(await new.call("broken")) == (403, "policy")


# --- what a host is told ---------------------------------------------------------------------------------------------


@covers("A-AUTH-18")
@both_eras
async def test_a_host_without_a_key_is_told_how_to_send_one_and_of_no_authorization_server(
    gateway: Gateway, era: Era
) -> None:
    host = Host(gateway.http, gateway.url(), era=era)
    answer = await host.ask("ping" if era == "legacy" else "tools/list")
    assert (answer.status, answer.error["message"]) == (401, ADVICE)
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    for path in (WELL_KNOWN, f"{WELL_KNOWN}/reports/mcp"):
        assert (await seen(gateway, path))[0] == 404


@covers("A-AUTH-18")
async def test_beside_issuers_a_host_is_told_of_them(keys: Keys, issuer: TokenIssuer) -> None:
    async with serve(keys.config(issuer)) as gateway:
        answer = await gateway.host().ask("ping")
        assert (answer.status, answer.error["message"]) == (401, ADVICE)
        url = f"{gateway.origin}{WELL_KNOWN}/reports/mcp"
        assert answer.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{url}"'
        assert (await seen(gateway, WELL_KNOWN))[0] == 200


async def test_an_issuer_that_a_reload_adds_is_named_and_its_tokens_are_accepted(
    keys: Keys, gateway: Gateway, issuer: TokenIssuer
) -> None:
    assert await gateway.reload(keys.config(issuer)) == SUCCESS
    answer = await gateway.host().ask("ping")
    assert "resource_metadata=" in answer.headers["WWW-Authenticate"]
    assert (await seen(gateway, WELL_KNOWN))[0] == 200
    for credential in (keys.made["old"], issuer.token(gateway.url())):
        assert await echoed(await gateway.greeted(token=credential)) == "the first"
    assert await gateway.reload(keys.config()) == SUCCESS
    assert (await gateway.host().ask("ping")).headers["WWW-Authenticate"] == "Bearer"
    assert (await seen(gateway, WELL_KNOWN))[0] == 404


@covers("A-AUTH-18")
@HEADERS
async def test_a_key_that_is_unknown_is_refused_and_counted(keys: Keys, gateway: Gateway, header: str) -> None:
    bearer = "Bearer " if header == "Authorization" else ""
    for key in (made(), keys.made["old"][:-1], keys.made["old"] + "A", "tgk_"):
        answer = await gateway.host().ask("ping", headers={header: f"{bearer}{key}"})
        assert (answer.status, answer.error["message"]) == (401, f"The API key is not accepted: {UNKNOWN}")
        told = f'Bearer error="invalid_token", error_description="{UNKNOWN}"'
        assert answer.headers["WWW-Authenticate"] == told
    assert await gateway.counts(JUDGED, "issuer", "reason") == {("_API_KEYS", "api_key"): 4}


@covers("A-AUTH-18")
async def test_two_credentials_that_differ_are_refused_and_two_that_are_equal_are_one(
    keys: Keys, issuer: TokenIssuer
) -> None:
    async with serve(keys.config(issuer)) as gateway:
        token, old, new = issuer.token(gateway.url()), keys.made["old"], keys.made["new"]
        host = await opened(gateway, old)
        for first, second in [(old, [new]), (token, [new]), (None, [old, new]), (old, ["other"])]:
            sent = {"X-API-Key": second, "Authorization": [] if first is None else [f"Bearer {first}"]}
            answer = await host.ask("ping", headers=sent)
            assert (answer.status, answer.error["message"]) == (
                401,
                "The API key is not accepted: Authorization and X-API-Key differ: send one of them",
            )
        both = {"X-API-Key": [old, old], "Authorization": f"Bearer {old}"}
        assert (await host.ask("ping", headers=both)).result == {}
        assert await gateway.counts(JUDGED, "reason", result="rejected") == {"malformed": 4}


@covers("A-AUTH-18", "A-AUTH-1")
async def test_what_is_no_key_is_no_credential_in_its_header_and_none_is_taken_from_the_query(
    keys: Keys, issuer: TokenIssuer
) -> None:
    async with serve(keys.config(issuer)) as gateway:
        token, old = issuer.token(gateway.url()), keys.made["old"]
        answer = await gateway.host().ask("ping", headers={"X-API-Key": token})
        text = "The API key is not accepted: X-API-Key has no API key: one begins with tgk_"
        assert (answer.status, answer.error["message"]) == (401, text)
        assert (await gateway.host().ask("ping", headers={"Authorization": f"Basic {old}"})).status == 401
        host = Host(gateway.http, f"{gateway.url()}?access_token={old}", old)
        assert (await host.ask("ping")).status == 401


async def test_without_keys_in_the_configuration_the_header_means_nothing(keys: Keys, issuer: TokenIssuer) -> None:
    async with serve(keys.config(issuer, auth={"api_keys": {}})) as gateway:
        host = await gateway.greeted(token=issuer.token(gateway.url()))
        assert (await host.ask("ping", headers={"X-API-Key": "of a proxy"})).result == {}
        for header in ({"X-API-Key": keys.made["old"]}, {"Authorization": f"Bearer {keys.made['old']}"}):
            answer = await gateway.host().ask("ping", headers=header)
            assert (answer.status, answer.error["message"]) == (401, "Authentication is required")


# --- the end of a key ------------------------------------------------------------------------------------------------


@covers("A-AUTH-18")
@both_eras
async def test_a_key_that_is_removed_is_refused_at_once_and_its_streams_end(
    keys: Keys, gateway: Gateway, era: Era
) -> None:
    hosts = {name: await opened(gateway, keys.made[name], era) for name in ("old", "new", "bob")}
    wishes: dict[str, Any] = {} if era == "legacy" else {"toolsListChanged": True}
    async with bounded(), hosts["new"].listen(**wishes) as kept:
        cut = asyncio.create_task(listening(hosts["old"], **wishes))
        await gateway.shows("taskgate_streams", 2, side="downstream", kind="get" if era == "legacy" else "response")
        assert await gateway.reload(keys.without("old")) == SUCCESS
        with pytest.raises(aiohttp.ClientError):
            await cut
        assert not kept.ended
        assert [await echoed(hosts[name]) for name in ("new", "bob")] == ["the first"] * 2
        answer = await hosts["old"].ask("ping" if era == "legacy" else "tools/list")
        assert (answer.status, answer.error["message"]) == (401, f"The API key is not accepted: {UNKNOWN}")
        assert not kept.ended


@covers("A-AUTH-18")
async def test_a_wait_for_a_result_ends_with_its_key_and_another_key_of_the_subject_gets_the_result(
    keys: Keys, gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    old = await opened(gateway, keys.made["old"])
    task = {"taskId": (await old.start("report"))["taskId"]}
    async with bounded():
        await hold.begun.wait()
        waiting = asyncio.create_task(old.ask("tasks/result", task))
        await gateway.counted("taskgate_streams", side="downstream", kind="response")
        assert await gateway.reload(keys.without("old")) == SUCCESS
        with pytest.raises(aiohttp.ClientError):
            await waiting
        hold.release(DONE)
        old.token = keys.made["new"]
        assert (await old.ask("tasks/result", task)).result["content"] == []


@covers("A-AUTH-18")
@both_eras
async def test_a_call_of_a_removed_key_brings_its_host_nothing(
    keys: Keys, gateway: Gateway, server: ScriptedServer, era: Era
) -> None:
    server.script["report"] = hold = Hold()
    old = await opened(gateway, keys.made["old"], era)
    async with bounded():
        calling = asyncio.create_task(old.call("report"))
        await hold.begun.wait()
        assert await gateway.reload(keys.without("old")) == SUCCESS
        with pytest.raises(aiohttp.ClientError):
            await calling
        hold.release(DONE)


async def test_a_reload_that_leaves_a_key_as_it_is_ends_nothing_of_it(keys: Keys, gateway: Gateway) -> None:
    old = await opened(gateway, keys.made["old"])
    async with bounded(), old.listen() as stream:
        assert await gateway.reload(keys.config(auth={"lookup_failures": {"threshold": 9}})) == SUCCESS
        assert await echoed(old) == "the first"
        assert not stream.ended


@covers("A-AUTH-18")
async def test_a_stream_of_a_removed_key_ends_though_another_reload_came_before(keys: Keys, gateway: Gateway) -> None:
    old = await opened(gateway, keys.made["old"])
    async with bounded():
        cut = asyncio.create_task(listening(old))
        await gateway.shows("taskgate_streams", 1, side="downstream", kind="get")
        assert await gateway.reload(keys.config(auth={"lookup_failures": {"threshold": 9}})) == SUCCESS
        assert await gateway.reload(keys.without("old")) == SUCCESS
        with pytest.raises(aiohttp.ClientError):
            await cut


@covers("A-AUTH-18")
async def test_an_entry_with_other_scopes_is_another_key_for_what_is_open(keys: Keys, gateway: Gateway) -> None:
    old = await opened(gateway, keys.made["old"])
    entries = {"old": keys.entry("old", "ann", scopes=["a.read"])}
    async with bounded():
        cut = asyncio.create_task(listening(old))
        await gateway.shows("taskgate_streams", 1, side="downstream", kind="get")
        assert await gateway.reload(keys.config(auth={"api_keys": entries})) == SUCCESS
        with pytest.raises(aiohttp.ClientError):
            await cut
        assert await echoed(old) == "the first"


@covers("A-AUTH-18")
async def test_a_key_that_expires_is_refused_on_a_connection_that_knows_it(keys: Keys) -> None:
    clock = present()
    ends = (clock.wall() + timedelta(minutes=5)).replace(microsecond=0)
    entries = {"old": keys.entry("old", "ann", expires=ends.isoformat())}
    async with serve(keys.config(auth={"api_keys": entries}), Environment(clock=clock)) as gateway:
        old = await opened(gateway, keys.made["old"])
        clock.advance(timedelta(minutes=4))
        assert (await old.ask("ping")).result == {}
        clock.advance(timedelta(minutes=2))
        answers = [await old.ask("ping") for _ in range(2)]
        text = "The API key is not accepted: the API key expired: ask the operator for another"
        assert [(each.status, each.error["message"]) for each in answers] == [(401, text)] * 2


@covers("A-AUTH-13", "A-AUTH-18")
async def test_a_stream_ends_when_its_key_expires(keys: Keys) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    entries = {"old": keys.entry("old", "ann", expires=ends.isoformat())}
    async with serve(keys.config(auth={"api_keys": entries})) as gateway:
        old = await opened(gateway, keys.made["old"])
        async with old.listen() as stream:
            await stream.end()
    assert stream.heard == []
