"""`taskgate callers`: what it asks the API of operators, and what it prints."""

import json
from typing import Any

from helpers.command_line import run
from helpers.scripted_listener import Answered, Asked, ScriptedListener, scripted_listener

HOSTILE = "a\x1b]0;owned\x07\x9b2J"


def limit(name: str, used: int, **rest: Any) -> dict[str, Any]:
    return {"limit": name, "upstream": None, "used": used, "most": 10, "is_shared": False} | rest


ALICE = {
    "caller": "c_alice",
    "subject": "alice",
    "tenant": "acme",
    "limits": [limit("calls", 3, is_shared=True), limit("rest", 0)],
}
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
        "CALLER\tLIMIT\tUPSTREAM\tUSED\tMOST\tOF\tREFERENCE",
        "alice (acme)\tcalls\t-\t3\t10\tall replicas\tc_alice",
        "c_bob\tqueue.size\treports\t1\t-\tthis replica\tc_bob",
    ]


def test_json_has_every_limit() -> None:
    assert json.loads(callers("--json")[1]) == {"items": [ALICE, BOB], "is_complete": True, "has_more": False}


def test_no_more_callers_are_asked_for_than_are_wanted() -> None:
    _, out, _, listener = callers("--limit", "1", "--caller", "c_alice", "--json")
    assert json.loads(out) == {"items": [ALICE], "is_complete": True, "has_more": True}
    assert [asked.path for asked in listener.asked] == ["/api/v1/callers?caller=c_alice&limit=1"]


def test_a_list_that_is_cut_says_so() -> None:
    pages = {False: {"items": [ALICE], "next": "a-cursor", "is_complete": False}}
    status, _, err, _ = callers("--limit", "1", pages=pages)
    assert status == 0
    assert err.splitlines() == [
        "taskgate: there are more than 1 callers: name one, or raise --limit",
        "taskgate: more tasks are unfinished than the gateway counts",
    ]


def test_a_refused_filter_ends_it_with_2() -> None:
    refused = (400, {"error": {"code": "invalid_query", "message": "caller: too long"}})
    with scripted_listener(lambda _: refused) as listener:
        status, _, err = run("callers", "--caller", "c" * 300, "--admin", listener.url)
    assert (status, err) == (2, "caller: too long\n")
    assert run("callers", "--caller", "\udcff")[0] == 2


def test_hostile_texts_do_not_reach_the_terminal() -> None:
    hostile = {"caller": HOSTILE, "limits": [limit(HOSTILE, 1, upstream=HOSTILE, most=HOSTILE)]}
    status, out, _, _ = callers(pages={False: {"items": [hostile], "next": None}})
    assert status == 0
    assert not {"\x1b", "\x07", "\x9b"} & {*out}
