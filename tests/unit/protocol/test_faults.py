"""The table of errors has one row for each, in both eras."""

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from helpers.published import absent, published
from helpers.records import after, new_record
from helpers.schema import check_server_message
from taskgate import errors
from taskgate.domain.events import CancelRequested
from taskgate.domain.record import FaultReason
from taskgate.domain.versions import Era
from taskgate.protocol.faults import (
    CUT_OFF,
    TASKS_NEEDED,
    Fault,
    call_failed,
    cancelled_error,
    fault,
)

# --- legacy hosts -----------------------------------------------------------------------------------------------------


class Face(NamedTuple):
    """What a host is to see of an error."""

    status: int
    code: int
    text: str
    data: dict[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()


SUPPORTED = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
UNFORESEEN = Face(200, -32603, "Internal error", {"origin": "gateway", "reason": "internal", "dispatched": True})
AGAIN = (("Retry-After", "2"),)


def ours(reason: str, **more: Any) -> dict[str, Any]:
    return {"origin": "gateway", "reason": reason, **more}


TABLE: dict[str, tuple[Exception, Face]] = {
    "-32700, H-HTTP-7": (errors.UnparsableMessage("no"), Face(400, -32700, "no")),
    "-32600, H-HTTP-7": (errors.MalformedMessage("no", id=7), Face(400, -32600, "no")),
    "-32602, wrong parameters": (errors.InvalidParams("no"), Face(200, -32602, "no")),
    "-32601, an unknown method": (errors.UnknownMethod("no"), Face(200, -32601, "no")),
    "L-TOOL-2, L-TOOL-3, AMB-4": (errors.TaskSupportMismatch("no"), Face(200, -32601, "no")),
    "H-LEG-6, AMB-11": (errors.UnsupportedVersion("no"), Face(400, -32600, "no", {"supported": SUPPORTED})),
    "a shutdown": (
        errors.CutOff("secret"),
        Face(200, -32603, CUT_OFF, ours("shutdown", dispatched=True)),
    ),
    "V-META-1": (errors.IncompleteMeta("no"), Face(400, -32602, "no")),
    "H-MOD-1": (errors.HeaderMismatch("no"), Face(400, -32020, "no")),
    "V-META-5": (
        errors.MissingCapability({"sampling": {}}),
        Face(
            400,
            -32021,
            "The request does not declare a capability that it needs",
            {"requiredCapabilities": {"sampling": {}}},
        ),
    ),
    "V-ERA-4": (
        errors.VerbNotServed("POST"),
        Face(405, -32600, "The HTTP method does not exist in this protocol version", None, (("Allow", "POST"),)),
    ),
    "H-LEG-2": (errors.SessionRequired("no"), Face(400, -32600, "no")),
    "H-LEG-3": (errors.SessionNotFound("no"), Face(404, -32001, "no")),
    "H-LEG-12": (errors.StreamNotFound("no"), Face(400, -32600, "no")),
    "L-GET-2, AMB-17": (errors.TaskNotFound(), Face(200, -32602, "Task not found")),
    "L-CANCEL-1": (errors.TaskAlreadyFinished("no"), Face(200, -32602, "no")),
    "AMB-14, a cap": (
        errors.TooManyTasks(16),
        Face(
            200,
            429,
            "Too many unfinished tasks of this caller (limit 16): wait until one ends, or cancel one",
            ours("concurrency", limit=16, scope="context", retryAfterMs=2000),
            AGAIN,
        ),
    ),
    "a cap of many": (
        errors.TooManyTasks(5, scope="tenant"),
        Face(
            200,
            429,
            "Too many unfinished tasks of the tenant (limit 5): wait until one ends, or cancel one",
            ours("concurrency", limit=5, scope="tenant", retryAfterMs=2000),
            AGAIN,
        ),
    ),
    "bytes": (
        errors.TooManyBytes(1024, scope="global"),
        Face(
            200,
            429,
            "Stored task results of all callers exceed the limit of 1024 bytes: wait until some expire",
            ours("bytes", limit=1024, scope="global", retryAfterMs=2000),
            AGAIN,
        ),
    ),
    "a rate": (
        errors.RateLimited(timedelta(seconds=1.5), "calls"),
        Face(
            200,
            429,
            "Rate limit calls exceeded",
            ours("rate", policy="calls", retryAfterMs=1500),
            AGAIN,
        ),
    ),
    "a queue": (
        errors.QueueFull("No turn", retry_after=timedelta(seconds=10)),
        Face(200, 429, "No turn", ours("queue", retryAfterMs=10_000), (("Retry-After", "10"),)),
    ),
    "the store": (
        errors.StoreUnavailable("/var/lib/taskgate/tasks.db: disk I/O error"),
        Face(200, 503, "The task store is not available", ours("store", retryAfterMs=2000), AGAIN),
    ),
    "bytes in flight": (
        errors.TooManyBytes(1024, "Messages in flight"),
        Face(
            200,
            429,
            "Messages in flight of this caller exceed the limit of 1024 bytes: wait until some expire",
            ours("bytes", limit=1024, scope="context", retryAfterMs=2000),
            AGAIN,
        ),
    ),
    "memory": (
        errors.Overloaded(timedelta(seconds=2)),
        Face(200, 503, "The gateway is short of memory", ours("overload", retryAfterMs=2000), AGAIN),
    ),
    "a drain": (
        errors.Draining(timedelta(seconds=4, milliseconds=1)),
        Face(200, 503, "The gateway is shutting down", ours("draining", retryAfterMs=4001), (("Retry-After", "5"),)),
    ),
    "A-AUTH-10, no token": (
        errors.Unauthenticated(errors.AuthReason.MISSING),
        Face(401, -32600, "Authentication is required"),
    ),
    "A-AUTH-10, a token": (
        errors.Unauthenticated(errors.AuthReason.SIGNATURE, issuer="corp"),
        Face(401, -32600, "Authentication is required"),
    ),
    "a rule": (errors.Forbidden("no"), Face(200, 403, "no", ours("policy"))),
    "A-AUTH-7": (
        errors.InsufficientScope(frozenset({"a"})),
        Face(403, 403, "This needs a token with the scopes a", ours("insufficient_scope")),
    ),
    "the penalty box": (
        errors.Penalized(timedelta(seconds=3)),
        Face(
            200, 429, "Too many failed look-ups of tasks", ours("penalty", retryAfterMs=3000), (("Retry-After", "3"),)
        ),
    ),
    "keys that cannot be had": (
        errors.KeysUnavailable("corp"),
        Face(
            503,
            503,
            "The keys of the token's issuer are not available",
            ours("jwks_unavailable", retryAfterMs=2000),
            AGAIN,
        ),
    ),
    "an error of ours": (errors.InternalError("secret"), UNFORESEEN),
    "a move that is not allowed": (errors.IllegalTransition("secret"), UNFORESEEN),
    "an error of nobody": (ZeroDivisionError("secret"), UNFORESEEN),
}


@pytest.mark.parametrize(("error", "face"), TABLE.values(), ids=TABLE)
def test_an_error_has_the_status_code_and_data_of_its_row(error: Exception, face: Face) -> None:
    seen = fault(error)
    assert (seen.status, seen.code, seen.text, seen.data, seen.headers) == face


@pytest.mark.parametrize(("error", "face"), TABLE.values(), ids=TABLE)
@pytest.mark.parametrize("id_", [7, 0, "", 'a"é'])
def test_an_error_is_told_under_the_id_of_its_request(error: Exception, face: Face, id_: int | str) -> None:
    text = fault(error).message(id_)
    again = dict(face.headers).get("Retry-After")
    expected: dict[str, Any] = {
        "code": face.code,
        "message": face.text + (f"; try again in {again} s" if again else ""),
    }
    if face.data is not None:
        expected["data"] = face.data
    assert json.loads(text) == {"jsonrpc": "2.0", "id": id_, "error": expected}
    check_server_message(text, request_method="tools/call")


@pytest.mark.parametrize("error", [errors.UnparsableMessage("no"), errors.MalformedMessage("no")])
def test_an_error_to_no_known_request_leaves_the_id_out(error: Exception) -> None:
    # H-HTTP-7: a null id is against the schema.
    text = fault(error).message(None)
    assert "id" not in json.loads(text)
    check_server_message(text, request_method=None)


def test_an_error_to_a_message_that_was_not_read_has_a_null_id() -> None:
    message = json.loads(fault(errors.Penalized(timedelta(seconds=3))).unread_message)
    assert message["id"] is None
    assert message["error"] == json.loads(fault(errors.Penalized(timedelta(seconds=3))).message(1))["error"]


@pytest.mark.parametrize("reason", errors.UpstreamReason)
@pytest.mark.parametrize("dispatched", [True, False])
def test_a_failed_call_says_why_and_whether_it_may_have_run(reason: errors.UpstreamReason, dispatched: bool) -> None:
    seen = fault(errors.UpstreamFailed(reason, "The server is gone", dispatched=dispatched))
    ours = (errors.UpstreamReason.CALL_LOST, errors.UpstreamReason.INTERNAL)
    origin = "gateway" if reason in ours else "upstream"
    data = {"origin": origin, "reason": str(reason), "dispatched": dispatched}
    assert seen == Fault(status=200, code=-32603, text="The server is gone", data=data)
    assert seen.headers == ()
    check_server_message(seen.message(1), request_method="tools/call")


def test_a_server_that_is_left_alone_for_a_while_says_until_when() -> None:
    error = errors.UpstreamFailed(
        errors.UpstreamReason.UNREACHABLE, "The server is gone", dispatched=False, retry_after=timedelta(seconds=2.2)
    )
    data = {"origin": "upstream", "reason": "unreachable", "dispatched": False}
    seen = fault(error)
    assert (seen.status, seen.code, seen.data) == (200, -32603, {**data, "retryAfterMs": 2200})
    assert seen.headers == (("Retry-After", "3"),)
    assert json.loads(call_failed(error).error)["data"] == seen.data


@pytest.mark.parametrize(
    ("wait", "told"),
    [
        (timedelta(seconds=2.1), "; try again in 3 s"),
        (timedelta(seconds=0.2), "; try again in 1 s"),
        (None, ""),
    ],
)
def test_a_refusal_as_a_result_is_one_that_a_model_can_act_on(wait: timedelta | None, told: str) -> None:
    result = Fault(status=200, code=429, text="Rate limit exceeded", retry_after=wait).tool_result
    said = {"type": "text", "text": f"The tool was not called: Rate limit exceeded{told}."}
    assert json.loads(result) == {"content": [said], "isError": True}


def every_kind(root: type[errors.GatewayError]) -> Iterator[type[errors.GatewayError]]:
    yield root
    for kind in root.__subclasses__():
        yield from every_kind(kind)


def test_no_error_of_the_gateway_is_missing_in_the_table() -> None:
    told = {type(error) for error, _ in TABLE.values()} | {errors.UpstreamFailed}
    bases = {errors.GatewayError, errors.DownstreamError}
    ours_ = {kind for kind in every_kind(errors.GatewayError) if kind.__module__ == errors.__name__}
    assert ours_ - told == bases


def test_the_statuses_that_tear_down_hosts_are_never_used() -> None:
    # Refusals of ours inside JSON-RPC are 200, but for missing scopes. Who asks is settled before.
    # And a GET that is refused belongs to no request.
    before = (errors.Unauthenticated, errors.KeysUnavailable, errors.InsufficientScope, errors.VerbNotServed)
    assert {fault(error).status for error, _ in TABLE.values() if not isinstance(error, before)} == {200, 400, 404}


def test_what_is_told_of_unforeseen_errors_holds_none_of_their_text() -> None:
    for error in (ZeroDivisionError("secret"), errors.StoreUnavailable("secret"), errors.InternalError("secret")):
        assert "secret" not in fault(error).message(1)


@pytest.mark.parametrize(
    ("patience", "field", "milliseconds"),
    [
        (timedelta(), "0", 0),
        (timedelta(microseconds=1), "1", 1),
        (timedelta(milliseconds=1), "1", 1),
        (timedelta(seconds=1), "1", 1_000),
        (timedelta(minutes=2, microseconds=1), "121", 120_001),
    ],
)
def test_patience_is_rounded_up_lest_anybody_comes_too_early(
    patience: timedelta, field: str, milliseconds: int
) -> None:
    seen = fault(errors.Draining(patience))
    assert seen.headers == (("Retry-After", field),)
    assert seen.data is not None
    assert seen.data["retryAfterMs"] == milliseconds


def test_every_verb_that_is_served_is_told() -> None:
    assert fault(errors.VerbNotServed("POST", "GET")).headers == (("Allow", "POST, GET"),)


def test_every_refusal_has_data_of_its_own() -> None:
    first = fault(errors.Draining(timedelta(seconds=1)))
    assert fault(errors.Draining(timedelta(seconds=9))).data != first.data


# --- modern hosts -----------------------------------------------------------------------------------------------------


SCHEMA = published("2026-07-28")
NO_TASKS = "The request does not declare a capability that it needs"

MODERN_TABLE: dict[str, tuple[Exception, Fault]] = {
    "HeaderMismatchError": (errors.HeaderMismatch("no"), Fault(status=400, code=-32020, text="no")),
    "MissingRequiredClientCapabilityError": (
        errors.MissingCapability(TASKS_NEEDED),
        Fault(
            status=400,
            code=-32021,
            text=NO_TASKS,
            data={"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}},
        ),
    ),
    "UnsupportedProtocolVersionError": (
        errors.UnsupportedVersion("no", requested="2031-01-01"),
        Fault(
            status=400,
            code=-32022,
            text="no",
            data={
                "supported": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
                "requested": "2031-01-01",
            },
        ),
    ),
    "MethodNotFoundError": (errors.UnknownMethod("no"), Fault(status=404, code=-32601, text="no")),
}

THE_SAME: list[Exception] = [
    errors.UnparsableMessage("no"),
    errors.MalformedMessage("no"),
    errors.IncompleteMeta("no"),
    errors.InvalidParams("no"),
    errors.TaskNotFound(),
    errors.Forbidden("no"),
    errors.TooManyTasks(3),
    errors.StoreUnavailable("no"),
    errors.Unauthenticated(errors.AuthReason.MISSING),
    errors.InsufficientScope(frozenset({"a"})),
    errors.VerbNotServed("POST"),
    errors.UpstreamFailed(errors.UpstreamReason.CLOSED, "no", dispatched=True),
    ZeroDivisionError("secret"),
]


@pytest.mark.parametrize(("error", "face"), MODERN_TABLE.values(), ids=MODERN_TABLE)
def test_what_this_era_has_a_code_or_a_status_for_is_told_by_it(error: Exception, face: Fault) -> None:
    assert fault(error, Era.MODERN) == face


@pytest.mark.parametrize("error", THE_SAME, ids=lambda error: type(error).__name__)
def test_everything_else_looks_as_it_does_to_any_host(error: Exception) -> None:
    # AMB-9: a bare 400 might have a host of both eras fall back.
    assert fault(error, Era.MODERN) == fault(error) == fault(error, Era.LEGACY)


def test_a_tool_that_runs_only_as_a_task_is_a_matter_of_what_the_host_declares() -> None:
    # M-NEG-3: no host of this era asks for a task.
    refused = fault(errors.TaskSupportMismatch("This tool runs only as a task"), Era.MODERN)
    assert refused == fault(errors.MissingCapability(TASKS_NEEDED), Era.MODERN)


def test_a_host_of_the_other_era_is_told_only_of_its_own_revisions() -> None:
    seen = fault(errors.UnsupportedVersion("no", requested="2026-07-28"))
    assert seen.data == {"supported": ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]}


@pytest.mark.skipif(SCHEMA is None, reason=absent("2026-07-28"))
@pytest.mark.parametrize("name", MODERN_TABLE)
def test_an_error_of_this_era_is_one_by_its_schema(name: str) -> None:
    error, _ = MODERN_TABLE[name]
    message = json.loads(fault(error, Era.MODERN).message("g8"))
    assert message["id"] == "g8"
    judge("JSONRPCErrorResponse").validate(message)
    judge(name).validate(message["error"] if name == "MethodNotFoundError" else message)


@cache
def judge(name: str) -> Draft202012Validator:
    assert SCHEMA is not None
    definitions = SCHEMA["$defs"]
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", errors.UpstreamReason)
def test_a_task_whose_call_failed_keeps_what_a_plain_call_would_have_told(reason: errors.UpstreamReason) -> None:
    error = errors.UpstreamFailed(reason, "The server é gone", dispatched=True)
    ended = call_failed(error)
    assert json.loads(ended.error) == json.loads(fault(error).message(1))["error"]
    assert ended.reason is FaultReason(reason.value)
    assert ended.message == "The server é gone"


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_task_keeps_when_to_come_back_and_whether_its_call_left(dispatched: bool) -> None:
    wait = timedelta(seconds=7)
    error = errors.UpstreamFailed(errors.UpstreamReason.UNREACHABLE, "Open", dispatched=dispatched, retry_after=wait)
    ended = call_failed(error)
    # Whoever reads it later could not act on "try again in 7 s".
    now = json.loads(fault(error).message(1))["error"]
    assert json.loads(ended.error) == {**now, "message": "Open"}
    assert json.loads(ended.error)["data"]["retryAfterMs"] == 7000
    assert ended.unsent is not dispatched


def test_a_task_whose_call_may_have_run_before_says_so_though_it_was_not_sent_again() -> None:
    ended = call_failed(errors.UpstreamFailed(errors.UpstreamReason.UNREACHABLE, "x", dispatched=False), ran=True)
    assert json.loads(ended.error)["data"]["dispatched"] is True
    assert not ended.unsent


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (CancelRequested(), "Task was cancelled"),
        (CancelRequested(by="operator"), "Task was cancelled by an operator"),
        (
            CancelRequested(by="operator", reason="the database is down"),
            "Task was cancelled by an operator: the database is down",
        ),
    ],
)
def test_a_cancelled_task_has_an_error_outside_the_reserved_codes(event: CancelRequested, told: str) -> None:
    # AMB-1.
    cancelled = after(new_record(), event)
    assert json.loads(cancelled_error(cancelled)) == {"code": -32800, "message": told}
