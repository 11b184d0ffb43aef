"""`taskgate callers`: what it asks the API of operators, and what it prints."""

import json
from typing import Any

from helpers.command_line import run
from helpers.scripted_listener import Answered, Asked, ScriptedListener, scripted_listener

HOSTILE = "a\x1b]0;owned\x07\x9b2J"


def limit(name: str, used: int, **rest: Any) -> dict[str, Any]:
    return {"limit": name, "upstream": None, "used": used, "most": 10, "is_shared": False} | rest


ALICE = {"caller": "c_alice", "limits": [limit("calls", 3, is_shared=True), limit("rest", 0)]}
BOB = {"caller": "c_bob", "limits": [limit("queue.size", 1, upstream="reports", most=None)]}
PAGES: dict[bool, dict[str, Any]] = {
    False: {"items": [ALICE], "next": "a-cursor"},
    True: {"items": [BOB], "next": None},
}


def callers(*arguments: str, pages: dict[bool, dict[str, Any]] = PAGES) -> tuple[int, str, str, ScriptedListener]:
    def answered(asked: Asked) -> Answered:
        return 200, pages["cursor" in asked.path]

    with scripted_listener(answered) as listener:
        return (*run("callers", *arguments, "--admin", listener.url), listener)


def test_all_pages_are_printed_with_the_limits_that_are_used() -> None:
    status, out, _, listener = callers()
    assert status == 0
    assert [asked.path for asked in listener.asked] == [
        "/api/v1/callers?limit=50",
        "/api/v1/callers?limit=49&cursor=a-cursor",
    ]
    assert out.splitlines() == [
        "CALLER\tLIMIT\tUPSTREAM\tUSED\tMOST\tOF",
        "c_alice\tcalls\t-\t3\t10\tall replicas",
        "c_bob\tqueue.size\treports\t1\t-\tthis replica",
    ]


def test_json_has_every_limit() -> None:
    assert json.loads(callers("--json")[1]) == [ALICE, BOB]


def test_no_more_callers_are_asked_for_than_are_wanted() -> None:
    _, out, _, listener = callers("--limit", "1", "--caller", "c_alice", "--json")
    assert json.loads(out) == [ALICE]
    assert [asked.path for asked in listener.asked] == ["/api/v1/callers?caller=c_alice&limit=1"]


def test_hostile_texts_do_not_reach_the_terminal() -> None:
    hostile = {"caller": HOSTILE, "limits": [limit(HOSTILE, 1, upstream=HOSTILE, most=HOSTILE)]}
    status, out, _, _ = callers(pages={False: {"items": [hostile], "next": None}})
    assert status == 0
    assert not {"\x1b", "\x07", "\x9b"} & {*out}
