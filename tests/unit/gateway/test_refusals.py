"""Replies to requests that end in an error: with and without a request id, and in the configured form."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.schema import check_server_message
from taskgate import errors
from taskgate.admission.rates import RateLimitExceeded
from taskgate.admission.rules import RejectAs
from taskgate.domain.versions import Era
from taskgate.errors import AuthReason, Unauthenticated
from taskgate.gateway.refusals import RejectionRenderer, refusal, refused_for
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Message, Request
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.streams.exchange import HttpReply
from unit.admission.live_rules import live
from unit.admission.test_callers import MOUNT

METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/reports/mcp"
TOLD = replace(MOUNT, metadata=METADATA, scopes=("b", "a", "offline_access"))
REQUEST = parse(b'{"jsonrpc":"2.0","id":"q","method":"ping"}', max_depth=8)
CALL = parse(b'{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"build"}}', max_depth=8)
NOTE = parse(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', max_depth=8)


@pytest.mark.parametrize("reason", AuthReason)
def test_before_the_signature_is_verified_the_answer_is_the_same_whatever_is_wrong(reason: AuthReason) -> None:
    reply, code = refusal(Unauthenticated(reason, issuer="corp"), TOLD, None)
    error = "" if reason is AuthReason.MISSING else 'error="invalid_token", '
    assert (reply.status, code) == (401, -32600)
    assert json.loads(reply.body or "") == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32600, "message": "Authentication is required"},
    }
    assert reply.headers == (("WWW-Authenticate", f'Bearer {error}scope="a b", resource_metadata="{METADATA}"'),)


def test_after_the_signature_a_challenge_says_why_behind_what_hosts_look_for() -> None:
    refused = Unauthenticated(AuthReason.EXPIRED, issuer="corp", detail="the token expired 10 s ago")
    reply, code = refusal(refused, TOLD, None)
    assert (reply.status, code) == (401, -32600)
    assert json.loads(reply.body or "")["error"]["message"] == "The token is not accepted: the token expired 10 s ago"
    known = f'Bearer error="invalid_token", scope="a b", resource_metadata="{METADATA}"'
    assert reply.headers == (("WWW-Authenticate", f'{known}, error_description="the token expired 10 s ago"'),)


def test_without_a_document_and_scopes_a_challenge_names_neither() -> None:
    assert refusal(Unauthenticated(AuthReason.MISSING), MOUNT, None)[0].headers == (("WWW-Authenticate", "Bearer"),)
    assert refusal(Unauthenticated(AuthReason.EXPIRED), MOUNT, None)[0].headers == (
        ("WWW-Authenticate", 'Bearer error="invalid_token"'),
    )


def test_too_few_scopes_are_403_with_all_that_are_needed_and_a_body_with_the_id() -> None:
    reply, code = refusal(errors.InsufficientScope(frozenset({"read", "admin"})), TOLD, REQUEST)
    assert (reply.status, code) == (403, 403)
    assert reply.headers == (
        ("WWW-Authenticate", f'Bearer error="insufficient_scope", scope="admin read", resource_metadata="{METADATA}"'),
    )
    assert json.loads(reply.body or "") == {
        "jsonrpc": "2.0",
        "id": "q",
        "error": {
            "code": 403,
            "message": "This needs a token with the scopes admin read",
            "data": {"origin": "gateway", "reason": "insufficient_scope"},
        },
    }


def test_a_refusal_by_policy_is_an_answer_like_any_other_and_no_challenge() -> None:
    reply, code = refusal(errors.Forbidden("Not allowed"), TOLD, REQUEST)
    assert (reply.status, code, reply.headers) == (200, 403, ())
    assert json.loads(reply.body or "")["error"]["data"] == {"origin": "gateway", "reason": "policy"}


@pytest.mark.parametrize("message", [REQUEST, NOTE, None], ids=["request", "notification", "unread"])
def test_keys_that_cannot_be_had_are_503_whatever_was_asked_and_never_401(message: Message | None) -> None:
    reply, code = refusal(errors.KeysUnavailable("corp"), TOLD, message)
    assert (reply.status, code, reply.headers) == (503, 503, (("Retry-After", "2"),))
    assert "corp" not in (reply.body or "")


WITHOUT_READER: list[tuple[Exception, int]] = [
    (errors.Draining(timedelta(seconds=3)), 503),
    (errors.StoreUnavailable("It is full"), 503),
    (errors.SessionNotFound("gone"), 404),
    (errors.InvalidParams("no"), 400),
    (RuntimeError("planted"), 400),
]


@pytest.mark.parametrize(("error", "status"), WITHOUT_READER, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("message", [NOTE, None], ids=["notification", "unread"])
def test_without_a_request_the_status_says_it(error: Exception, status: int, message: Message | None) -> None:
    reply, _ = refusal(error, TOLD, message)
    assert reply.status == status
    assert json.loads(reply.body or "").get("id", "none") == ("none" if message is NOTE else None)
    assert "planted" not in (reply.body or "")


OVER_LIMITS: list[errors.DownstreamError] = [
    errors.RateLimited(timedelta(seconds=2.1), "calls"),
    errors.TooManyTasks(1),
    errors.TooManyBytes(1),
    errors.QueueFull("No turn", retry_after=timedelta(seconds=2.1)),
    errors.Penalized(timedelta(seconds=2.1)),
]
over_limits = pytest.mark.parametrize("error", OVER_LIMITS, ids=lambda error: error.reason)


@over_limits
@pytest.mark.parametrize("message", [NOTE, None], ids=["notification", "unread"])
def test_a_limit_says_by_the_status_too_what_it_is_where_no_request_is(
    error: errors.DownstreamError, message: Message | None
) -> None:
    reply, code = refusal(error, TOLD, message)
    assert (reply.status, json.loads(reply.body or "")["error"]["code"], code) == (429, 429, 429)
    assert [name for name, _ in reply.headers] == ["Retry-After"]


@pytest.mark.parametrize("message", [CALL, NOTE, None], ids=["request", "notification", "unread"])
def test_a_rate_tells_what_is_left_where_that_is_told(message: Message | None) -> None:
    error = RateLimitExceeded(timedelta(seconds=3), "calls", (("RateLimit", '"calls";r=0;t=3'),))
    reply, _ = refusal(error, TOLD, message)
    assert reply.headers == (("Retry-After", "3"), ("RateLimit", '"calls";r=0;t=3'))


def test_a_malformed_message_is_answered_under_the_id_that_could_be_read() -> None:
    reply, code = refusal(errors.MalformedMessage("no", id=7), TOLD, None)
    assert (reply.status, code, json.loads(reply.body or "")["id"]) == (400, -32600, 7)


def test_who_is_to_wait_is_told_how_long_with_and_without_a_request() -> None:
    for message in (REQUEST, None):
        reply, _ = refusal(errors.Penalized(timedelta(seconds=2.1)), TOLD, message)
        assert reply.headers == (("Retry-After", "3"),)
        assert reply.status == (429 if message is None else 200)


# --- what operators are told ------------------------------------------------------------------------------------------

REFUSED = {
    "bad_json": errors.UnparsableMessage("x"),
    "bad_message": errors.MalformedMessage("x"),
    "bad_params": errors.InvalidParams("x"),
    "bad_meta": errors.IncompleteMeta("x"),
    "header_mismatch": errors.HeaderMismatch("x"),
    "missing_capability": errors.MissingCapability({}),
    "unknown_method": errors.UnknownMethod("x"),
    "task_support": errors.TaskSupportMismatch("x"),
    "bad_version": errors.UnsupportedVersion("x"),
    "bad_verb": errors.VerbNotServed("POST"),
    "no_session": errors.SessionRequired("x"),
    "session_not_found": errors.SessionNotFound("x"),
    "stream_not_found": errors.StreamNotFound("x"),
    "task_not_found": errors.TaskNotFound(),
    "unauthenticated": Unauthenticated(AuthReason.EXPIRED),
    "policy": errors.Forbidden("x"),
    "insufficient_scope": errors.InsufficientScope(frozenset({"a"})),
    "penalty": errors.Penalized(timedelta(seconds=1)),
    "concurrency": errors.TooManyTasks(1),
    "bytes": errors.TooManyBytes(1),
    "rate": errors.RateLimited(timedelta(seconds=1), "p"),
    "queue": errors.QueueFull("x", retry_after=timedelta(seconds=1)),
    "jwks_unavailable": errors.KeysUnavailable("corp"),
    "draining": errors.Draining(timedelta(seconds=1)),
    "overload": errors.Overloaded(timedelta(seconds=1)),
}
LET_IN = [
    errors.TaskAlreadyFinished("x"),
    errors.UpstreamFailed(errors.UpstreamReason.TIMEOUT, "x", dispatched=True),
    errors.StoreUnavailable("x"),
    errors.CutOff("x"),
    ValueError("x"),
]


@pytest.mark.parametrize("error", REFUSED.values(), ids=REFUSED)
def test_what_is_not_let_do_what_it_asks_was_refused_and_why(error: Exception) -> None:
    assert refused_for(error) == next(reason for reason, each in REFUSED.items() if each is error)


@pytest.mark.parametrize("error", LET_IN, ids=lambda error: type(error).__name__)
def test_what_was_let_in_and_then_failed_was_not_refused(error: Exception) -> None:
    assert refused_for(error) is None


def test_the_table_has_every_error_that_can_be_met() -> None:
    def kinds(of: type[Exception]) -> set[type[Exception]]:
        return {of} | {each for below in of.__subclasses__() for each in kinds(below)}

    grouping = {errors.GatewayError, errors.DownstreamError, errors.InternalError, errors.IllegalTransition}
    told = {type(error) for error in (*REFUSED.values(), *LET_IN)} - {ValueError}
    ours = {each for each in kinds(errors.GatewayError) if each.__module__ == errors.__name__}
    assert ours - grouping - told == set()


# --- the refusals of limits -------------------------------------------------------------------------------------------

WAIT = timedelta(seconds=2.1)
OVER_LIMITS: list[errors.DownstreamError] = [
    errors.RateLimited(WAIT, "calls"),
    errors.TooManyTasks(1),
    errors.TooManyBytes(1),
    errors.QueueFull("No turn", retry_after=WAIT),
    errors.Penalized(WAIT),
]
over_limits = pytest.mark.parametrize("error", OVER_LIMITS, ids=lambda error: error.reason)


def request(method: str = "tools/call", params: str = '{"name":"build"}') -> Request:
    text = f'{{"jsonrpc":"2.0","id":"c","method":"{method}","params":{params}}}'
    message = parse(text.encode(), max_depth=8)
    assert isinstance(message, Request)
    return message


def told(error: Exception, message: Request, era: Era, reject_as: RejectAs) -> tuple[HttpReply, HttpReply]:
    """What is told usually, and what is told by these rules."""
    (usual, _), (reply, _) = refusal(error, MOUNT, message, era), refusal(error, MOUNT, message, era)
    RejectionRenderer(live(reject_as=reject_as), ModernDownstream("0")).render(reply, error, message, era)
    return usual, reply


@over_limits
@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("method", ["ping", "tools/call"])
def test_it_may_have_the_status_of_http(error: errors.DownstreamError, era: Era, method: str) -> None:
    usual, reply = told(error, request(method), era, RejectAs.HTTP)
    assert (usual.status, reply.status) == (200, 429)
    assert (reply.body, reply.headers) == (usual.body, usual.headers)


@over_limits
def test_it_may_be_a_result_of_the_tool(error: errors.DownstreamError) -> None:
    usual, reply = told(error, request(), Era.LEGACY, RejectAs.TOOL_ERROR)
    assert reply.body is not None
    result = json.loads(reply.body)["result"]
    assert set(result) == {"content", "isError"}
    assert result["content"][0]["text"].startswith(f"The tool was not called: {error}; try again in ")
    assert (reply.status, reply.headers) == (200, usual.headers)
    check_server_message(reply.body, request_method="tools/call")


@over_limits
def test_in_the_modern_era_it_says_who_answers_and_that_it_is_complete(error: errors.DownstreamError) -> None:
    _, reply = told(error, request(), Era.MODERN, RejectAs.TOOL_ERROR)
    message = json.loads(reply.body or "")
    assert (message["id"], message["result"]["isError"], message["result"]["resultType"]) == ("c", True, "complete")
    assert message["result"]["_meta"] == {
        "io.modelcontextprotocol/serverInfo": {"name": "taskgate", "version": "0"},
    }
    usual = json.loads(told(error, request(), Era.LEGACY, RejectAs.TOOL_ERROR)[1].body or "")
    assert message["result"]["content"] == usual["result"]["content"]


def test_what_calls_no_tool_or_asks_for_a_task_has_no_result_of_a_tool() -> None:
    error, as_task = errors.TooManyTasks(1), request(params='{"name":"build","task":{}}')
    for message, era in (
        (request("prompts/get"), Era.MODERN),
        (request("ping"), Era.LEGACY),
        (as_task, Era.LEGACY),
    ):
        usual, reply = told(error, message, era, RejectAs.TOOL_ERROR)
        assert reply == usual
    # A host of the modern era asks for no task, whatever it writes.
    assert "isError" in (told(error, as_task, Era.MODERN, RejectAs.TOOL_ERROR)[1].body or "")


@over_limits
@pytest.mark.parametrize("era", Era)
def test_it_is_an_error_unless_the_operator_says_otherwise(error: errors.DownstreamError, era: Era) -> None:
    usual, reply = told(error, request(), era, RejectAs.JSONRPC)
    assert reply == usual
    assert json.loads(reply.body or "")["error"]["code"] == 429
