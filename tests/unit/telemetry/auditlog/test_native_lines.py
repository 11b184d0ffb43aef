"""Native lines: what they say, and what they must not say."""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.record import TaskStatus, evolve
from taskgate.domain.versions import client_of
from taskgate.protocol.messages import Request
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import KINDS
from taskgate.telemetry.auditlog.events import internal_event
from taskgate.telemetry.auditlog.fold import COUNT
from taskgate.telemetry.auditlog.formats.digests import task_ref
from taskgate.telemetry.auditlog.formats.redaction import scrubbed
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import LineOptions
from unit.telemetry.auditlog.audit_cases import (
    ANSWERED,
    CALLER,
    COMPLETED,
    DONE,
    FIRST_USE,
    IDENTITY,
    KEY,
    NOW,
    OF_A_BATCH,
    OTHER,
    TASK_ID,
    TOKEN,
    SetSpan,
    line_of,
    lines,
    message_text,
    new_context,
    of_task,
)

REF = task_ref(KEY, TASK_ID)


def digest(kind: str, text: str) -> str:
    """Made step by step."""
    made = hmac.new(KEY, f"{kind}\n{text}".encode(), "sha256").digest()
    return f"{kind}_{urlsafe_b64encode(made).decode()[:22]}"


def test_a_call_is_told_whole() -> None:
    assert line_of(ANSWERED, new_context(span=SetSpan(), result_bytes=42)) == {
        "v": 1,
        "time": "2026-11-21T01:22:03.123456Z",
        "node": "gw-1",
        "event": "rpc.call",
        "outcome": "success",
        "reason": None,
        "severity": "info",
        "actor": {
            "ctx": "c_5b0kYwq0mX1c2f8Zt4r9aA",
            "method": "jwt",
            "iss": "https://idp.example.com/",
            "sub": "user-17",
            "client_id": "agent-a",
            "tenant": "acme",
            "jti": "a1b2",
            "delegation": [
                {"iss": None, "sub": "agent-a", "client_id": None},
                {"iss": "https://other.example/", "sub": "agent-b", "client_id": None},
            ],
        },
        "mcp": {
            "method": "tools/call",
            "protocol": "2026-07-28",
            "request_id": "7",
            "upstream": "reports",
            "tool": "build_report",
            "client": {"name": "host", "version": "1.0"},
        },
        "task": None,
        "args": {"keys": ["city", "year"], "bytes": 30, "hmac": digest("a", '{"city": "Oslo", "year": 2026}')},
        "http": {
            "peer": "203.0.113.9",
            "request_id": "abcdefgh-1",
            "verb": "POST",
            "path": "/reports/mcp",
            "status": 200,
            "user_agent": "host/1.0",
        },
        "limit": None,
        "trace": {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"},
        "data": {"seconds": 0.25, "result": {"bytes": 42}},
    }


@covers("O-AUD-1")
def test_what_becomes_of_a_task_outside_of_any_request_is_told_of_its_owner() -> None:
    line = line_of(events.TaskPurged(of_task()), None)
    assert line["actor"] == {
        "ctx": f"c_{CALLER.key}", "method": None, "iss": None, "sub": None, "client_id": None, "tenant": None,
        "jti": None, "delegation": [],
    }  # fmt: skip
    assert line["task"] == {
        "ref": REF, "status": "working", "owner_ctx": f"c_{CALLER.key}", "ttl_ms": 3_600_000,
    }  # fmt: skip
    assert line["mcp"] == {
        "method": None, "protocol": None, "request_id": None, "upstream": "reports", "tool": "build_report",
        "client": None,
    }  # fmt: skip
    assert (line["http"], line["trace"], line["args"]) == (None, None, None)


def test_whoever_is_denied_a_task_is_told_apart_from_whose_it_is() -> None:
    denied = events.TaskDenied("reports", "tasks/get", "context_mismatch", TASK_ID, OTHER)
    line = line_of(denied, new_context(message_text("tasks/get", taskId=TASK_ID)))
    assert line["actor"]["ctx"] == f"c_{CALLER.key}"
    assert line["task"] == {"ref": REF, "status": None, "owner_ctx": f"c_{OTHER}", "ttl_ms": None}
    assert line["mcp"]["method"] == "tasks/get"
    assert line_of(denied, None)["actor"] is None


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"])
def test_a_request_about_a_task_and_one_that_made_it_have_the_same_reference(method: str) -> None:
    asking = line_of(ANSWERED, new_context(message_text(method, taskId=TASK_ID)))
    making = line_of(ANSWERED, new_context(task=TASK_ID))
    assert asking["task"] == making["task"] == {"ref": REF, "status": None, "owner_ctx": None, "ttl_ms": None}


def test_a_reference_is_nothing_but_what_the_key_makes_of_an_id() -> None:
    assert digest("t", TASK_ID) == REF
    assert len(REF) == 24
    assert task_ref(b"o" * 32, TASK_ID) != REF
    assert task_ref(KEY, f"{TASK_ID} ") != REF


def test_a_pseudonym_has_a_reference_and_no_name() -> None:
    line = line_of(ANSWERED, new_context(), identity="pseudonymous")
    assert {name for name, value in line["actor"].items() if value} == {"ctx", "method"}
    written = orjson.dumps(lines(identity="pseudonymous")).decode()
    assert not [each for each in (IDENTITY.issuer, IDENTITY.subject, "agent-a", "acme", "a1b2") if each in written]


def test_without_authentication_everybody_is_the_same_caller() -> None:
    actor = line_of(ANSWERED, new_context(caller=ANONYMOUS))["actor"]
    assert (actor["ctx"], actor["method"], actor["sub"]) == ("c_anonymous", "none", None)
    assert line_of(ANSWERED, new_context(caller=None))["actor"] is None


def test_those_who_act_for_each_other_without_end_are_cut_off() -> None:
    claims: dict[str, Any] = {}
    for _ in range(20):
        claims = {"act": {"sub": 7, **claims}}
    identity = replace(IDENTITY, claims=claims)
    chain = line_of(ANSWERED, new_context(caller=AuthContext(key="k", identity=identity)))["actor"]["delegation"]
    assert chain == [{"iss": None, "sub": None, "client_id": None}] * 8


# --- what is never told ----------------------------------------------------------------------------------------------


@covers("O-AUD-3")
@pytest.mark.parametrize("format", ["native", "ocsf", "ecs"])
@pytest.mark.parametrize("arguments", ["none", "keys", "hash"])
def test_no_line_has_a_token_an_id_of_a_task_or_a_value_of_an_argument(format: str, arguments: str) -> None:
    written = orjson.dumps(lines(format=format, arguments=arguments)).decode()
    assert not [each for each in (TOKEN, TASK_ID, "Oslo", '"content"') if each in written]


def test_two_names_that_differ_stay_different_and_invisible_characters_are_marked() -> None:
    names = {
        "evil tool": "evil tool",
        "ev\x1b[31mil\u202etool": r"ev\u001b[31mil\u202etool",
        r"ev\u001b[31mil\u202etool": r"ev\\u001b[31mil\\u202etool",
        r"ev\\u001b[31mil\\u202etool": r"ev\\\\u001b[31mil\\\\u202etool",
        "ev[31miltool": "ev[31miltool",
        r"CORP\ursula": r"CORP\ursula",
        "CORP\\\x00": r"CORP\\\u0000",
        "\U000e0041": r"\udb40\udc41",
        "\udcff": r"\udcff",
    }
    shown = [scrubbed(name) for name in names]
    assert shown == list(names.values())
    assert len({*shown}) == len(names)


@given(st.text("\\u01\x1b\u202ea", max_size=24), st.text("\\u01\x1b\u202ea", max_size=24))
def test_no_two_short_names_have_one_form(one: str, other: str) -> None:
    assert (scrubbed(one, 1000) == scrubbed(other, 1000)) is (one == other)


def test_a_mark_is_not_cut() -> None:
    assert scrubbed("\x1b" * 30, 16) == r"\u001b\u001b…"


def test_words_of_peers_are_printable_and_short() -> None:
    nasty = "a\n\x1b[31m\u202e" + "b" * 1000
    client = client_of({"name": nasty, "version": ["no text"]})
    request_context = new_context(
        message_text("tools/call", name=nasty, arguments={nasty: 1}).replace(b'"id": 7', b'"id": "x\\ny"'),
        agent=nasty, client=client, path=f"/{nasty}", revision=nasty, verb=nasty,
    )  # fmt: skip
    line = line_of(ANSWERED, request_context)
    assert line["mcp"]["client"] == {"name": r"a\u000a\u001b[31m\u202e" + "b" * 105 + "…", "version": None}
    assert line["mcp"]["request_id"] == r"x\u000ay"
    texts = [line["mcp"]["tool"], line["args"]["keys"][0], line["http"]["user_agent"], line["http"]["path"]]
    assert all(each.isprintable() and len(each) <= 257 for each in (*texts, line["mcp"]["protocol"]))
    # As written, all backslashes of marks are escaped.
    assert orjson.dumps(line).replace(b"\\\\", b"").count(b"\\u") == 0


def test_what_a_host_says_of_a_cancel_is_cleaned_and_what_is_no_text_is_not_told() -> None:
    def told(reason: Any) -> Any:
        text = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"reason": reason}})
        return line_of(ANSWERED, new_context(text))["data"]["stated_reason"]

    assert told("too\nslow" + "." * 500) == r"too\u000aslow" + "." * 243 + "…"
    assert told(7) is None


@covers("O-AUD-3")
@pytest.mark.parametrize("format", ["native", "ocsf", "ecs"])
def test_ids_and_tokens_that_a_host_puts_where_they_do_not_belong_are_withheld(format: str) -> None:
    """Such as the id of a task in the reason of a cancel, or as the id of a message."""
    words = f"of {TASK_ID}: " + "eyJhbGciOi.eyJzdWIi.c2lnbmVk"
    call = message_text("tools/call", name=words, arguments={words: 1}).replace(
        b'"id": 7', b'"id": "%s"' % TASK_ID.encode()
    )
    request_contexts = [
        new_context(call, agent=words, client=client_of({"name": words, "version": words}), error="-32602"),
        new_context(message_text(words)),
        new_context(orjson.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"reason": words}})),
    ]
    written = "".join(
        orjson.dumps(line_of(ANSWERED, request_context, format=format)).decode() for request_context in request_contexts
    )
    assert written.count("of [withheld]: [withheld]") >= 7
    assert TASK_ID not in written
    assert "eyJ" not in written


@pytest.mark.parametrize(
    "word", ["0f" * 16, "generate_the_quarterly_report_ok", "generateTheQuarterlyReportForUs_", f"{TASK_ID}x", "a" * 32]
)
def test_names_of_as_many_letters_as_an_id_are_told(word: str) -> None:
    assert line_of(ANSWERED, new_context(message_text("tools/call", name=word, arguments={})))["mcp"]["tool"] == word


def test_what_a_token_says_of_its_owner_is_told_though_it_looks_like_an_id() -> None:
    caller = replace(CALLER, identity=replace(IDENTITY, client_id=TASK_ID))
    assert line_of(ANSWERED, new_context(caller=caller))["actor"]["client_id"] == TASK_ID


def test_a_path_is_told_where_something_is_served_and_never_with_a_query() -> None:
    assert line_of(ANSWERED, new_context(path="/reports/mcp?access_token=x"))["http"]["path"] == "/reports/mcp"
    assert line_of(ANSWERED, new_context(path="/secret", refusal="unknown_path"))["http"]["path"] is None


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_times_are_told_in_universal_time_with_all_digits() -> None:
    there = datetime(2026, 11, 21, 2, 0, 0, tzinfo=timezone(timedelta(hours=2)))
    render = Renderer(LineOptions(), key=KEY, node="gw-1")
    assert render(internal_event("audit.gap", there))["time"] == "2026-11-21T00:00:00.000000Z"
    assert render(internal_event("audit.gap", NOW))["time"] == "2026-11-21T01:22:03.123456Z"


def test_a_limit_is_named() -> None:
    line = line_of(events.RateLimitChecked("calls", "context", "rejected"), new_context())
    assert line["limit"] == {"kind": "rate", "policy": "calls", "scope": "context"}
    line = line_of(events.CapRefused("tasks", "tenant"), new_context())
    assert line["limit"] == {"kind": "tasks", "policy": None, "scope": "tenant"}
    line = line_of(events.QueueRefused("reports", "full"), None)
    assert (line["limit"]["kind"], line["mcp"]["upstream"]) == ("queue", "reports")


def test_an_operator_is_told_by_address_path_and_status() -> None:
    line = line_of(events.OperatorRequestAnswered("POST", "/-/reload", 401, "127.0.0.1"), None)
    assert line["http"] == {
        "peer": "127.0.0.1", "request_id": None, "verb": "POST", "path": "/-/reload", "status": 401, "user_agent": None,
    }  # fmt: skip
    assert line["actor"] is None


def test_a_configuration_is_told_by_its_fingerprint() -> None:
    line = line_of(events.ConfigReloaded("invalid", 0xAB, ("a: wrong\n",) * 40), None)
    assert line["data"] == {"fingerprint": "0000000000ab", "problems": [r"a: wrong\u000a"] * 32}
    assert line["mcp"] is None


def test_a_rule_is_named_and_so_is_what_it_refused() -> None:
    line = line_of(events.AccessRefused("reports", "tasks/get", False, "no-tasks"), None)
    assert (line["data"], line["mcp"]["method"]) == ({"rule": "no-tasks"}, "tasks/get")


# --- the members of data ---------------------------------------------------------------------------------------------


_HALF = timedelta(milliseconds=500)
_ISSUER = {"issuer": "corp"}
_GATEWAY = {"version": "1.0", "fingerprint": "0000000000ff"}
_QUESTION = {"key": "input-1", "kind": "sampling"}

DATA: list[tuple[events.Event, dict[str, Any]]] = [
    (ANSWERED, {"seconds": 0.25}),
    (OF_A_BATCH, {}),
    (events.OperatorRequestAnswered("POST", "/-/reload", 200, "127.0.0.1", "ops"), {"operator": "ops"}),
    (
        events.OperatorRequestAnswered("POST", "/-/reload", 401, "127.0.0.1", left_out=7),
        {"operator": None, "left_out": 7},
    ),
    (
        events.OperatorRequestAnswered(
            "POST",
            "/api/v1/tasks/cancel",
            200,
            "127.0.0.1",
            "ops",
            details={"dry_run": False, "matched": 3, "cancelled": 2},
        ),
        {"operator": "ops", "dry_run": False, "matched": 3, "cancelled": 2},
    ),
    (events.TaskCancelRequested(of_task(), "propagated", "ops"), {"operator": "ops"}),
    (
        events.TaskCancelRequested(of_task(), "propagated", "ops", "the database is down"),
        {"operator": "ops", "stated_reason": "the database is down"},
    ),
    (FIRST_USE, _ISSUER),
    (events.TokenChecked("corp", "expired"), _ISSUER),
    (events.KeysFetched("corp", "ok", 3), {**_ISSUER, "keys": 3}),
    (events.KeysFetched("corp", "stale", 2), {**_ISSUER, "keys": 2}),
    (events.AccessRefused("reports", "tools/call", False, None), {"rule": None}),
    (events.TaskCreated(of_task(), "defaulted"), {"adjustment": "defaulted"}),
    (events.TaskDispatched(of_task(), _HALF), {"waited_seconds": 0.5}),
    (events.TaskTransitioned(DONE, TaskStatus.WORKING), {"from": "working", "to": "completed"}),
    (COMPLETED, {"age_seconds": 1.0, "result": {"bytes": 14}}),
    (events.TaskFinished(of_task(), TaskStatus.FAILED, "timeout", _HALF, None), {"age_seconds": 0.5}),
    (events.TaskFinished(of_task(), TaskStatus.CANCELLED, "client", _HALF, None), {"age_seconds": 0.5}),
    (events.TaskPurged(of_task()), {"retrieved": False}),
    (events.TaskPurged(evolve(of_task(), retrieved=True)), {"retrieved": True}),
    (events.TaskRetrieved(DONE, _HALF), {"delay_seconds": 0.5, "first": True}),
    (events.TaskRetrieved(DONE, None), {"delay_seconds": None, "first": False}),
    (events.InputRequestOpened(of_task(), "input-1", "sampling"), _QUESTION),
    (events.InputSettled(of_task(), "input-1", "sampling", "answered"), _QUESTION),
    (events.InputSettled(of_task(), "input-1", "sampling", "expired"), _QUESTION),
    (events.GatewayPhaseChanged("started", "1.0", 255), _GATEWAY),
    (events.ConfigReloaded("needs_restart", 255, (), ("store.url",)), {**_GATEWAY, "waits": ["store.url"]}),
    (events.ConfigReloaded("invalid", 255, ("a: b",)), {**_GATEWAY, "problems": ["a: b"]}),
    (events.CredentialsFetched("reports", 0.5, True), {"seconds": 0.5}),
    (events.CredentialsFetched("reports", 0.5, False), {"seconds": 0.5}),
    (events.SuspicionRaised("header_mismatch", "reports"), {}),
    (events.RateFallbackUsed("open"), {"rule": "open"}),
]


@pytest.mark.parametrize(("event", "told"), DATA, ids=lambda each: type(each).__name__)
def test_a_line_has_what_its_event_says(event: events.Event, told: dict[str, Any]) -> None:
    if isinstance(event, events.ConfigReloaded):
        told = {name: value for name, value in told.items() if name != "version"}
    assert line_of(event, new_context())["data"] == told


def test_all_that_the_catalogue_names_is_told() -> None:
    seen: dict[str, set[str]] = {}
    for event, _ in DATA:
        line = line_of(event, new_context())
        seen.setdefault(line["event"], set()).update(line["data"])
    of_requests = {"rpc.call", "rpc.request", "rpc.rejected"}
    for kind in KINDS:
        if kind.name in seen and kind.name not in of_requests:
            assert seen[kind.name] == set(kind.members) - {COUNT}
    assert [
        kind.name for kind in KINDS if {*kind.members} - {COUNT} and kind.topic != "audit" and kind.name not in seen
    ] == [
        "gateway.stopping",
        "gateway.stopped",
        "rpc.request",
        "rpc.rejected",
        "access.shadow_refused",
    ]


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/progress"])
@pytest.mark.parametrize("is_request", [True, False])
def test_why_a_host_cancels_is_told_of_that_note_alone(method: str, is_request: bool) -> None:
    text = message_text(method, reason="r")
    request_context = new_context(text if is_request else text.replace(b'"id": 7, ', b""))
    assert isinstance(request_context.message, Request) is is_request
    is_told = method == "notifications/cancelled" and not is_request
    assert ("stated_reason" in line_of(ANSWERED, request_context)["data"]) is is_told


def test_who_was_accepted_is_told_before_the_request_knows() -> None:
    assert line_of(FIRST_USE, new_context(caller=None))["actor"]["ctx"] == f"c_{CALLER.key}"
