"""The operators' listener says whether the gateway lives, is ready, and what it has counted; and nothing else."""

import asyncio
import socket
from dataclasses import replace

import pytest

from helpers.ended_requests import http_answered
from helpers.host.raw import RawHost, raw_host, request_head
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.telemetry.metrics.settings import MetricsSettings
from unit.listener.gate import PLANTED
from unit.listener.operating import CONFIGURED, PAGE, Operated, told


async def test_a_process_that_answers_is_alive_whatever_it_lacks(operated: Operated) -> None:
    operated.checks["store"] = False
    answer = await operated.ask("/livez")
    assert (answer.status, told(answer)) == (200, {"status": "live"})
    assert operated.asked == 0


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:9464", 200),
        ("[::1]", 200),
        ("[::1]:9464", 200),
        ("evil.example", 421),
        ("evil.example:9464", 421),
        ("localhost.evil.example", 421),
        ("", 400),
    ],
)
async def test_a_name_that_a_page_can_point_here_is_refused(operated: Operated, name: str, status: int) -> None:
    async with raw_host(operated.address) as host:
        assert (await host.ask(request_head("GET", "/metrics", Host=name))).status == status


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/api/v1/tasks", "/ui"])
@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("gateway", True),
        ("gateway:9464", True),
        ("GateWay:1", True),
        ("gateway.", True),
        ("gw-0.monitoring.svc.cluster.local:9464", True),
        ("a.gw-0.monitoring.svc.cluster.local", True),
        ("monitoring.svc.cluster.local", False),
        ("evilmonitoring.svc.cluster.local", False),
        ("gateway.evil.example", False),
        ("evil.gateway", False),
        ("gateway..", False),
        ("*.monitoring.svc.cluster.local.evil.example", False),
        ("127.0.0.1:9464", True),
        ("localhost", True),
    ],
)
async def test_a_name_of_the_configuration_is_allowed_with_any_port_and_case(
    operated: Operated, name: str, is_allowed: bool, path: str
) -> None:
    operated.access.allowed_hosts = {"gateway", "*.monitoring.svc.cluster.local"}
    async with raw_host(operated.address) as host:
        answer = await host.ask(request_head("GET", path, Host=name))
    assert (answer.status != 421) == is_allowed
    assert is_allowed or b"admin.allowed_hosts" in answer.body


async def test_a_name_that_is_refused_gets_an_error_in_the_form_of_the_api_there(operated: Operated) -> None:
    async with raw_host(operated.address) as host:
        answer = await host.ask(request_head("GET", "/api/v1/tasks", Host="evil.example"))
    document = told(answer)
    assert isinstance(document, dict)
    assert (answer.status, document["error"]["code"]) == (421, "host_not_allowed")


@pytest.mark.parametrize(
    ("store", "status", "word", "gauge"), [(True, 200, "ready", b"1.0"), (False, 503, "not ready", b"0.0")]
)
async def test_ready_is_what_has_all_it_needs(
    operated: Operated, store: bool, status: int, word: str, gauge: bytes
) -> None:
    operated.checks["store"] = store
    answer = await operated.ask("/readyz")
    assert (answer.status, told(answer)) == (status, {"status": word, "checks": {"started": True, "store": store}})
    assert await shown_ready(operated) == gauge


async def test_what_is_draining_is_not_ready_and_is_alive(operated: Operated) -> None:
    operated.listener.drain()
    answer = await operated.ask("/readyz")
    assert (answer.status, told(answer)) == (503, {"status": "draining", "checks": {}})
    assert (await operated.ask("/livez")).status == 200
    assert await shown_ready(operated) == b"0.0"
    assert operated.asked == 0


async def test_a_probe_under_way_does_not_undo_the_draining(operated: Operated) -> None:
    operated.holds = asyncio.Event()
    async with raw_host(operated.address) as host:
        await host.send(request_head("GET", "/readyz", Host="127.0.0.1:9464"))
        await eventually(lambda: operated.asked)
        operated.listener.drain()
        operated.holds.set()
        answer = await host.answer()
    assert (answer.status, told(answer)) == (503, {"status": "draining", "checks": operated.checks})
    assert await shown_ready(operated) == b"0.0"


async def test_readiness_that_cannot_be_told_is_a_no(operated: Operated, caplog: pytest.LogCaptureFixture) -> None:
    operated.fault = OSError("no such disk")
    answer = await operated.ask("/readyz")
    assert (answer.status, told(answer)) == (503, {"status": "not ready", "checks": {"answered": False}})
    assert b"disk" not in answer.body
    assert "the readiness check failed" in caplog.text


async def test_readiness_that_is_not_told_in_time_is_a_no(operated: Operated) -> None:
    operated.holds = asyncio.Event()
    answer = await operated.ask("/readyz")
    assert (answer.status, told(answer)) == (503, {"status": "not ready", "checks": {"answered": False}})


async def test_a_scrape_shows_what_was_counted(operated: Operated) -> None:
    operated.metrics.emit(http_answered("mcp", "POST", 200, 0.1))
    answer = await operated.ask("/metrics")
    assert (answer.status, answer.headers["server"]) == (200, "taskgate")
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"http_server_request_duration_seconds_count{" in answer.body
    assert (await operated.ask("/metrics", Accept="application/openmetrics-text")).body.endswith(b"# EOF\n")


async def test_metrics_are_where_the_configuration_wants_them_and_nowhere_without(operated: Operated) -> None:
    async def statuses() -> list[int]:
        return [(await operated.ask(path)).status for path in ("/metrics", "/elsewhere", "/livez")]

    assert await statuses() == [200, 404, 200]
    operated.metrics.adopt(replace(CONFIGURED, settings=MetricsSettings(path="/elsewhere")))
    assert await statuses() == [404, 200, 200]
    operated.metrics.adopt(replace(CONFIGURED, settings=MetricsSettings(enabled=False)))
    assert await statuses() == [404, 404, 200]
    assert (await operated.ask("/readyz")).status == 200


async def test_a_scraper_keeps_its_connection(operated: Operated) -> None:
    async with raw_host(operated.address) as host:
        for _ in range(3):
            assert (await host.ask(request_head("GET", "/metrics?x=1", Host="127.0.0.1:9464"))).status == 200


@covers("T53")
@pytest.mark.parametrize("path", ["/mcp", f"/{PLANTED}", "/metrics/", "//livez"])
async def test_there_is_nothing_else(operated: Operated, path: str) -> None:
    answer = await operated.ask(path)
    assert (answer.status, told(answer)) == (404, {"error": "not found"})


async def test_the_root_has_a_page_without_scripts(operated: Operated) -> None:
    answer = await operated.ask("/")
    assert (answer.status, answer.body) == (200, PAGE)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
async def test_it_is_read_only(operated: Operated, method: str) -> None:
    answer = await operated.ask("/readyz", method)
    assert (answer.status, answer.headers["allow"], told(answer)) == (405, "GET", {"error": "method not allowed"})
    assert operated.asked == 0


BAD = {
    "no request": f"hello {PLANTED}\r\n\r\n",
    "bare LF": f"GET /livez HTTP/1.1\nHost: any\nAuthorization: Bearer {PLANTED}\n\n",
    "a long head": f"GET /livez HTTP/1.1\r\nHost: any\r\nAuthorization: Bearer {PLANTED}{'x' * 9000}\r\n\r\n",
    "a bad header": f"GET /livez HTTP/1.1\r\nHost: any\r\nX Odd: {PLANTED}\r\n\r\n",
}


@pytest.mark.parametrize("request_text", BAD.values(), ids=BAD)
async def test_a_bad_request_is_refused_and_repeated_nowhere(operated: Operated, request_text: str) -> None:
    async with raw_host(operated.address) as host:
        answer = await host.ask(request_text)
        assert (answer.status, told(answer)["error"]["code"]) == (400, "bad_request")
        assert await host.at_end()


async def test_a_fault_of_ours_is_told_without_its_reason(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: str | None) -> tuple[bytes, str]:
        raise ValueError(PLANTED)

    monkeypatch.setattr(operated.metrics, "scrape", fail)
    answer = await operated.ask("/metrics")
    assert (answer.status, told(answer)) == (500, {"error": "internal error"})
    assert [vars(record)["error"] for record in caplog.records if record.levelname == "ERROR"] == ["ValueError"]


async def test_an_answer_that_cannot_be_written_ends_the_connection(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def split(_: str | None) -> tuple[bytes, str]:
        return b"", f"text/plain\r\nX-More: {PLANTED}"

    monkeypatch.setattr(operated.metrics, "scrape", split)
    async with raw_host(operated.address) as host:
        await host.send(request_head("GET", "/metrics", Host="127.0.0.1:9464"))
        assert await host.at_end()
    assert [vars(record)["error"] for record in caplog.records if record.levelname == "ERROR"] == ["ValueError"]


async def test_it_closes_with_connections_open_and_twice(operated: Operated) -> None:
    host = await RawHost.connect(operated.address)
    assert (await host.ask(request_head("GET", "/livez", Host="127.0.0.1:9464"))).status == 200
    async with bounded():
        await operated.listener.close()
    await operated.listener.close()
    assert await host.at_end()
    await host.close()
    with pytest.raises(ConnectionRefusedError):
        await RawHost.connect(operated.address)


async def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open(operated: Operated) -> None:
    with pytest.raises(OSError, match="address already in use"):
        await Operated().listener.start(*operated.address)
    with socket.create_connection(operated.address):
        pass


async def shown_ready(operated: Operated) -> bytes:
    """The value of the gauge that a scrape shows."""
    page = operated.metrics.render(None)[0]
    return next(line.split()[-1] for line in page.splitlines() if line.startswith(b"taskgate_ready"))
