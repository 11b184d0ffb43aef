"""`taskgate upstreams`: what it asks the API of operators, and what it prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import run
from helpers.gateway.process import serve_process, taskgate
from helpers.scripted_listener import Answered, Asked, ScriptedListener, scripted_listener
from helpers.secrets import noted

ITEM: dict[str, Any] = {
    "name": "reports",
    "path": "/reports/mcp",
    "state": "up",
    "cause": None,
    "since": None,
    "recent_requests": 28,
    "recent_failures": 0,
    "is_up": True,
    "circuit": "closed",
    "is_held": False,
    "calls": 2,
    "limit": 32,
    "waiting": 1,
    "tasks": 1,
    "requests": 2,
    "offers_tasks": False,
}
REFUSING = {"state": "refusing", "cause": "HTTP 401: no", "since": "2026-11-30T10:00:00Z", "recent_failures": 27}
LIST = {"replica": "one", "items": [ITEM, ITEM | REFUSING | {"name": "books"}, ITEM | {"state": "held"}]}
HOSTILE = "a\x1b]0;owned\x07\x9b2J"


def upstreams(answer: Answered | dict[str, Answered], *arguments: str) -> tuple[int, str, str, ScriptedListener]:
    def answered(asked: Asked) -> Answered:
        return answer[asked.path.split("/")[4]] if isinstance(answer, dict) else answer

    with scripted_listener(answered) as listener:
        return (*run("upstreams", *arguments, "--admin", listener.url), listener)


def test_a_list_has_state_and_load() -> None:
    status, out, _, listener = upstreams((200, LIST), "ls")
    assert (status, listener.asked[0].path) == (0, "/api/v1/upstreams")
    assert out.splitlines() == [
        "NAME\tSTATE\tSINCE\tFAILED\tCIRCUIT\tCALLS\tLIMIT\tWAITING\tTASKS\tPATH\tCAUSE",
        "reports\tup\t-\t0/28\tclosed\t2\t32\t1\t1\t/reports/mcp\t-",
        "books\tREFUSING\t2026-11-30T10:00:00Z\t27/28\tclosed\t2\t32\t1\t1\t/reports/mcp\tHTTP 401: no",
        "reports\theld\t-\t0/28\tclosed\t2\t32\t1\t1\t/reports/mcp\t-",
    ]
    assert json.loads(upstreams((200, LIST), "ls", "--json")[1]) == LIST


def test_one_is_shown_with_all_that_the_api_says() -> None:
    status, out, _, listener = upstreams((200, ITEM), "show", "reports")
    assert (status, listener.asked[0].path) == (0, "/api/v1/upstreams/reports")
    assert "is_up            yes" in out.splitlines()
    assert json.loads(upstreams((200, ITEM), "show", "reports", "--json")[1]) == ITEM


@pytest.mark.parametrize(("action", "held", "told"), [("hold", True, "held"), ("release", False, "released")])
def test_each_is_held_or_released_and_one_that_is_refused_ends_it_with_1(action: str, held: bool, told: str) -> None:
    answers: dict[str, Answered] = {
        "reports": (200, ITEM | {"is_held": held, "replica": "one"}),
        "none": (404, {"error": {"message": "there is no upstream of that name"}}),
    }
    status, out, err, listener = upstreams(answers, action, "none", "reports")
    assert (status, out) == (1, f"reports  {told} at replica one\n")
    assert err == "taskgate: none: there is no upstream of that name\n"
    assert [(asked.verb, asked.path) for asked in listener.asked] == [
        ("POST", f"/api/v1/upstreams/none/{action}"),
        ("POST", f"/api/v1/upstreams/reports/{action}"),
    ]
    status, out, _, _ = upstreams(answers, action, "reports", "--json")
    assert (status, json.loads(out)) == (0, [{"name": "reports", "is_held": held, "replica": "one"}])


def test_what_was_held_before_the_gateway_was_lost_is_told() -> None:
    answers: dict[str, Answered] = {
        "a": (200, ITEM | {"is_held": True, "replica": "one"}),
        "b": (200, b"no\r\n", {"Transfer-Encoding": "chunked"}),
    }
    status, out, err, listener = upstreams(answers, "hold", "a", "b", "c")
    assert (status, out, len(listener.asked)) == (1, "a  held at replica one\n", 2)
    lost, rest = err.splitlines()
    assert lost.startswith("taskgate: b: its outcome is unknown: ")
    assert rest == "taskgate: c: not asked, because the gateway was not reached before"
    status, out, _, _ = upstreams(answers, "hold", "a", "b", "c", "--json")
    assert (status, [each["name"] for each in json.loads(out)]) == (1, ["a", "b", "c"])


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", [("ls",), ("show", "a"), ("hold", "a")])
def test_hostile_names_do_not_reach_the_terminal(command: tuple[str, ...], options: tuple[str, ...]) -> None:
    hostile = dict.fromkeys(ITEM, HOSTILE) | {HOSTILE: HOSTILE, "replica": HOSTILE}
    document = {"items": [hostile]} if command == ("ls",) else hostile
    status, out, _, _ = upstreams((200, document), *command, *options)
    assert status == 0
    assert not {"\x1b", "\x07", "\x9b"} & {*out}


@pytest.mark.parametrize("arguments", [("show", "../tasks"), ("hold",), ("hold", "a", "B"), ("release", "")])
def test_what_is_no_name_asks_nothing(arguments: tuple[str, ...]) -> None:
    status, out, _, listener = upstreams((200, ITEM), *arguments)
    assert (status, out, listener.asked) == (2, "", [])


@pytest.mark.program
async def test_an_upstream_of_a_running_gateway_is_held_and_released(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(noted("the-token-of-an-operator"))
    token.chmod(0o600)
    admin = f'{{listen: "127.0.0.1:0", tokens: [{{file: "{token}", role: operator, name: ops}}]}}'
    async with serve_process(tmp_path, "http://127.0.0.1:9/mcp", admin=admin) as gateway:
        options = ("--admin", gateway.admin, "--token", token)
        held = taskgate("upstreams", "hold", "reports", *options, folder=tmp_path)
        assert (held.returncode, held.stdout.startswith("reports  held at replica ")) == (0, True)
        assert "reports\theld\t" in taskgate("upstreams", "ls", *options, folder=tmp_path).stdout
        assert taskgate("upstreams", "release", "reports", *options, folder=tmp_path).returncode == 0
        assert "is_held          no" in taskgate("upstreams", "show", "reports", *options, folder=tmp_path).stdout
        refused = taskgate("upstreams", "hold", "other", *options, folder=tmp_path)
        assert (refused.returncode, "there is no upstream" in refused.stderr) == (1, True)
