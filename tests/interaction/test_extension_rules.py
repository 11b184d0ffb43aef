"""Rules, rates, labels and spans know the methods of extensions that cross, in both eras; they know no others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.answers import Answer
from helpers.host.host import both_eras
from helpers.otlp_collector import CLIENT, SERVER, OtlpCollector, serve_traced
from helpers.server import ScriptedServer, result
from helpers.token_issuer import TokenIssuer, guarded
from interaction.reloads import SUCCESS, refused
from interaction.test_extensions_cross import WIDGETS, between
from requirements import covers

OURS = "com.example/widgets"
LIST, GET = "skills/list", "skills/get"
SKILLS: dict[str, Any] = {"skills": []}


@asynccontextmanager
async def ruled(server: ScriptedServer, issuer: TokenIssuer, **authorization: Any) -> AsyncIterator[Gateway]:
    """A gateway with those rules before a server with skills."""
    server.methods[LIST] = server.methods[GET] = result(SKILLS)
    async with serve(guarded({"reports": server.url}, issuer, authorization=authorization)) as gateway:
        yield gateway


async def asked(gateway: Gateway, era: str, method: str, token: str | None = None) -> Answer:
    """The answer to one request of a host of that era."""
    return await (await gateway.greeted(era=era, token=token)).ask(method, {})


# --- rules -----------------------------------------------------------------------------------------------------------


@covers("X-EXT-33")
@both_eras
async def test_a_rule_denies_the_method_of_an_extension_to_one_caller(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    rule = {"methods": [LIST], "claims": {"team": ["guests"]}, "effect": "deny"}
    async with ruled(server, issuer, rules=[rule]) as gateway:
        guest, member = (issuer.token(gateway.url(), team=team) for team in ("guests", "members"))
        assert (await asked(gateway, era, LIST, guest)).code == 403
        assert (await asked(gateway, era, LIST, member)).result["skills"] == []
        assert (await asked(gateway, era, GET, guest)).result["skills"] == []
        refused = await gateway.counts("taskgate_access_refusals_total", "upstream", "mcp_method_name", "mode")
        assert refused == {("reports", LIST, "enforced"): 1}
    assert [len(server.heard(method)) for method in (LIST, GET)] == [1, 1]


@both_eras
async def test_a_rule_asks_for_scopes_for_the_methods_of_an_extension(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    rules = [{"methods": ["skills/*"], "require_scopes": ["skills.read"]}]
    async with ruled(server, issuer, rules=rules) as gateway:
        with_scope, without = (issuer.token(gateway.url(), scope) for scope in ("skills.read", ""))
        for method in (LIST, GET):
            answer = await asked(gateway, era, method, without)
            assert (answer.status, refused(answer)) == (403, (403, "insufficient_scope"))
            assert (await asked(gateway, era, method, with_scope)).result["skills"] == []


@both_eras
async def test_the_default_applies_to_the_methods_of_an_extension(
    server: ScriptedServer, issuer: TokenIssuer, era: str
) -> None:
    rules = [{"methods": ["initialize"]}, {"methods": [GET]}]
    async with ruled(server, issuer, default="deny", rules=rules) as gateway:
        token = issuer.token(gateway.url())
        assert refused(await asked(gateway, era, LIST, token)) == (403, "policy")
        assert (await asked(gateway, era, GET, token)).result["skills"] == []
    assert server.heard(LIST) == []


# --- rates -----------------------------------------------------------------------------------------------------------


@covers("X-EXT-33")
@both_eras
async def test_a_rate_counts_the_method_of_an_extension(server: ScriptedServer, era: str) -> None:
    server.methods[LIST] = server.methods[GET] = result(SKILLS)
    rate = {"name": "skills", "scope": "context", "methods": [LIST], "rate": "1/h", "burst": 2}
    async with serve(configuration({"reports": server.url}, limits={"rate": [rate]})) as gateway:
        for _ in range(2):
            assert (await asked(gateway, era, LIST)).result["skills"] == []
        assert refused(await asked(gateway, era, LIST)) == (429, "rate")
        assert (await asked(gateway, era, GET)).result["skills"] == []
        decisions = await gateway.counts("taskgate_rate_limit_decisions_total", "policy", "decision")
        assert decisions == {("skills", "allowed"): 2, ("skills", "rejected"): 1}
    assert len(server.heard(LIST)) == 2


# --- labels and spans ------------------------------------------------------------------------------------------------


async def methods_shown(gateway: Gateway) -> set[str]:
    """The methods whose requests the metrics count, of hosts and to servers."""
    lines = [line for line in (await gateway.metrics()).splitlines() if "_operation_duration_seconds_count{" in line]
    return {line.partition('mcp_method_name="')[2].partition('"')[0] for line in lines}


@covers("X-EXT-33", "O-AUD-4")
@both_eras
async def test_methods_that_are_known_or_configured_have_labels_and_no_others(era: str) -> None:
    async with between(era, **{OURS: WIDGETS}) as (server, gateway):
        server.methods["widgets/list"] = server.methods[LIST] = result(SKILLS)
        host = gateway.host(era=era, tasks=False)
        await host.handshake()
        for method in (LIST, "widgets/list"):
            assert (await host.ask(method)).result["skills"] == []
        for method in ("widgets/made-up", "gadgets/list", "events/list"):
            assert (await host.ask(method)).code == -32601
        assert await methods_shown(gateway) >= {LIST, "widgets/list", "events/list", "_OTHER"}
        labels = {"upstream": "reports", "error_type": "", "mcp_method_name": "widgets/list"}
        for side in ("server", "client"):
            assert await gateway.count(f"mcp_{side}_operation_duration_seconds_count", **labels) == 1
        assert not {"widgets/made-up", "gadgets/list"} & await methods_shown(gateway)


async def test_a_method_has_a_label_and_names_spans_from_the_reload_on_that_configures_it(
    server: ScriptedServer,
) -> None:
    async with OtlpCollector() as collector:
        async with serve_traced(collector, {"reports": server.url}) as gateway:
            host = gateway.modern(tasks=False)
            assert (await host.ask("widgets/list")).code == -32601
            assert "widgets/list" not in await methods_shown(gateway)
            upstream = {"path": "/reports/mcp", "url": server.url, "extensions": {OURS: WIDGETS}}
            sections = {"tracing": {"enabled": True, "sample_ratio": 1, "endpoint": collector.url}}
            config = configuration({}, upstreams={"reports": upstream}, **sections)
            assert await gateway.reload(config) == SUCCESS
            server.methods["widgets/list"] = result(SKILLS)
            assert (await host.ask("widgets/list")).result["skills"] == []
            assert "widgets/list" in await methods_shown(gateway)
        assert collector.only(SERVER, "_OTHER").attributes["mcp.method.name"] == "_OTHER"
        for kind in (SERVER, CLIENT):
            assert collector.only(kind, "widgets/list").attributes["mcp.method.name"] == "widgets/list"


async def test_a_span_is_called_by_a_method_that_is_known(server: ScriptedServer) -> None:
    server.methods[LIST] = result(SKILLS)
    async with OtlpCollector() as collector:
        async with serve_traced(collector, {"reports": server.url}) as gateway:
            assert (await asked(gateway, "modern", LIST)).result["skills"] == []
        assert collector.only(SERVER, LIST).attributes["mcp.method.name"] == LIST
