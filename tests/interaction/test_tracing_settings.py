"""Who decides where a trace begins, what is kept of it, and what it tells."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.otlp_collector import CLIENT, SERVER, OtlpCollector, Place, serve_traced
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from interaction.traces import META, PARENT, TRACE, heard_by, place
from requirements import covers


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    """Who takes the spans."""
    async with OtlpCollector() as collector:
        yield collector


async def test_a_host_that_is_not_believed_is_only_pointed_at(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}, tracing={"trust_incoming": False}) as gateway:
        host = await gateway.greeted()
        await host.ask("tools/list", {"_meta": META})
    serving = collector.only(SERVER, "tools/list")
    assert (serving.parent, serving.links) == (None, (Place(TRACE, PARENT),))
    assert place(heard_by(server, "tools/list")["traceparent"]).trace == serving.place.trace != TRACE


async def test_arguments_are_in_no_span_unless_somebody_wants_them(
    server: ScriptedServer, collector: OtlpCollector
) -> None:
    for wanted in (False, True):
        async with serve_traced(collector, {"reports": server.url}, tracing={"record_arguments": wanted}) as gateway:
            await (await gateway.greeted()).call("echo", {"city": "Oslo"})
    told = [span.attributes.get("gen_ai.tool.call.arguments") for span in collector.of(SERVER, "tools/call echo")]
    assert told == [None, '{"city": "Oslo"}']
    assert not any("Oslo" in str(span) for span in collector.of(CLIENT))


async def test_what_is_not_kept_is_still_passed_on(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}, tracing={"sample_ratio": 0}) as gateway:
        await (await gateway.greeted()).call("echo")
    assert heard_by(server)["traceparent"].endswith(("-00", "-02"))
    assert collector.spans == []


async def test_a_collector_that_is_not_there_harms_no_call(server: ScriptedServer) -> None:
    tracing = {"enabled": True, "sample_ratio": 1, "endpoint": "http://127.0.0.1:9"}
    async with serve(configuration({"reports": server.url}, tracing=tracing)) as gateway:
        assert (await (await gateway.greeted()).call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}


@covers("V-META-9")
async def test_without_tracing_the_keys_of_a_host_go_to_the_server_as_they_came(
    server: ScriptedServer, gateway: Gateway
) -> None:
    host = await gateway.greeted()
    await host.ask("tools/call", {"name": "echo", "arguments": {}, "_meta": META})
    assert heard_by(server) == META


async def test_a_span_tells_no_token_and_whose_it_is_in_a_form_of_ours(
    server: ScriptedServer, collector: OtlpCollector, issuer: TokenIssuer, tmp_path: Path
) -> None:
    auth = {"mode": "required", "issuers": {"corp": issuer.section}}
    async with serve_traced(collector, {"reports": server.url}, auth=auth, folder=tmp_path) as gateway:
        for subject in ("alice", "bob"):
            host = await gateway.greeted(token=issuer.token(gateway.url(), subject=subject))
            await host.call("echo")
    contexts = [span.attributes["taskgate.context"] for span in collector.of(SERVER, "tools/call echo")]
    assert len(set(contexts)) == 2
    assert not any(name in str(collector.spans) for name in ("alice", "bob", "Bearer"))
