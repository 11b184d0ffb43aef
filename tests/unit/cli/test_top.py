"""`taskgate top`: one snapshot without a terminal, and a screen on one."""

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from helpers.command_line import run
from helpers.gateway.process import TASKGATE
from helpers.scripted_listener import Answered, Asked, scripted_listener
from helpers.waiting import PATIENCE
from taskgate.cli.remote.client import AdminClient
from taskgate.cli.remote.event_stream import EventStream, Notice
from taskgate.cli.remote.screen import CHANGED, ChangeWatcher

REF = "t_" + "a" * 22
TASK: dict[str, Any] = {
    "reference": REF,
    "status": "working",
    "upstream": "reports",
    "tool": "generate",
    "created_at": "2026-11-28T10:00:00Z",
    "updated_at": "2026-11-28T10:12:00Z",
    "caller": "c_x",
    "progress": "3 of 5",
}
PAGE = {"now": "2026-11-28T10:12:30Z", "items": [TASK], "next": None, "is_complete": True}
STATE = {
    "state": "up", "circuit": "closed", "in_use": 1, "limit": 32, "queued": 0, "recent_requests": 17,
    "recent_failures": 2,
}  # fmt: skip
HEALTH: dict[str, Any] = {"status": "ready", "checks": {}, "upstreams": {"reports": STATE}}
HOSTILE = "a\x1b]0;owned\x07\x9b2J"


def top(health: Any, page: Any, *options: str, status: int = 200) -> tuple[int, str, str]:
    def answer(asked: Asked) -> Answered:
        return (status, page) if asked.path.startswith("/api") else (200, health)

    with scripted_listener(answer) as listener:
        return run("top", "--admin", listener.url, *options)


def test_without_a_terminal_it_is_one_snapshot() -> None:
    status, out, err = top(HEALTH, PAGE)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "ready, unfinished tasks: 1",
        "UPSTREAM\tSTATE\tPER MIN\tFAILED\tCIRCUIT\tIN USE\tLIMIT\tQUEUED",
        "reports\tup\t3.4\t2/17\tclosed\t1\t32\t0",
        "REFERENCE\tSTATUS\tUPSTREAM\tTOOL\tAGE\tSILENT\tCALLER\tPROGRESS",
        f"{REF}\tworking\treports\tgenerate\t12m30s\t30s\tc_x\t3 of 5",
    ]


def test_json_is_the_state_with_the_tasks() -> None:
    status, out, _ = top(HEALTH, PAGE | {"next": "more"}, "--json")
    assert (status, json.loads(out)) == (0, {**HEALTH, "tasks": [TASK], "has_more": True})


def test_a_refusal_of_the_first_snapshot_ends_it_with_1() -> None:
    status, out, err = top(HEALTH, {"error": {"message": "not authenticated"}}, status=401)
    assert (status, out) == (1, "")
    assert "give --token FILE" in err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_hostile_names_do_not_reach_the_terminal(options: tuple[str, ...]) -> None:
    upstreams = {HOSTILE: {"state": [HOSTILE], "circuit": HOSTILE, "in_use": {}}, "b": HOSTILE}
    page = PAGE | {"items": [dict.fromkeys(TASK, HOSTILE), HOSTILE], "now": HOSTILE}
    status, out, _ = top({"status": HOSTILE, "upstreams": upstreams}, page, *options)
    assert status == 0
    assert not {"\x1b", "\x07", "\x9b"} & {*out}


def test_a_change_and_a_stream_that_is_refused_for_now_have_the_state_asked_for() -> None:
    busy = (503, {"error": {"code": "too_many_streams", "message": "16 event streams are open"}})
    stream = {"Content-Type": "text/event-stream"}
    answers: Iterator[Answered] = iter(
        [
            busy,
            (200, iter([b"retry: 10\n\n", b"event: task\ndata: {}\n\n", b": alive\n\n"]), stream),
            (404, {"error": {"code": "not_found", "message": "not found"}}),
        ]
    )
    asked: list[bool] = []
    noted: list[Notice] = []

    def answer(_: Asked) -> Answered:
        asked.append(watcher.next(0) == CHANGED)
        return next(answers)

    with scripted_listener(answer) as listener:
        watcher = ChangeWatcher(
            EventStream(AdminClient(listener.url, timeout=20), "task", "upstream"), 0.05, noted.append
        )
        watcher.start()
        watcher.join(20)
        assert not watcher.is_alive()
    assert asked == [False, True, True]
    assert [notice.name for notice in noted] == ["opened", "task"]
    assert watcher.refusal is not None
    assert [each.path for each in listener.asked] == ["/api/v1/events?kinds=task%2Cupstream"] * 3


@pytest.mark.program
def test_a_gateway_that_has_no_stream_ends_the_screen_with_1() -> None:
    def answer(asked: Asked) -> Answered:
        if "/events" in asked.path:
            return 404, {"error": {"code": "not_found", "message": "not found"}}
        return 200, PAGE if asked.path.startswith("/api") else HEALTH

    ours, its = pty.openpty()
    with scripted_listener(answer) as listener, os.fdopen(ours, "rb", buffering=0):
        command = [TASKGATE, "top", "--admin", listener.url]
        try:
            child = subprocess.Popen(command, stdin=its, stdout=its, stderr=subprocess.PIPE)
        finally:
            os.close(its)
        _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1
    assert b"the gateway has no event stream" in err


@pytest.mark.program
@pytest.mark.parametrize("end", ["q", "ctrl-c"])
def test_a_terminal_gets_a_screen_that_changes_and_stays_through_failures_until_its_end(end: str) -> None:
    asked, is_over = {"times": 0}, threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"event: task\ndata: {}\n\n"
        is_over.wait(PATIENCE)

    def answer(request: Asked) -> Answered:
        if "/events" in request.path:
            return 200, parts(), {"Content-Type": "text/event-stream"}
        if request.path.startswith("/api"):
            return 200, PAGE | {"items": [TASK | {"tool": HOSTILE}]}
        asked["times"] += 1
        if asked["times"] in (2, 3):
            return 500, b""
        return 200, HEALTH | {"status": "ready" if asked["times"] == 1 else "draining"}

    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
    environment.pop("NO_COLOR", None)
    with scripted_listener(answer) as listener, os.fdopen(ours, "r+b", buffering=0) as screen:
        command = [TASKGATE, "top", "--admin", listener.url, "--interval", "0.2"]
        try:
            child = subprocess.Popen(command, stdin=its, stdout=its, stderr=subprocess.PIPE, env=environment)
        finally:
            os.close(its)
        shown = b""
        while b"draining, unfinished" not in shown:
            # Ends with OSError when the program does.
            shown += screen.read(65536)
        if end == "q":
            os.write(ours, b"s")
            while b"silent longest first" not in shown:
                shown += screen.read(65536)
            os.write(ours, b"q")
        else:
            child.send_signal(signal.SIGINT)
        while True:
            try:
                shown += screen.read(65536)
            except OSError:
                break
        _, err = child.communicate(timeout=PATIENCE)
        is_over.set()
    assert (child.returncode, err) == (0, b"")
    sorts = [parse_qs(urlsplit(each.path).query)["sort"] for each in listener.asked if "/tasks" in each.path]
    assert (sorts[0], ["updated"] in sorts) == (["created"], end == "q")
    for text in (b"ready, unfinished", b"/readyz got HTTP status 500", REF.encode(), b"\x1b[?1049h", b"\x1b[?1049l"):
        assert text in shown
    assert b"owned\x07" not in shown
    assert "\x9b".encode() not in shown
