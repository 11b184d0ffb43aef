"""When spans begin, what they are called and say, and which trace they belong to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Request
from taskgate.telemetry.opentelemetry.tracer import MAX_ARGUMENTS, OpenTelemetryTracing
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.tracing import stored_span

Ended = Callable[[], list[ReadableSpan]]
Make = Callable[..., OpenTelemetryTracing]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THEIRS = f"00-{TRACE}-{PARENT}-01"
AROUND = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def request(method: str = "tools/call", params: str = '{"name":"add","arguments":{"a":1}}') -> Request:
    message = parse(f'{{"jsonrpc":"2.0","id":"r-1","method":"{method}","params":{params}}}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def asking(meta: str) -> Request:
    return request("tools/list", f'{{"_meta":{meta}}}')


def serve(tracing: OpenTelemetryTracing, asked: Request, **more: Any) -> Any:
    said: dict[str, Any] = {"mount": "reports", "revision": "2025-11-25", "fields": ()} | more
    return tracing.start_server_span(asked, **said)


def links(span: ReadableSpan) -> list[tuple[str, str]]:
    return [(f"{each.context.trace_id:032x}", f"{each.context.span_id:016x}") for each in span.links]


def parent(span: ReadableSpan) -> tuple[str, str] | None:
    return None if span.parent is None else (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}")


@dataclass
class Caller:
    key: str
    identity: Any = None


def test_the_span_of_a_request_says_what_the_conventions_name(make: Make, ended: Ended) -> None:
    serve(make(), request()).end()
    (span,) = ended()
    assert (span.name, span.kind) == ("tools/call", SpanKind.SERVER)
    assert dict(span.attributes or {}) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "jsonrpc.request.id": "r-1",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "taskgate.upstream": "reports",
    }


def test_a_method_that_no_revision_has_names_no_span(make: Make, ended: Ended) -> None:
    """Whoever counts spans by name would count whatever a host makes up."""
    serve(make(), request("made/up"), revision="made up").end()
    (span,) = ended()
    assert (span.name, (span.attributes or {})["mcp.method.name"]) == ("_OTHER", "_OTHER")
    assert "mcp.protocol.version" not in (span.attributes or {})


def test_a_method_of_an_extension_names_a_span_while_it_is_configured(make: Make, ended: Ended) -> None:
    configured: set[str] = set()
    tracing = make(methods=lambda: configured)
    serve(tracing, request("widgets/list", "{}")).end()
    configured.add("widgets/list")
    serve(tracing, request("widgets/list", "{}")).end()
    assert [span.name for span in ended()] == ["_OTHER", "widgets/list"]


def test_it_says_whose_request_it_is_as_the_audit_log_does(make: Make, ended: Ended) -> None:
    request_context = RequestContext("v-1", "127.0.0.1", "POST", "/reports/mcp")
    request_context.caller = Caller("k3y")
    with in_request(request_context):
        serve(make(), request("tools/list", "{}")).end()
    request_context.caller = None
    with in_request(request_context):
        serve(make(), request("tools/list", "{}")).end()
    known, unknown = ended()
    assert (known.attributes or {})["taskgate.context"] == "c_k3y"
    assert (known.attributes or {})["taskgate.request.id"] == "v-1"
    assert "taskgate.context" not in (unknown.attributes or {})


# --- where it belongs ------------------------------------------------------------------------------------------------


def test_a_request_goes_on_with_the_trace_that_its_message_names(make: Make, ended: Ended) -> None:
    """SEP-414: the keys of `_meta`; what is around it, in HTTP, is pointed at."""
    asked = asking(f'{{"traceparent":"{THEIRS}","tracestate":"vendor=a"}}')
    span = serve(make(), asked, fields=[("Accept", "*/*"), ("Traceparent", AROUND), ("TE", "trailers")])
    assert (span.trace_id, span.tracestate) == (TRACE, "vendor=a")
    span.end()
    (span,) = ended()
    assert (parent(span), links(span)) == ((TRACE, PARENT), [(AROUND[3:35], AROUND[36:52])])


def test_without_one_it_goes_on_with_that_of_its_headers(make: Make, ended: Ended) -> None:
    fields = [("traceparent", AROUND), ("tracestate", "a=1"), ("Tracestate", "b=2")]
    span = serve(make(), request(), fields=fields)
    assert span.tracestate == "a=1,b=2"
    span.end()
    (span,) = ended()
    assert (parent(span), links(span)) == ((AROUND[3:35], AROUND[36:52]), [])


@pytest.mark.parametrize("wrong", ["x", "", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "é" * 600])
def test_what_is_no_place_begins_a_trace(make: Make, ended: Ended, wrong: str) -> None:
    serve(make(), asking(f'{{"traceparent":"{wrong}"}}'), fields=[("traceparent", wrong)]).end()
    (span,) = ended()
    assert (parent(span), links(span)) == (None, [])


def test_two_headers_are_none(make: Make, ended: Ended) -> None:
    serve(make(), request(), fields=[("traceparent", THEIRS), ("traceparent", AROUND)]).end()
    assert parent(ended()[0]) is None


@pytest.mark.parametrize(
    ("state", "goes_on"),
    {
        "many": (",".join(f"k{number}={'x' * 250}" for number in range(32)), True),
        "too long": (",".join(f"key{number}={'x' * 256}" for number in range(32)), False),
        "malformed": ("a", False),
    }.values(),
)
def test_a_state_goes_on_unless_it_is_malformed_or_too_long(make: Make, state: str, goes_on: bool) -> None:
    span = serve(make(), asking(f'{{"traceparent":"{THEIRS}","tracestate":"{state}"}}'))
    assert (span.trace_id, span.tracestate) == (TRACE, state if goes_on else None)


def test_a_host_that_is_not_believed_is_only_pointed_at(make: Make, ended: Ended) -> None:
    asked = asking(f'{{"traceparent":"{THEIRS}"}}')
    serve(make(trusts=False), asked, fields=[("traceparent", AROUND)]).end()
    (span,) = ended()
    assert (parent(span), links(span)) == (None, [(TRACE, PARENT), (AROUND[3:35], AROUND[36:52])])
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" != TRACE


def test_nor_does_it_decide_what_is_kept(make: Make, ended: Ended) -> None:
    span = serve(make(ratio=0.0, trusts=False), asking(f'{{"traceparent":"{THEIRS}"}}'))
    span.end()
    assert (ended(), span.is_sampled) == ([], False)


def test_a_trace_that_its_host_does_not_keep_is_not_kept(make: Make, ended: Ended) -> None:
    """But it goes on: whoever is next is told that, too."""
    span = serve(make(), asking(f'{{"traceparent":"00-{TRACE}-{PARENT}-00"}}'))
    assert span.traceparent == f"00-{TRACE}-{span.span_id}-00"
    span.set_attribute("a", 1)
    span.set_tool("add")
    span.set_task("task")
    span.add_link(AROUND)
    span.end("-32603")
    assert ended() == []


# --- calls to servers ------------------------------------------------------------------------------------------------


def test_a_call_is_the_child_of_its_request(make: Make, ended: Ended) -> None:
    tracing = make()
    around = serve(tracing, request())
    call = tracing.start_client_span("tools/call", mount="reports", tool="add", parent=around)
    assert call is not None
    call.end()
    around.end()
    inner, outer = ended()
    assert (inner.name, inner.kind) == ("tools/call add", SpanKind.CLIENT)
    assert parent(inner) == (around.trace_id, around.span_id)
    assert dict(inner.attributes or {}) == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "taskgate.upstream": "reports",
    }
    assert outer.name == "tools/call", "the tool is told by whoever knows that it is listed"


def test_the_call_of_a_task_stands_alone_and_points_at_the_request(make: Make, ended: Ended) -> None:
    tracing = make()
    around = serve(tracing, request())
    around.end()
    call = tracing.start_client_span("tools/call", mount="reports", tool=None, parent=None, link=around.traceparent)
    assert call is not None
    call.end()
    span = ended()[1]
    assert (parent(span), links(span)) == (None, [(around.trace_id, around.span_id)])
    assert call.trace_id != around.trace_id


def test_it_points_at_nothing_where_nothing_is_known(make: Make, ended: Ended) -> None:
    for link in (None, "none"):
        call = make().start_client_span("tools/call", mount="reports", tool=None, parent=None, link=link)
        assert call is not None
        call.end()
    assert [links(span) for span in ended()] == [[], []]


def test_a_place_that_was_kept_can_be_a_parent(make: Make, ended: Ended) -> None:
    call = make().start_client_span("ping", mount="reports", tool=None, parent=stored_span(THEIRS))
    assert call is not None
    call.end()
    assert parent(ended()[0]) == (TRACE, PARENT)


# --- arguments, and the end ------------------------------------------------------------------------------------------


def test_arguments_are_told_only_where_that_is_wanted(make: Make, ended: Ended) -> None:
    long = request(params=f'{{"name":"add","arguments":{{"a":"{"x" * MAX_ARGUMENTS}"}}}}')
    for asked in (request(), long, request(params='{"name":"add"}'), request("prompts/get", '{"arguments":{}}')):
        serve(make(records_arguments=True), asked).end()
    serve(make(), request()).end()
    told = [(span.attributes or {}).get("gen_ai.tool.call.arguments") for span in ended()]
    assert told == ['{"a":1}', ('{"a":"' + "x" * MAX_ARGUMENTS)[:MAX_ARGUMENTS], None, None, None]


async def test_to_close_it_finishes_what_exports(make: Make) -> None:
    done = asyncio.Event()

    async def shutdown() -> None:
        done.set()

    await make(shutdown=shutdown).close()
    assert done.is_set()


def test_nothing_is_traced_where_the_environment_turned_the_sdk_off(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    tracing = make(records_arguments=True)
    assert serve(tracing, request()) is None
    assert tracing.start_client_span("ping", mount="reports", tool=None, parent=None) is None
