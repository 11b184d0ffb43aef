"""`taskgate health`: what it prints of a gateway, and with which status it ends."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import run
from helpers.gateway.process import serve_process, taskgate
from helpers.scripted_listener import scripted_listener

READY = {
    "status": "ready",
    "checks": {"started": True, "store": True},
    "upstreams": {
        "books": {"state": "held", "circuit": "open", "in_use": 0, "limit": 32, "queued": 3},
        "crm": {
            "state": "refusing",
            "cause": "HTTP 401: no",
            "circuit": "closed",
            "in_use": 0,
            "limit": 32,
            "queued": 0,
        },
        "reports": {"state": "up", "circuit": "closed", "in_use": 2, "limit": 32, "queued": 0, "oldest_task": 750},
    },
    "issuers": {"corp": {"keys": 2, "cause": None}, "partner": {"keys": 0, "cause": "no connection"}},
    "replicas": 3,
}


def health(status: int, document: Any, *options: str) -> tuple[int, str, str]:
    """The command, before a listener that answers so."""
    with scripted_listener(lambda _: (status, document)) as listener:
        return run("health", "--admin", listener.url, *options)


def test_a_ready_gateway_is_shown_with_its_upstreams_and_ends_with_0() -> None:
    status, out, err = health(200, READY)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "ready",
        "  started        ok",
        "  store          ok",
        "  replicas       3",
        "upstreams",
        "  books    held, circuit open, 0 of 32 in use, 3 queued",
        "  crm      REFUSING, HTTP 401: no, circuit closed, 0 of 32 in use, 0 queued",
        "  reports  up, circuit closed, 2 of 32 in use, 0 queued, oldest task 12m30s",
        "keys of issuer partner: no connection",
    ]


@pytest.mark.parametrize("told", ["not ready", "draining"])
def test_a_gateway_that_is_not_ready_ends_it_with_1_and_the_failed_check(told: str) -> None:
    status, out, _ = health(503, {"status": told, "checks": {"store": False}})
    assert status == 1
    assert out.splitlines() == [told, "  store          FAILED"]


def test_an_audit_log_that_cannot_be_written_is_shown() -> None:
    audit = {"audit": {"file": {"cause": "No space left on device", "since": "2026-11-30T10:00:00Z", "waiting": 7}}}
    status, out, _ = health(200, READY | audit)
    assert status == 0
    assert "audit log      cannot be written to file: No space left on device, since 2026-11-30T10:00:00Z" in out


def test_json_is_the_document_of_the_gateway() -> None:
    status, out, _ = health(200, READY, "--json")
    assert (status, json.loads(out)) == (0, READY)


def test_names_with_control_characters_do_not_reach_the_terminal() -> None:
    hostile = "a\x1b]0;owned\x07\x9b2J\u202e\n\u2028z"
    upstreams = {
        hostile: {"state": hostile, "cause": hostile, "circuit": hostile, "in_use": 1, "limit": 2, "queued": 0}
    }
    document = {"status": hostile, "checks": {hostile: True}, "upstreams": upstreams}
    for options in ([], ["--json"]):
        status, out, _ = health(200, document, *options)
        assert status == 0
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2028", "\r"} & {*out}
        assert len(out.splitlines()) == (16 if options else 4)


def test_a_gateway_that_is_not_there_ends_it_with_1_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    status, out, err = run("health", "--admin", f"127.0.0.1:{port}")
    assert (status, out) == (1, "")
    assert f"cannot ask the operators' listener at http://127.0.0.1:{port}: Connection refused." in err
    assert "--admin" in err
    status, out, _ = run("health", "--admin", f"127.0.0.1:{port}", "--json")
    assert (status, json.loads(out)["status"]) == (1, "unreachable")


@pytest.mark.parametrize("command", ["health", "doctor"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(command: str, seconds: str) -> None:
    status, out, err = run(command, "--timeout", seconds)
    assert (status, out, "Invalid value for '--timeout'" in err) == (2, "", True)


def test_a_gateway_that_does_not_answer_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        status, _, err = run("health", "--admin", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.1")
    assert status == 1
    assert "no answer within 0.1 s" in err


@pytest.mark.parametrize("document", [{"error": "not found"}, [], b"<html>", b"[" * 100_000])
@pytest.mark.parametrize("status", [200, 404, 302])
def test_what_is_no_operators_listener_is_said_to_be_none(status: int, document: Any) -> None:
    ended, out, err = health(status, document)
    assert (ended, out) == (1, "")
    assert f"is no operators' listener: /readyz got HTTP status {status}" in err


def test_a_listener_that_refuses_a_host_name_is_explained() -> None:
    ended, _, err = health(421, {"error": "host not allowed"})
    assert ended == 1
    assert "give --admin an IP address or localhost" in err


@pytest.mark.parametrize(
    "url", ["", "ftp://127.0.0.1", "http://", "http://a:b", "http://a/b", "http://u:p@127.0.0.1:1"]
)
def test_an_address_that_is_none_is_refused_with_2(url: str) -> None:
    status, out, err = run("health", "--admin", url)
    assert (status, out) == (2, "")
    assert "--admin must be http://HOST:PORT" in err
    assert "Traceback" not in err


def test_the_address_may_be_in_the_environment() -> None:
    with scripted_listener(lambda _: (200, READY)) as listener:
        assert run("health", TASKGATE_ADMIN_URL=listener.url)[0] == 0
    assert [asked.path for asked in listener.asked] == ["/readyz?verbose"]


@pytest.mark.program
async def test_a_running_gateway_is_asked_and_after_its_end_is_not_reached(tmp_path: Path) -> None:
    async with serve_process(tmp_path, "http://127.0.0.1:9/mcp") as gateway:
        ended = taskgate("health", "--admin", gateway.admin, folder=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.startswith("ready\n")
        assert "reports  not checked yet, circuit closed, 0 of 32 in use, 0 queued" in ended.stdout
    assert taskgate("health", "--admin", gateway.admin, folder=tmp_path).returncode == 1
