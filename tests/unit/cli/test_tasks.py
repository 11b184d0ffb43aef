"""`taskgate tasks`: what it asks the API of operators, and what it prints."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from example.processes import UVICORN_LISTENS, running

from helpers.command_line import run
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import TASKGATE, GatewayProcess, gateway_process, taskgate
from helpers.scripted_listener import Answered, Asked, ScriptedListener, scripted_listener
from helpers.secrets import noted
from helpers.waiting import bounded, eventually

CHECKOUT = Path(__file__).parents[3]

REF, OTHER = "t_" + "a" * 22, "t_" + "b" * 22
NOW = "2026-11-28T10:12:30Z"
ITEM: dict[str, Any] = {
    "reference": REF,
    "upstream": "reports",
    "tool": "generate",
    "status": "working",
    "tool_error": False,
    "is_queued": False,
    "queue_position": None,
    "progress": "3 of 5",
    "caller": "c_x",
    "tenant": None,
    "created_at": "2026-11-28T10:00:00Z",
    "updated_at": "2026-11-28T10:12:00Z",
    "expires_at": "2026-11-28T11:00:00Z",
    "replica": "one",
    "is_retrieved": False,
}
DETAIL = ITEM | {
    "timeline": [{"status": "working", "time": "2026-11-28T10:00:00Z"}],
    "lease": {"replica": "one", "until": "2026-11-28T10:13:00Z"},
    "failure": {"reason": "timeout", "message": "no answer"},
    "host": {"name": "desk", "version": "1", "revision": "2025-11-25"},
    "questions": ["elicitation/create"],
    "trace_id": "abc",
}
REFUSED = {"error": {"code": "task_not_found", "message": "there is no such task, or it has expired"}}
HOSTILE = "a\x1b]0;owned\x07\x9b2J"


def page(*items: dict[str, Any], following: str | None = None, is_complete: bool = True) -> dict[str, Any]:
    return {"now": NOW, "items": items, "next": following, "is_complete": is_complete}


def tasks(answer: Callable[[Asked], Answered], *arguments: str | Path) -> tuple[int, str, str, ScriptedListener]:
    with scripted_listener(answer) as listener:
        return (*run("tasks", *arguments, "--admin", listener.url), listener)


def said(name: str, document: dict[str, Any], id: str = "one-1") -> bytes:
    """An event of the stream."""
    return f"id: {id}\nevent: {name}\ndata: {json.dumps(document)}\n\n".encode()


def streaming(*connections: list[bytes] | Answered) -> "Streaming":
    """A gateway with an event stream: each connection to it gets these parts, and ends, or this answer."""
    return Streaming(iter(connections))


class Streaming(NamedTuple):
    """The connections to come."""

    connections: Iterator[list[bytes] | Answered]

    def with_task(self, *answers: Answered) -> Callable[[Asked], Answered]:
        """The answers of the gateway; those beside the stream in turn."""
        rest = iter(answers)

        def answer(asked: Asked) -> Answered:
            if "/events" not in asked.path:
                return next(rest)
            found = next(self.connections)
            stream = {"Content-Type": "text/event-stream; charset=utf-8"}
            return (200, iter(found), stream) if isinstance(found, list) else found

        return answer


def query(asked: Asked) -> dict[str, list[str]]:
    return parse_qs(urlsplit(asked.path).query)


def test_a_list_is_lines_with_tabs_between_cells() -> None:
    queued = ITEM | {"reference": OTHER, "is_queued": True, "queue_position": 4}
    status, out, err, _ = tasks(lambda _: (200, page(ITEM, queued)), "ls")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "REFERENCE\tSTATUS\tUPSTREAM\tTOOL\tAGE\tTOOK\tSILENT\tCALLER\tREASON\tPROGRESS",
        f"{REF}\tworking\treports\tgenerate\t12m30s\t-\t30s\tc_x\t-\t3 of 5",
        f"{OTHER}\tworking\treports\tgenerate\t12m30s\t-\t30s\tc_x\t-\tqueued, 4 before it",
    ]


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ({"status": "failed", "reason": "timeout"}, "failed", "timeout"),
        ({"status": "completed", "tool_error": True, "reason": "tool_error"}, "failed", "tool_error"),
        ({"status": "completed", "reason": None}, "completed", "-"),
        ({"status": "cancelled", "reason": None}, "cancelled", "-"),
    ],
)
def test_an_ended_task_has_how_long_it_took_and_why_it_failed(end: dict[str, Any], status: str, reason: str) -> None:
    item = ITEM | end | {"ended_at": "2026-11-28T10:12:00Z", "progress": None}
    _, out, _, _ = tasks(lambda _: (200, page(item)), "ls")
    assert out.splitlines()[1] == f"{REF}\t{status}\treports\tgenerate\t12m30s\t12m\t-\tc_x\t{reason}\t-"
    shown = dict(line.split(maxsplit=1) for line in tasks(lambda _: (200, item), "show", REF)[1].splitlines())
    assert (shown["status"], shown["took"], shown.get("reason", "-")) == (status, "12m", reason)


def test_a_quiet_list_has_the_references_alone() -> None:
    _, out, _, _ = tasks(lambda _: (200, page(ITEM, ITEM | {"reference": OTHER})), "ls", "-q")
    assert out == f"{REF}\n{OTHER}\n"


def test_failed_tasks_are_asked_for_by_their_status() -> None:
    _, _, _, listener = tasks(lambda _: (200, page()), "ls", "--failed", "--status", "cancelled")
    assert query(listener.asked[0])["status"] == ["cancelled,failed"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("-q", "--json"), "Give one of -q, --watch and --json."),
        (("--watch",), "--watch needs a terminal; `taskgate events --kinds task`"),
        (("--failed", "--sort", "created"), "--sort needs --unfinished"),
        (("--sort", "updated"), "--sort needs --unfinished"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...], text: str) -> None:
    status, out, err, listener = tasks(lambda _: (200, page()), "ls", *options)
    assert (status, out, listener.asked) == (2, "", [])
    assert text in err


def test_a_list_with_ended_tasks_may_ask_for_its_own_order() -> None:
    assert tasks(lambda _: (200, page()), "ls", "--failed", "--sort", "-created")[0] == 0


@pytest.mark.parametrize(
    ("names", "cell"),
    [
        ({"subject": "bob", "tenant": "acme"}, "bob (acme)"),
        ({"subject": "bob", "tenant": None}, "bob"),
        ({"subject": None, "tenant": "a-reference"}, "c_x"),
        ({"subject": HOSTILE, "tenant": None}, "a\ufffd]0;owned\ufffd\ufffd2J"),
    ],
)
def test_a_caller_is_its_subject_and_tenant_or_else_its_reference(names: dict[str, Any], cell: str) -> None:
    _, out, _, _ = tasks(lambda _: (200, page(ITEM | names)), "ls")
    assert out.splitlines()[1].split("\t")[7] == cell


def test_a_task_shows_the_names_of_its_caller_that_there_are() -> None:
    names = {"subject": "bob", "client": "desk", "issuer": "corp", "tenant": None}
    _, out, _, _ = tasks(lambda _: (200, DETAIL | names), "show", REF)
    fields = dict(line.split(maxsplit=1) for line in out.splitlines()[:9])
    assert {key: fields.get(key) for key in ("caller", *names)} == {"caller": "c_x", **names}


def test_filters_are_those_of_the_api() -> None:
    filters = ("--upstream", "reports", "--tool", "a b", "--tenant", "t", "--caller", "c_x", "--reference", "t_a")
    times = ("--older-than", "10m", "--younger-than", "2h", "--sort", "-created", "--unfinished", "--limit", "7")
    _, _, _, listener = tasks(lambda _: (200, page()), "ls", *filters, *times)
    assert query(listener.asked[0]) == {
        "upstream": ["reports"],
        "tool": ["a b"],
        "tenant": ["t"],
        "caller": ["c_x"],
        "reference": ["t_a"],
        "older_than": ["600"],
        "younger_than": ["7200"],
        "sort": ["-created"],
        "status": ["working,input_required"],
        "limit": ["7"],
    }


def test_pages_are_followed_up_to_the_limit_also_empty_ones() -> None:
    pages = iter([page(ITEM, following="1"), page(following="2"), page(ITEM, ITEM, following="3")])
    status, out, err, listener = tasks(lambda _: (200, next(pages)), "ls", "--limit", "3")
    assert (status, len(out.splitlines())) == (0, 4)
    assert "there are more than 3 tasks" in err
    assert [query(asked).get("cursor") for asked in listener.asked] == [None, ["1"], ["2"]]
    assert [query(asked)["limit"] for asked in listener.asked] == [["3"], ["2"], ["2"]]


def test_a_list_as_json_has_the_items_of_the_api() -> None:
    status, out, _, _ = tasks(lambda _: (200, page(ITEM, is_complete=False)), "ls", "--json")
    assert (status, json.loads(out)) == (0, {"items": [ITEM], "is_complete": False, "has_more": False})


def test_a_task_is_shown_with_its_timeline() -> None:
    status, out, _, listener = tasks(lambda _: (200, DETAIL), "show", REF)
    assert (status, listener.asked[0].path) == (0, f"/api/v1/tasks/{REF}")
    for line in (
        f"reference  {REF}",
        "lease      one until 2026-11-28T10:13:00Z",
        "failure    timeout: no answer",
        "host       desk 1, 2025-11-25",
        "questions  elicitation/create",
        "           2026-11-28T10:00:00Z  working",
    ):
        assert line in out.splitlines()
    assert json.loads(tasks(lambda _: (200, DETAIL), "show", REF, "--json")[1]) == DETAIL


PAYLOAD = (
    f'{{"reference":"{REF}","upstream":"reports","tool":"generate","status":"input_required",'
    '"arguments":{"state":"shown","bytes":29,"value":{ "real" : 1.00e+040,\r"a":"x\u202e<b>"}},'
    '"result":{"state":"pending","bytes":null,"value":null},"error":{"state":"not_stored","bytes":null,"value":null},'
    '"questions":[{"key":"input-2","method":"elicitation/create","bytes":18,"value":{"message":"Go?"}}],'
    '"answers":[{"key":"input-1","bytes":2,"value":{}}]}'
)


def test_a_payload_is_shown_part_by_part_and_tells_what_is_not_there() -> None:
    status, out, _, listener = tasks(lambda _: (200, PAYLOAD.encode()), "show", REF, "--payload")
    assert (status, listener.asked[0].path) == (0, f"/api/v1/tasks/{REF}/payload")
    assert out.splitlines() == [
        f"reference  {REF}",
        "status     input_required",
        "upstream   reports",
        "tool       generate",
        "arguments: 29 bytes",
        "{",
        '  "real": 1e+40,',
        r'  "a": "x\u202e<b>"',
        "}",
        "result: the task has not ended",
        "error: the store has lost it",
        "question input-2 elicitation/create: 18 bytes",
        "{",
        '  "message": "Go?"',
        "}",
        "answer input-1: 2 bytes",
        "{}",
    ]


def test_a_payload_as_json_has_the_numbers_of_its_author_and_no_invisible_character() -> None:
    status, out, _, _ = tasks(lambda _: (200, PAYLOAD.encode()), "show", REF, "--payload", "--json")
    assert (status, out) == (0, PAYLOAD.replace("\u202e", r"\u202e").replace("\r", " ") + "\n")
    assert json.loads(out) == json.loads(PAYLOAD)


def test_a_payload_that_is_not_allowed_is_told() -> None:
    refused = {"error": {"code": "payloads_off", "message": "no payload is shown: admin.payloads is false"}}
    status, out, err, _ = tasks(lambda _: (403, refused), "show", REF, "--payload")
    assert (status, out, err) == (1, "", "taskgate: no payload is shown: admin.payloads is false\n")


def test_each_task_is_cancelled_and_one_that_is_not_ends_it_with_1() -> None:
    def answer(asked: Asked) -> Answered:
        return (200, ITEM | {"status": "cancelled"}) if REF in asked.path else (404, REFUSED)

    status, out, err, listener = tasks(answer, "cancel", OTHER, REF)
    assert (status, out) == (1, f"{REF}  cancelled\n")
    assert err == f"taskgate: {OTHER}: there is no such task, or it has expired\n"
    assert [(asked.verb, asked.path) for asked in listener.asked] == [
        ("POST", f"/api/v1/tasks/{OTHER}/cancel"),
        ("POST", f"/api/v1/tasks/{REF}/cancel"),
    ]
    status, out, _, _ = tasks(answer, "cancel", REF, "--json")
    assert (status, json.loads(out)) == (0, [{"reference": REF, "status": "cancelled", "error": None}])


def test_the_reason_of_a_cancel_is_sent() -> None:
    why = {"reason": "the database is down"}
    options = ("--reason", why["reason"])
    _, _, _, listener = tasks(lambda _: (200, ITEM | {"status": "cancelled"}), "cancel", REF, *options)
    assert [json.loads(asked.body) for asked in listener.asked] == [why]
    _, _, _, listener = tasks(lambda _: (200, BULK), "cancel-many", *SELECTION, "--yes", *options)
    assert ["reason" in json.loads(asked.body) for asked in listener.asked] == [False, True]


def test_what_was_cancelled_before_the_gateway_was_lost_is_told() -> None:
    def answer(asked: Asked) -> Answered:
        # No answer to the second: its body has no chunks.
        return (
            (200, ITEM | {"status": "cancelled"})
            if REF in asked.path
            else (200, b"no\r\n", {"Transfer-Encoding": "chunked"})
        )

    status, out, err, listener = tasks(answer, "cancel", REF, OTHER, REF)
    assert (status, out, len(listener.asked)) == (1, f"{REF}  cancelled\n", 2)
    lost, rest = err.splitlines()
    assert lost.startswith(f"taskgate: {OTHER}: its outcome is unknown: cannot ask the operators' listener")
    assert rest == f"taskgate: {REF}: not asked, because the gateway was not reached before"
    status, out, _, _ = tasks(answer, "cancel", REF, OTHER, REF, "--json")
    assert (status, [each["status"] for each in json.loads(out)]) == (1, ["cancelled", None, None])


BULK = {
    "matched": 2, "cancelled": 2, "ended": 0, "failed": 0, "references": [REF, OTHER], "selection": "0" * 64,
}  # fmt: skip
SELECTION = ("--upstream", "reports", "--status", "working", "--older-than", "1h")


def test_many_are_counted_first_and_then_cancelled_by_that_number_and_selection() -> None:
    status, out, _, listener = tasks(lambda _: (200, BULK), "cancel-many", *SELECTION, "--yes")
    assert (status, out) == (0, "2 matched, 2 cancelled, 0 ended, 0 failed\n")
    selection = {"upstream": "reports", "status": ["working"], "older_than": 3600}
    assert [(asked.verb, asked.path, json.loads(asked.body)) for asked in listener.asked] == [
        ("POST", "/api/v1/tasks/cancel", {**selection, "dry_run": True}),
        ("POST", "/api/v1/tasks/cancel", {**selection, "confirm": 2, "selection": "0" * 64}),
    ]
    assert json.loads(tasks(lambda _: (200, BULK), "cancel-many", *SELECTION, "--yes", "--json")[1]) == BULK


def test_a_dry_run_prints_the_references_and_cancels_none() -> None:
    status, out, err, listener = tasks(lambda _: (200, BULK), "cancel-many", *SELECTION, "--dry-run")
    assert (status, out, err) == (0, f"{REF}\n{OTHER}\n", "taskgate: 2 match, none was cancelled\n")
    assert [json.loads(asked.body)["dry_run"] for asked in listener.asked] == [True]
    assert json.loads(tasks(lambda _: (200, BULK), "cancel-many", *SELECTION, "--dry-run", "--json")[1]) == BULK


@pytest.mark.parametrize("lacking", ["matched", "selection"])
def test_a_gateway_that_counts_without_a_selection_is_asked_for_no_cancel(lacking: str) -> None:
    answered = {name: value for name, value in BULK.items() if name != lacking}
    status, out, err, listener = tasks(lambda _: (200, answered), "cancel-many", *SELECTION, "--yes")
    assert (status, out, len(listener.asked)) == (1, "", 1)
    assert err == "taskgate: the answer of the API has no number or no selection of tasks\n"


def test_without_a_terminal_or_yes_many_are_only_counted() -> None:
    status, _, err, listener = tasks(lambda _: (200, BULK), "cancel-many", *SELECTION)
    assert (status, len(listener.asked)) == (2, 1)
    assert "2 tasks match" in err


@pytest.mark.parametrize(
    "second", [(200, BULK | {"failed": 1}), (409, {"error": {"message": "3 tasks match now, not 2"}})]
)
def test_many_of_which_one_was_not_cancelled_or_whose_number_changed_end_it_with_1(second: Answered) -> None:
    answers = iter([(200, BULK), second])
    assert tasks(lambda _: next(answers), "cancel-many", *SELECTION, "--yes")[0] == 1


@pytest.mark.parametrize(("last", "expected"), [("completed", 0), ("failed", 1), ("cancelled", 1)])
def test_a_watched_task_is_a_line_for_each_change_until_it_ends(last: str, expected: int) -> None:
    changes = [ITEM, ITEM, ITEM | {"progress": "4 of 5"}, ITEM | {"status": last, "progress": None}]
    answers = [(200, changes[0]), (200, changes[1]), (503, {}), (200, changes[2]), (200, changes[3])]
    streamed = streaming([said("task", ITEM, str(number)) for number in range(3)])
    status, out, _, listener = tasks(streamed.with_task(*answers), "watch", REF, "--interval", "0.1")
    assert (status, len(listener.asked)) == (expected, 6)
    assert [line.split("  ")[1:] for line in out.splitlines()] == [
        ["working", "3 of 5"],
        ["working", "4 of 5"],
        [last, "-"],
    ]


def test_a_watched_task_is_asked_for_at_its_own_events_alone() -> None:
    parts = [b": comment\n\n", said("task", ITEM | {"reference": OTHER}), said("upstream", {"name": "reports"})]
    streamed = streaming([*parts, *parts, said("task", ITEM), said("reset", {"reason": "missed"})])
    answers = [(200, ITEM), (200, ITEM), (200, ITEM | {"status": "completed"})]
    status, _, _, listener = tasks(streamed.with_task(*answers), "watch", REF)
    assert (status, [asked.path.rpartition("/")[2] for asked in listener.asked]) == (
        0,
        ["events?kinds=task", *[REF] * 3],
    )


def test_a_stream_that_breaks_is_opened_again_after_its_last_event() -> None:
    streamed = streaming(
        [b"retry: 10\n\n", said("task", ITEM, "one-7"), b"id: one-8\nevent: task\ndata: {"],
        [b": alive\n\n"],
        [said("task", ITEM | {"status": "completed"}, "one-9")],
    )
    answers = [(200, ITEM)] * 4 + [(200, ITEM | {"status": "completed"})]
    status, _, _, listener = tasks(streamed.with_task(*answers), "watch", REF)
    opened = [asked.headers for asked in listener.asked if "events" in asked.path]
    assert (status, [headers.get("Last-Event-ID") for headers in opened]) == (0, [None, "one-7", "one-7"])
    assert {headers["Accept"] for headers in opened} == {"text/event-stream"}


def test_a_gateway_without_room_for_a_stream_is_asked_each_interval() -> None:
    busy: Answered = (503, {"error": {"code": "too_many_streams", "message": "16 event streams are open"}})
    streamed = streaming(busy, busy, busy)
    answers = [(200, ITEM), (200, ITEM | {"progress": "4 of 5"}), (200, ITEM | {"status": "completed"})]
    status, out, err, _ = tasks(streamed.with_task(*answers), "watch", REF, "--interval", "0.1")
    assert (status, len(out.splitlines()), err) == (0, 3, "")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((404, {"error": {"code": "not_found", "message": "not found"}}), "the gateway has no event stream"),
        ((200, {}), "the gateway has no event stream"),
        ((401, {"error": {"code": "x", "message": "not authenticated"}}), "not authenticated: give --token FILE"),
    ],
)
def test_a_gateway_that_has_no_stream_is_told_at_once(answer: Answered, told: str) -> None:
    status, out, err, listener = tasks(lambda _: answer, "watch", REF)
    assert (status, out, len(listener.asked)) == (1, "", 1)
    assert told in err


def test_a_gateway_that_does_not_answer_ends_a_watch_with_1() -> None:
    with scripted_listener(lambda _: (200, ITEM)) as listener:
        pass
    status, _, err = run("tasks", "watch", REF, "--admin", listener.url, "--interval", "0.1")
    assert status == 1
    assert "cannot ask the operators' listener" in err


def test_an_event_that_is_too_large_is_no_memory_of_the_command() -> None:
    streamed = streaming([b"data: " + b"x" * 2**16] + [b"x" * 2**16] * 20, [b"retry: 10\n\n"])
    answers = [(200, ITEM), (200, ITEM | {"status": "completed"})]
    assert tasks(streamed.with_task(*answers), "watch", REF, "--interval", "0.1")[0] == 0


def test_a_watched_task_whose_tool_returns_an_error_ends_it_with_3() -> None:
    ended = ITEM | {"status": "completed", "tool_error": True}
    assert tasks(streaming([b": open\n\n"]).with_task((200, ended)), "watch", REF)[0] == 3


def test_a_watched_task_as_json_is_a_document_in_each_line() -> None:
    changes = [ITEM, DETAIL | {"status": "completed", "tool": HOSTILE}]
    answers = [(200, change) for change in changes]
    _, out, _, _ = tasks(streaming([said("task", ITEM)]).with_task(*answers), "watch", REF, "--json")
    assert [json.loads(line) for line in out.splitlines()] == changes


@pytest.mark.program
def test_ctrl_c_ends_a_watch_with_130() -> None:
    has_asked, is_over = threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        yield b": open\n\n"
        is_over.wait(20)

    def answer(asked: Asked) -> Answered:
        if "/events" in asked.path:
            return 200, parts(), {"Content-Type": "text/event-stream"}
        has_asked.set()
        return 200, ITEM

    with scripted_listener(answer) as listener:
        command = [TASKGATE, "tasks", "watch", REF, "--admin", listener.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert has_asked.wait(20)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=20)
        is_over.set()
    assert (child.returncode, err) == (130, b"")


def test_a_watched_task_that_is_not_there_ends_it_with_1() -> None:
    status, _, err, listener = tasks(streaming([b": open\n\n"]).with_task((404, REFUSED)), "watch", REF)
    assert (status, len(listener.asked)) == (1, 2)
    assert "there is no such task" in err


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, {"error": {"code": "x", "message": "not authenticated"}}), "not authenticated: give --token FILE"),
        ((403, {"error": {"code": "x", "message": "the token has the role viewer"}}), "the token has the role viewer"),
        ((421, {"error": "host not allowed"}), "give --admin an IP address or localhost"),
        ((404, {"error": "not found"}), "not found"),
        ((200, []), "HTTP status 200"),
        ((500, b"<html>"), "HTTP status 500"),
    ],
)
@pytest.mark.parametrize("command", [("ls",), ("show", REF), ("cancel", REF)])
def test_a_refusal_is_told_with_what_to_do(answer: Answered, told: str, command: tuple[str, ...]) -> None:
    status, out, err, _ = tasks(lambda _: answer, *command)
    assert (status, out) == (1, "")
    assert told in err


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", [("ls",), ("show", REF), ("watch", REF), ("cancel", REF)])
def test_hostile_names_do_not_reach_the_terminal(command: tuple[str, ...], options: tuple[str, ...]) -> None:
    hostile = dict.fromkeys(DETAIL, HOSTILE) | {
        "failure": {"reason": HOSTILE, "message": HOSTILE},
        "host": {"name": HOSTILE},
        "questions": [HOSTILE],
        "timeline": [{"time": HOSTILE, "status": HOSTILE}],
        "status": "completed",
    }
    document = {"now": HOSTILE, "items": [hostile], "next": None} if command == ("ls",) else hostile
    streamed = streaming([said("reset", {"reason": HOSTILE})])
    status, out, err, _ = tasks(streamed.with_task((200, document)), *command, *options)
    assert status == 0
    refused = tasks(lambda _: (400, {"error": {"message": HOSTILE}}), *command, *options)
    assert not {"\x1b", "\x07", "\x9b"} & {*out, *err, *refused[1], *refused[2]}


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "abc"),
        ("show", "t_../../../../etc/passwd"),
        ("cancel",),
        ("cancel", REF, "x"),
        ("cancel-many", "--yes"),
        ("cancel-many", "--status", "failed"),
        ("ls", "--older-than", "soon"),
        ("ls", "--sort", "created"),
        ("ls", "--sort", "created", "--unfinished", "--status", "failed"),
        ("ls", "--limit", "0"),
        ("ls", "--token", "/no/such/file"),
        ("ls", "--tool", "\udcff"),
        ("ls", "--caller", "\udcff"),
        ("cancel-many", "--upstream", "\udcff", "--yes"),
        ("watch", REF, "--interval", "nan"),
    ],
)
def test_a_command_line_that_cannot_be_used_asks_nothing(arguments: tuple[str, ...]) -> None:
    status, out, _, listener = tasks(lambda _: (200, page()), *arguments)
    assert (status, out, listener.asked) == (2, "", [])


@pytest.mark.parametrize("command", [("ls", "--tool", ""), ("cancel-many", "--older-than", "0s", "--yes")])
def test_a_filter_that_the_api_refuses_ends_it_with_2(command: tuple[str, ...]) -> None:
    invalid = (400, {"error": {"code": "invalid_request", "message": "tool: too short"}})
    status, out, err, _ = tasks(lambda _: invalid, *command)
    assert (status, out, err) == (2, "", "tool: too short\n")


def test_the_token_of_the_environment_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(noted("the-token-of-an-operator"))
    file.chmod(0o600)
    with scripted_listener(lambda _: (200, page())) as listener:
        status, _, _ = run("tasks", "ls", TASKGATE_ADMIN_URL=listener.url, TASKGATE_ADMIN_TOKEN_FILE=str(file))
    assert status == 0
    assert listener.asked[0].headers["Authorization"] == "Bearer the-token-of-an-operator"


@asynccontextmanager
async def operated_gateway(folder: Path) -> AsyncIterator[tuple[GatewayProcess, Path]]:
    """A gateway before the example server, whose ledger is in the folder, and the file of an operator's token."""
    ledger, token = folder / "ledger", folder / "token"
    token.write_text(noted("the-token-of-an-operator"))
    token.chmod(0o600)
    server = [sys.executable, CHECKOUT / "example" / "server.py", "--port", "0", "--ledger", ledger]
    admin = f'{{listen: "127.0.0.1:0", tokens: [{{file: "{token}", role: operator, name: ops}}]}}'
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(running(server, log=folder / "server.log"))
        url = (await upstream.said(UVICORN_LISTENS))[1].decode()
        file = write_configuration(folder, f"{url}/mcp", admin=admin)
        gateway = await stack.enter_async_context(gateway_process(["--config", file], log=folder / "gateway.log"))
        yield gateway, token


@pytest.mark.program
async def test_a_task_of_a_running_gateway_is_found_shown_and_cancelled_at_its_server(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, bounded():
        gateway, token = await stack.enter_async_context(operated_gateway(tmp_path))
        ledger = tmp_path / "ledger"
        options = ("--admin", gateway.admin, "--token", token)
        slow = ("generate_report", "--arg", "quarter=Q3", "--arg", "seconds=600", "--task")
        calling = [TASKGATE, "call", "/reports/mcp", *slow, "--url", f"http://{gateway.listen}"]
        child = await stack.enter_async_context(running(calling, log=tmp_path / "call.log"))
        await eventually(lambda: ledger.exists() and "started" in ledger.read_text())
        listed = taskgate("tasks", "ls", "--unfinished", *options, folder=tmp_path)
        (row,) = listed.stdout.splitlines()[1:]
        reference, status, name, tool, *_ = row.split("\t")
        assert (status, name, tool) == ("working", "reports", "generate_report")
        assert f"reference  {reference}" in taskgate("tasks", "show", reference, *options, folder=tmp_path).stdout
        following = [TASKGATE, "tasks", "watch", reference, "--admin", gateway.admin, "--token", token]
        follower = await stack.enter_async_context(running(following, log=tmp_path / "watch.log"))
        await follower.said(rb"  working  -\n")
        cancelled = taskgate("tasks", "cancel", reference, *options, folder=tmp_path)
        assert (cancelled.returncode, cancelled.stdout) == (0, f"{reference}  cancelled\n")
        async with bounded(2):
            assert await follower.process.wait() == 1
        assert (tmp_path / "watch.log").read_text().splitlines()[-1].split("  ")[1:] == ["cancelled", "-"]
        assert await child.process.wait() == 1
        await eventually(lambda: "cancelled generate_report" in ledger.read_text())
        none = taskgate("tasks", "cancel-many", "--upstream", "reports", "--yes", *options, folder=tmp_path)
        assert (none.returncode, none.stdout) == (0, "0 matched, 0 cancelled, 0 ended, 0 failed\n"), none.stderr
        again = taskgate("tasks", "cancel", reference, *options, folder=tmp_path)
        assert (again.returncode, "already ended" in again.stderr) == (1, True)
        watched = taskgate("tasks", "watch", reference, *options, folder=tmp_path)
        assert (watched.returncode, watched.stdout.split("  ")[1]) == (1, "cancelled")


@pytest.mark.program
async def test_a_watch_of_a_running_gateway_prints_progress_as_it_comes(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, bounded():
        gateway, token = await stack.enter_async_context(operated_gateway(tmp_path))
        options = ("--admin", gateway.admin, "--token", token)
        arguments = ("generate_report", "--arg", "quarter=Q3", "--arg", "seconds=10", "--task")
        calling = [TASKGATE, "call", "/reports/mcp", *arguments, "--url", f"http://{gateway.listen}"]
        await stack.enter_async_context(running(calling, log=tmp_path / "call.log"))
        await eventually((tmp_path / "ledger").exists)
        reference = taskgate("tasks", "ls", "--unfinished", *options, folder=tmp_path).stdout.splitlines()[1].split()[0]
        following = [TASKGATE, "tasks", "watch", reference, *options, "--interval", "3600"]
        follower = await stack.enter_async_context(running(following, log=tmp_path / "watch.log"))
        times = []
        for chapter in (2, 3, 4):
            await follower.said(rb"  working  %d/5\n" % chapter)
            times.append(time.monotonic())
        assert await follower.process.wait() == 0
        # One comes every two seconds, and is shown within two: none waits for the next.
        assert max(later - earlier for earlier, later in pairwise(times)) < 4
