"""What the log has of servers that do not take `initialize`."""

import pytest

from taskgate.errors import UpstreamFailed
from taskgate.protocol.faults import protocol_violation
from taskgate.upstream import failures
from taskgate.upstream.context import MOST_CAUSES, HandshakeLog
from taskgate.upstream.settings import FixedHeader
from unit.upstream.conftest import settings_for

SECRET = FixedHeader(name="Authorization", value="Bearer v-for-servers")


async def test_what_the_server_is_shown_is_not_in_the_log_though_it_says_it(caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_for("http://server/", credentials=SECRET, headers={"X-Key": "the-other-key"})
    said = "not with Bearer v-for-servers,\n nor the-other-key, you"
    HandshakeLog().failed(settings, failures.no_session({"code": -1, "message": said}))
    assert [vars(record)["said"] for record in caplog.records] == ["-1 not with [redacted], nor [redacted], you"]


async def test_neither_a_replaced_secret_nor_its_successor_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = HandshakeLog()
    log.secrets = ("Bearer its-successor",)
    said = "neither Bearer v-for-servers nor Bearer its-successor"
    log.failed(settings_for("http://server/", credentials=SECRET), failures.no_session({"code": -1, "message": said}))
    assert [vars(record)["said"] for record in caplog.records] == ["-1 neither [redacted] nor [redacted]"]


@pytest.mark.parametrize(
    "failure",
    [
        failures.unreachable(),
        failures.closed(),
        failures.let_go(dispatched=True),
        failures.session_lost(),
        failures.no_token(),
    ],
)
async def test_what_others_tell_of_is_not_told(caplog: pytest.LogCaptureFixture, failure: UpstreamFailed) -> None:
    HandshakeLog().failed(settings_for("http://server/"), failure)
    assert caplog.records == []


async def test_each_cause_has_a_line_and_the_same_one_no_other(caplog: pytest.LogCaptureFixture) -> None:
    log, settings = HandshakeLog(), settings_for("http://server/")
    for status in (429, 401, 429, 401):
        log.failed(settings, failures.refused(status))
    assert [vars(record)["text"] for record in caplog.records] == [
        "The server refused the request with HTTP status 429",
        "The server refused the gateway's credentials",
    ]


async def test_causes_without_end_have_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    log, settings = HandshakeLog(), settings_for("http://server/")
    for number in range(1000):
        log.failed(settings, protocol_violation("its answer is no JSON", f"answers text/x-{number}, not MCP"))
    assert len(caplog.records) == MOST_CAUSES + 1
