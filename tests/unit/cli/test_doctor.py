"""`taskgate doctor`: what is wrong comes first, with what to do."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import run
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process, taskgate
from helpers.scripted_listener import Answered, Asked, scripted_listener

DOWN = {"state": "down", "cause": "connection refused", "since": "2026-11-30T10:00:00Z"}
ISSUER = {
    "keys": 0,
    "place": "https://idp/keys",
    "cause": "HTTP 404",
    "since": "2026-11-30T10:00:00Z",
    "refused": 3,
}
WELL = {"state": "up", "up": True, "circuit": "closed", "in_use": 1, "limit": 32, "queued": 0}
READY: dict[str, Any] = {"status": "ready", "checks": {"store": True}, "upstreams": {"reports": WELL}}
METRICS = b"""# TYPE taskgate_http_rejections_total counter
taskgate_http_rejections_total{reason="rate"} 12
taskgate_http_rejections_total{reason="queue"} 0
# TYPE taskgate_auth_requests_total counter
taskgate_auth_requests_total{issuer="corp",result="rejected",reason="expired"} 40
taskgate_auth_requests_total{issuer="corp",result="accepted",reason=""} 9000
# TYPE other_total counter
other_total 7
"""


def doctor(health: Any, *options: str, metrics: Answered = (200, METRICS)) -> tuple[int, str, str]:
    def answer(asked: Asked) -> Answered:
        return metrics if asked.path == "/metrics" else (200, health)

    with scripted_listener(answer) as listener:
        return run("doctor", "--admin", listener.url, *options)


def test_a_gateway_without_a_problem_ends_it_with_0_and_facts() -> None:
    status, out, err = doctor(READY)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "no problem was found"
    assert "health         ready" in lines
    assert "  reports: up, circuit closed, 1 of 32 in use, 0 queued" in lines
    assert lines[-2:] == [
        "        40  taskgate_auth_requests_total  issuer corp, result rejected, reason expired",
        "        12  taskgate_http_rejections_total  reason rate",
    ]


@pytest.mark.parametrize(
    ("health", "problem", "action"),
    [
        ({"status": "draining"}, "the gateway is draining", "Start another"),
        ({"checks": {"store_writes": False}}, "the check store_writes failed", "store.sqlite.max_size"),
        ({"checks": {"other": False}}, "the check other failed", "Read the log"),
        (
            {"upstreams": {"a": WELL | DOWN}},
            "upstream a is down: connection refused, since 2026-11-30T10:00:00Z",
            "upstreams.a names it",
        ),
        (
            {"upstreams": {"a": WELL | DOWN | {"cause": "HTTP 503: the server cannot serve now"}}},
            "upstream a is down: HTTP 503: the server cannot serve now, since 2026-11-30T10:00:00Z",
            "See what it logs",
        ),
        (
            {"upstreams": {"a": WELL | DOWN | {"state": "refusing", "cause": "HTTP 429: too many requests"}}},
            "upstream a refuses requests: HTTP 429: too many requests, since 2026-11-30T10:00:00Z",
            "Lower upstreams.a.concurrency",
        ),
        (
            {"upstreams": {"a": WELL | DOWN | {"state": "refusing", "cause": "calls time out, checks are answered"}}},
            "upstream a refuses requests: calls time out, checks are answered, since 2026-11-30T10:00:00Z",
            "upstreams.a.timeouts.call",
        ),
        (
            {"upstreams": {"a": WELL | DOWN | {"state": "refusing", "recent_requests": 28, "recent_failures": 27}}},
            "upstream a refuses requests: connection refused, since 2026-11-30T10:00:00Z,"
            " 27 of 28 requests failed in 5 min",
            "credentials",
        ),
        (
            {"upstreams": {"a": WELL | {"circuit": "open"}}},
            "the circuit of upstream a is open: unknown",
            "circuit_breaker",
        ),
        (
            {"vanished": {"gw-2": "2026-11-30T10:00:00Z"}},
            "replica gw-2 vanished at 2026-11-30T10:00:00Z",
            "Others take its tasks over",
        ),
        (
            {"audit": {"file": {"cause": "No space left on device", "since": "2026-11-30T10:00:00Z", "waiting": 7}}},
            "the audit log cannot be written to file: No space left on device, since 2026-11-30T10:00:00Z;"
            " 7 lines wait",
            "Free space",
        ),
        (
            {"issuers": {"corp": ISSUER}},
            "the keys of issuer corp cannot be fetched from https://idp/keys: HTTP 404, since 2026-11-30T10:00:00Z;"
            " no token of it is accepted; 3 requests were refused for lack of keys",
            "auth.issuers.corp",
        ),
        (
            {"issuers": {"corp": ISSUER | {"keys": 2, "refused": 0}}},
            "the keys of issuer corp cannot be fetched from https://idp/keys: HTTP 404, since 2026-11-30T10:00:00Z;"
            " 2 earlier keys serve on",
            "auth.issuers.corp",
        ),
        (
            {"upstreams": {"a": WELL | {"held": True}}},
            "an operator holds upstream a: its new calls are refused",
            "taskgate upstreams release a",
        ),
        (
            {"upstreams": {"a": WELL | {"in_use": 32, "queued": 5}}},
            "upstream a has 32 calls in use, its limit, and 5 wait",
            "upstreams.a.concurrency",
        ),
    ],
)
def test_a_problem_comes_first_with_what_to_do_and_ends_it_with_1(
    health: dict[str, Any], problem: str, action: str
) -> None:
    status, out, _ = doctor(READY | health)
    lines = out.splitlines()
    assert (status, lines[:2]) == (1, ["1 problem", f"- {problem}"])
    assert action in lines[2]
    report = json.loads(doctor(READY | health, "--json")[1])
    assert [found["problem"] for found in report["problems"]] == [problem]


def test_a_gateway_that_is_not_there_is_the_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    status, out, _ = run("doctor", "--admin", f"127.0.0.1:{port}")
    assert status == 1
    assert out.splitlines()[1] == "- the gateway was not reached"
    assert "Connection refused" in out


@pytest.mark.parametrize("metrics", [(404, {"error": "not found"}), (200, b"{\xff{{ 1"), (200, b'a{b="')])
def test_metrics_that_are_off_or_malformed_are_no_problem(metrics: Answered) -> None:
    status, out, _ = doctor(READY, metrics=metrics)
    assert (status, out.splitlines()[-1]) == (0, "refusals       unknown: there are no metrics at /metrics")
    assert json.loads(doctor(READY, "--json", metrics=metrics)[1])["refusals"] is None


def test_without_a_refusal_the_report_says_so() -> None:
    status, out, _ = doctor(READY, metrics=(200, b""))
    assert (status, out.splitlines()[-1]) == (0, "refusals       none")


def test_hostile_names_do_not_reach_the_terminal() -> None:
    hostile = "a\x1b]0;owned\x07\x9b2J"
    health = {"status": hostile, "checks": {hostile: False}, "upstreams": {hostile: {"up": False, hostile: hostile}}}
    page = METRICS.replace(b"corp", "x\x1b[2J\x9b".encode())
    for options in ((), ("--json",)):
        status, out, _ = doctor(health, *options, metrics=(200, page))
        assert status == 1
        assert not {"\x1b", "\x07", "\x9b"} & {*out}


@pytest.mark.program
async def test_a_running_gateway_and_its_configuration_are_reported_without_secrets(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, "http://127.0.0.1:9/mcp?key=s3cret-in-a-query")
    async with gateway_process(["--config", file], log=tmp_path / "log") as gateway:
        ended = taskgate("doctor", "--admin", gateway.admin, "--config", file, folder=tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.startswith("no problem was found\n")
        assert f"configuration  {file} can be used\n" in ended.stdout
        file.write_text(file.read_text() + "surprise: 1\n")
        ended = taskgate("doctor", "--admin", gateway.admin, "--config", file, "--json", folder=tmp_path)
        report = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert ["surprise" in found["problem"] for found in report["problems"]] == [True]
    assert report["configuration"]["status"] == 2
    assert "s3cret" not in ended.stdout
