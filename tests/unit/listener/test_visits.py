"""The account of a request: opened first, closed last, and once, whatever becomes of the request."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.host.raw import RawHost, get, post, request_head
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.listener.door import Fields
from taskgate.listener.endpoint import RequestContexts
from taskgate.listener.protocol import HostConnection, HostRequest
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.telemetry.events import HttpRefused, StreamEnded, StreamOpened
from taskgate.telemetry.request_context import RequestContext, current
from unit.listener.gate import Gate, opened

DOCUMENT = "/.well-known/oauth-protected-resource"


class Trail:
    """Has room, or has none and then gives it, or does not."""

    def __init__(self, *, is_full: bool, gives: bool = False) -> None:
        self.is_full = is_full
        self.gives = gives
        self.asked = 0

    async def room(self) -> bool:
        self.asked += 1
        await asyncio.sleep(0)
        return self.gives


class Engine:
    """An engine that remembers the visits in which it was asked, and waits for the test before it answers."""

    def __init__(self, *, streaming: bool = False, waiting: bool = False) -> None:
        self.seen: list[RequestContext | None] = []
        self.streaming = streaming
        self.go_on = asyncio.Event()
        self.left: list[RequestContext | None] = []
        self.exchanges: list[Exchange] = []
        if not waiting:
            self.go_on.set()

    async def __call__(self, exchange: Exchange) -> HttpReply:
        self.seen.append(current())
        self.exchanges.append(exchange)
        exchange.on_disconnect(lambda: self.left.append(current()))
        if self.streaming:
            exchange.stream()
        await self.go_on.wait()
        return HttpReply(body="{}")


@pytest.fixture
async def documents() -> AsyncIterator[Gate]:
    """A listener that shows a document."""
    async with opened(documents={DOCUMENT: b"{}"}) as gate:
        yield gate


async def test_the_engine_is_asked_in_the_visit_of_the_request_and_the_last_event_is_of_it() -> None:
    engine = Engine()
    async with opened(engine) as gate, gate.host() as host:
        await host.ask(post(User_Agent="host/1.0"))
        (request_context,) = engine.seen
        assert request_context is not None
        assert gate.emitted.request_contexts == [(request_context, request_context)]
        assert (request_context.route, request_context.seconds) == ("mcp", 0.0)
        assert (request_context.address, request_context.verb, request_context.path, request_context.agent) == (
            "127.0.0.1",
            "POST",
            "/mcp",
            "host/1.0",
        )
        assert (request_context.status, request_context.refusal, request_context.error, request_context.caller) == (
            200,
            None,
            None,
            None,
        )


async def test_no_two_requests_have_the_same_id_on_one_connection_or_on_others() -> None:
    async with opened() as gate:
        for _ in range(2):
            async with gate.host() as host:
                await host.ask(post())
                await host.ask(post())
        ids = [request_context.id for request_context in gate.emitted.closing()]
        assert len(set(ids)) == 4
        prefix, _, number = ids[0].partition("-")
        assert (len(prefix), prefix.isalnum(), prefix.islower(), number) == (8, True, True, "1")
        assert {each.partition("-")[0] for each in ids} == {prefix}


async def test_a_path_is_told_without_its_query_and_an_agent_only_where_there_is_one(gate: Gate) -> None:
    async with gate.host() as host:
        await host.ask(post(path="/mcp?access_token=planted"))
        await host.ask(post(path="/nowhere?a=b"))
    seen = gate.emitted.closing()
    assert [(request_context.path, request_context.agent) for request_context in seen] == [("/mcp", None), ("", None)]


@pytest.mark.parametrize("more", [{}, {"host": "elsewhere.example"}, {"Expect": "202-teapot"}])
async def test_a_path_that_leads_nowhere_is_not_told_whatever_a_request_is_refused_for(gate: Gate, more: Any) -> None:
    async with gate.host() as host:
        await host.ask(post(path="/planted", **more))
    assert [request_context.path for request_context in gate.emitted.closing()] == [""]


@pytest.mark.parametrize(
    ("sent", "status", "refusal"),
    [
        (post(host="elsewhere.example"), 421, "bad_host"),
        (post(Origin="https://elsewhere.example"), 403, "bad_origin"),
        (post(path="/nowhere"), 404, "unknown_path"),
        (post(Content_Type="text/plain"), 415, "media_type"),
        (post(Content_Length="5000"), 413, "body_too_large"),
        (request_head("PUT", "/mcp", Host="gate.example", Content_Length="0"), 405, "status_405"),
        (post(Expect="202-teapot"), 417, "status_417"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_refused_is_accounted_for_with_its_reason(
    gate: Gate, sent: bytes, status: int, refusal: str
) -> None:
    async with gate.host() as host:
        assert (await host.ask(sent)).status == status
    (request_context,) = gate.emitted.closing()
    assert (request_context.status, request_context.refusal) == (status, refusal)
    assert {each for _, each in gate.emitted.request_contexts} == {request_context}


async def test_a_body_that_is_not_taken_after_all_is_refused_in_the_same_visit(gate: Gate) -> None:
    async with gate.host() as host:
        head = post(b"", Content_Length="", Transfer_Encoding="chunked")
        assert (await host.ask(head, b"1388\r\n" + 5000 * b"x" + b"\r\n0\r\n\r\n")).status == 413
    (request_context,) = gate.emitted.closing()
    assert (request_context.status, request_context.refusal) == (413, "body_too_large")


async def test_what_is_no_request_has_a_visit_that_holds_nothing_of_it(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(b"planted\x00 nonsense\r\n\r\n")
        assert (await host.answer()).status == 400
    (request_context,) = gate.emitted.closing()
    assert (request_context.verb, request_context.path, request_context.agent, request_context.address) == (
        "_OTHER",
        "",
        None,
        "127.0.0.1",
    )
    assert (request_context.status, request_context.refusal) == (400, "status_400")


async def test_a_document_is_told_of_as_one_whatever_it_is_asked_for_by(documents: Gate) -> None:
    async with documents.host() as host:
        assert (await host.ask(get(DOCUMENT))).status == 200
        assert (await host.ask(post(path=DOCUMENT))).status == 405
    assert documents.emitted.answered() == [("prm", "GET", 200), ("prm", "POST", 405)]
    assert [request_context.refusal for request_context in documents.emitted.closing()] == [None, "status_405"]


async def test_between_two_requests_a_connection_belongs_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of a connection outlives each of its requests."""
    before, opens = list[RequestContext | None](), RequestContexts.open

    def opening(request_contexts: RequestContexts, http: HostRequest) -> tuple[RequestContext, Fields]:
        before.append(current())
        return opens(request_contexts, http)

    monkeypatch.setattr(RequestContexts, "open", opening)
    async with opened() as gate, gate.host() as host:
        for sent in (post(), post(path="/nowhere"), post()):
            await host.ask(sent)
    assert before == [None] * 3


async def test_what_is_read_after_a_pause_is_not_of_the_request_that_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large body stops the reading until somebody takes it; from then on the transport reads for others, too."""
    read_in, received = list[tuple[HostConnection, RequestContext | None]](), HostConnection.data_received

    def data_received(connection: HostConnection, data: bytes) -> None:
        read_in.append((connection, current()))
        received(connection, data)

    async def wait_for_the_pause(_: Exchange) -> None:
        await turns()
        assert gate.unread

    monkeypatch.setattr(HostConnection, "data_received", data_received)
    async with opened(max_body=2**22) as gate, gate.host() as host:
        gate.engine.turn_away = wait_for_the_pause
        assert (await host.ask(post(b'"' + 2**21 * b"x" + b'"'))).status == 200
        gate.engine.turn_away = None
        assert (await host.ask(post())).status == 200
    assert {request_context for _, request_context in read_in} == {None}


# --- ends ----------------------------------------------------------------------------------------------------------


async def test_a_host_that_leaves_is_accounted_for_once_and_what_follows_from_that_is_of_its_visit() -> None:
    engine = Engine(waiting=True)
    async with opened(engine) as gate:
        host = await RawHost.connect(gate.address)
        await host.send(post())
        await eventually(lambda: engine.seen != [])
        host.abort()
        await eventually(lambda: engine.left != [])
        assert gate.emitted.closing() == []
        engine.go_on.set()
        await eventually(lambda: gate.emitted.closing() != [])
        assert engine.left == engine.seen == gate.emitted.closing()
        await host.close()
    # No answer ever left.
    assert gate.emitted.answered() == [("mcp", "POST", 0)]
    assert gate.emitted.closing()[0].status is None


async def test_a_stream_that_its_host_left_had_begun_and_is_told_of_with_its_status() -> None:
    engine = Engine(waiting=True, streaming=True)
    async with opened(engine) as gate:
        host = await RawHost.connect(gate.address)
        await host.send(post())
        async with bounded():
            await host.head()
        host.abort()
        await eventually(lambda: engine.left != [])
        engine.go_on.set()
        await eventually(lambda: gate.emitted.closing() != [])
        await host.close()
    assert gate.emitted.answered() == [("mcp", "POST", 200)]


@pytest.mark.parametrize("streaming", [False, True], ids=["an answer", "a stream"])
async def test_what_the_end_of_the_listener_cuts_off_is_accounted_for_as_cut_off(streaming: bool) -> None:
    engine = Engine(waiting=True, streaming=streaming)
    async with opened(engine) as gate, gate.host() as host:
        await host.send(post())
        await eventually(lambda: engine.seen != [])
        await gate.close(timedelta())
        assert gate.emitted.answered() == [("mcp", "POST", 0)]
        (request_context,) = gate.emitted.closing()
        assert request_context is engine.seen[0]
        assert request_context.status is None


async def test_a_stream_that_somebody_else_begins_is_of_the_visit_of_its_request() -> None:
    """What a server says is heard by the reader of its session, and the timer for silence rings for many."""
    engine = Engine(waiting=True)
    async with opened(engine) as gate, gate.host() as host:
        await host.send(post())
        await eventually(lambda: engine.exchanges != [])
        assert current() is None
        engine.exchanges[0].stream()
        engine.go_on.set()
        async with bounded():
            await host.head()
        await eventually(lambda: StreamEnded("downstream", "response") in gate.emitted.all)
        for event in (StreamOpened("downstream", "response"), StreamEnded("downstream", "response")):
            assert [context for told, context in gate.emitted.request_contexts if told == event] == engine.seen


# --- room ----------------------------------------------------------------------------------------------------------


async def test_whoever_cannot_be_recorded_is_not_let_in_where_the_operator_wants_that() -> None:
    audit_capacity = Trail(is_full=True)
    async with opened(audit_capacity=audit_capacity) as gate, gate.host() as host:
        answer = await host.ask(post())
        assert (answer.status, json.loads(answer.body)["id"]) == (503, None)
        text = "The audit log has no room for the request"
        data = {"origin": "gateway", "reason": "audit"}
        assert json.loads(answer.body)["error"] == {"code": 503, "message": text, "data": data}
        assert gate.engine.seen == []
        assert gate.emitted.all[0] == HttpRefused("audit")
        assert gate.emitted.closing()[0].refusal == "audit"
        # It is about now, and not about the host.
        audit_capacity.is_full = False
        assert (await host.ask(post())).status == 200
        assert audit_capacity.asked == 1


async def test_doubtful_framing_ends_the_connection_where_there_is_no_room_either() -> None:
    async with opened(audit_capacity=Trail(is_full=True)) as gate, gate.host() as host:
        await host.send(post("1\r\nz\r\n0\r\n\r\n", Content_Length="", Transfer_Encoding="gzip, chunked") + post())
        assert (await host.answer()).status == 501
        assert await host.at_end()
        assert gate.engine.seen == []


async def test_who_waited_for_room_goes_on_as_if_there_had_been_some() -> None:
    audit_capacity = Trail(is_full=True, gives=True)
    async with opened(audit_capacity=audit_capacity) as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
    assert audit_capacity.asked == 1


async def test_room_is_not_waited_for_where_there_is_some() -> None:
    audit_capacity = Trail(is_full=False)
    async with opened(audit_capacity=audit_capacity) as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
    assert audit_capacity.asked == 0


# --- what is being answered ----------------------------------------------------------------------------------------


async def test_how_many_are_being_answered_is_told_by_route() -> None:
    engine = Engine(waiting=True)
    async with opened(engine) as gate, gate.host() as host, gate.host() as other:
        assert gate.listener.active() == {("mcp",): 0, ("prm",): 0, ("other",): 0}
        await host.send(post())
        await other.send(post())
        await eventually(lambda: gate.listener.active()["mcp",] == 2)
        engine.go_on.set()
        await host.answer()
        await other.answer()
        await host.ask(post(path="/nowhere"))
        await eventually(lambda: sum(gate.listener.active().values()) == 0)
