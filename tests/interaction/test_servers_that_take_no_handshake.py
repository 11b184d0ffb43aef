"""Servers that refuse `initialize`, never answer it, or speak what nobody knows: their operator is told at times."""

import logging
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer, error, status
from helpers.server.sse import SseServer
from helpers.virtual_time import pass_time
from interaction.test_awkward_programs import GREETING, awkward

SECRET = "v-for-programs"


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What the log says of handshakes."""
    named = ("upstream", "reason", "text", "times", "said")
    return [
        {name: getattr(record, name) for name in named if hasattr(record, name)}
        for record in caplog.records
        if "`initialize`" in record.getMessage() and record.levelno == logging.WARNING
    ]


WARNED = {
    "mute": ("timeout", "The server did not answer in time", None),
    "refusing": ("refused", "The server refused to open a session", "-32603 no license"),
    "ahead": (
        "malformed",
        "The server broke the protocol: it chose an unknown protocol revision",
        "revision 2099-01-01",
    ),
    "babbling": ("malformed", "The server broke the protocol: it chose an unknown protocol revision", None),
}
"""By way of misbehaving: what the log has of it."""


@pytest.mark.real_time
@pytest.mark.parametrize("way", WARNED)
@pytest.mark.parametrize("revision", ["auto", "2025-11-25"])
async def test_a_program_that_takes_no_handshake_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str, revision: str
) -> None:
    reason, text, said = WARNED[way]
    async with awkward(tmp_path, way, timeouts={"first_byte": "2s"}, protocol_version=revision) as gateway:
        assert "error" in (await gateway.host().ask("initialize", GREETING)).message
    of = {"upstream": "reports", "reason": reason, "text": text, "times": 1}
    assert told(caplog) == [of if said is None else {**of, "said": said}]


STREAMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nowhere": ({"endpoint": None}, "timeout", "The server did not send its message endpoint in time"),
    "elsewhere": (
        {"endpoint": "http://127.0.0.1:1/"},
        "redirect",
        "The server's message endpoint is on another origin, which is not allowed",
    ),
    "missing": ({"get": 404}, "refused", "The server refused the request with HTTP status 404"),
}
"""By what is wrong with an event stream: how a server is made so, and what the log has of it."""


@pytest.mark.parametrize("wrong", STREAMS)
async def test_a_server_whose_event_stream_is_none_to_speak_over_is_in_the_log(
    caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    changes, reason, text = STREAMS[wrong]
    async with SseServer() as server:
        for name, value in changes.items():
            setattr(server, name, value)
        upstream = {"path": "/reports/mcp", "transport": "sse", "url": server.url, "protocol_version": "auto"}
        upstream["timeouts"] = {"connect": "500ms", "first_byte": "1s"}
        async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
            for _ in range(2):
                await gateway.host().ask("initialize", GREETING)
    assert told(caplog) == [{"upstream": "reports", "reason": reason, "text": text, "times": 1}]


async def test_its_words_are_bounded_and_have_no_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with awkward(tmp_path, "quoting", env={"SECRET": SECRET}, protocol_version="2025-11-25") as gateway:
        await gateway.host().ask("initialize", GREETING)
    (found,) = told(caplog)
    assert found["said"].startswith("-32000 no license for [redacted]!!!")
    assert len(found["said"]) < 1100
    assert SECRET not in str([record.__dict__ for record in caplog.records])


async def test_what_was_told_is_told_again_only_after_a_while_and_with_how_often_it_was(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(configuration({"reports": server.url})) as gateway:
        server.methods["initialize"] = error(-32000, "no license")
        for _ in range(3):
            await gateway.host().ask("initialize", GREETING)
        assert [each["said"] for each in told(caplog)] == ["-32000 no license"]
        server.methods["initialize"] = status(500)
        for _ in range(4):
            await gateway.host().ask("initialize", GREETING)
        assert len(told(caplog)) == 2, "another cause has a line of its own"
        await pass_time(600)
        await gateway.host().ask("initialize", GREETING)
        assert told(caplog)[2:] == [
            {
                "upstream": "reports",
                "reason": "refused",
                "text": "The server refused the request with HTTP status 500",
                "times": 4,
            }
        ]
        del server.methods["initialize"]
        await gateway.greeted()
        assert len(told(caplog)) == 3


async def test_a_server_of_the_other_era_is_in_the_log_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedServer("modern") as server:
        upstream = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto"}
        async with serve(configuration({}, upstreams={"reports": upstream})) as gateway:
            host = await gateway.greeted()
            assert (await host.ask("tools/list")).result["tools"]
        assert server.heard("initialize")
    assert told(caplog) == []
