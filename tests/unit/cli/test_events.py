"""`taskgate events`: a line for each event of the stream."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.command_line import run
from helpers.gateway.process import TASKGATE
from helpers.scripted_listener import Answered, Asked, scripted_listener
from helpers.waiting import PATIENCE

REF = "t_" + "a" * 22
AT = "2026-11-28T10:12:30Z"
HOSTILE = "a\x1b]0;owned\x07\x9b2J"
TASK: dict[str, Any] = {
    "at": AT, "reference": REF, "status": "working", "upstream": "reports", "tool": "generate", "caller": "c_x",
    "progress": "3 of 5",
}  # fmt: skip
UPSTREAM = {
    "at": AT, "name": "reports", "state": "down", "circuit": "open", "calls": 1, "limit": 32, "waiting": 0,
    "cause": "connection refused",
}  # fmt: skip
REFUSAL = {
    "at": AT, "kind": "rate", "reason": "calls", "upstream": "reports", "tool": None, "caller": None,
    "address": "192.0.2.0/24", "count": 3,
}  # fmt: skip
GONE = (404, {"error": {"code": "not_found", "message": "not found"}})


def said(name: str, document: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()


def streamed(*parts: bytes, options: tuple[str, ...] = ()) -> tuple[str, str, list[Asked]]:
    """Standard output and errors for these parts of a stream, and what was asked; no second one follows."""
    answers: Iterator[Answered] = iter(
        [(200, iter([b"retry: 10\n\n", *parts]), {"Content-Type": "text/event-stream"}), GONE]
    )
    with scripted_listener(lambda _: next(answers)) as listener:
        status, out, err = run("events", "--admin", listener.url, *options)
    assert status == 1
    return out, err, listener.asked


def test_each_event_is_a_line_of_its_words() -> None:
    parts = [said("task", TASK), said("upstream", UPSTREAM), said("refusal", REFUSAL)]
    failed = said("task", TASK | {"status": "completed", "tool_error": True, "reason": "tool_error"})
    out, err, asked = streamed(b": alive\n\n", *parts, failed, said("reset", {"reason": "missed"}))
    assert out.splitlines() == [
        f"{AT}  task  {REF}  working  reports  generate  c_x  3 of 5",
        f"{AT}  upstream  reports  DOWN  circuit open  1 of 32 in use  0 waiting  connection refused",
        f"{AT}  refusal  rate  calls  reports  -  192.0.2.0/24  3 times",
        f"{AT}  task  {REF}  failed  reports  generate  c_x  tool_error",
        "-  reset  events are missing: missed",
    ]
    assert "the gateway has no event stream" in err
    assert [each.path for each in asked] == ["/api/v1/events?kinds=task%2Cupstream%2Crefusal"] * 2


def test_json_is_a_document_in_a_line_for_the_kinds_that_are_asked_for() -> None:
    out, _, asked = streamed(said("task", TASK), options=("--json", "--kinds", "task"))
    assert [json.loads(line) for line in out.splitlines()] == [{"name": "task", "data": TASK}]
    assert asked[0].path.endswith("kinds=task")


def test_what_comes_from_others_has_no_control_character() -> None:
    out, _, _ = streamed(said("task", dict.fromkeys(TASK, HOSTILE)), said("upstream", dict.fromkeys(UPSTREAM, HOSTILE)))
    assert not {"\x1b", "\x07", "\x9b"} & {*out}


def test_a_gateway_that_is_not_reached_ends_it_at_the_start() -> None:
    with scripted_listener(lambda _: GONE) as listener:
        url = listener.url
    status, out, err = run("events", "--admin", url)
    assert (status, out) == (1, "")
    assert "cannot ask the operators' listener" in err


@pytest.mark.program
def test_it_goes_on_after_a_failure_until_ctrl_c() -> None:
    answers: Iterator[Answered] = iter(
        [
            (200, iter([b"retry: 10\n\n", said("task", TASK)]), {"Content-Type": "text/event-stream"}),
            (503, {"error": {"code": "too_many_streams", "message": "16 event streams are open"}}),
            (200, iter([said("task", TASK | {"progress": "4 of 5"})]), {"Content-Type": "text/event-stream"}),
        ]
    )
    busy: Answered = (503, {"error": {"code": "too_many_streams", "message": "16 event streams are open"}})
    ours, its = pty.openpty()
    with scripted_listener(lambda _: next(answers, busy)) as listener, os.fdopen(ours, "rb", buffering=0) as screen:
        command = [TASKGATE, "events", "--admin", listener.url]
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.PIPE)
        finally:
            os.close(its)
        shown = b""
        while b"4 of 5" not in shown:
            shown += screen.read(65536)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    assert b"16 event streams are open. It is tried again." in err
