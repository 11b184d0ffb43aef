"""How a line looks in each format: always one line, always printable."""

import io
import json
import logging
import re
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgate.auth.context import AuthContext, Identity
from taskgate.telemetry import logs
from taskgate.telemetry.request_context import RequestContext, in_request

FORMATS: list[logs.Format] = ["json", "logfmt", "console"]
NASTY = 'a\nb\r\x00\x1b[31m\u2028\u202e\x85\ud800 "q" = \\ ä'

_own = logging.getLogger("taskgate.test")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def _written(
    format: logs.Format, event: str, logger: logging.Logger = _own, *, names_callers: bool = False, **fields: Any
) -> str:
    stream = io.StringIO()
    logs.configure("debug", format, stream, names_callers=names_callers)
    try:
        logger.warning(event, extra=fields)
    finally:
        logs.unconfigure()
    text = stream.getvalue()
    assert text.endswith("\n")
    return text[:-1]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "is_json"), [(_Terminal(), False), (io.StringIO(), True)])
def test_without_a_format_a_terminal_gets_text_and_all_else_json(stream: io.StringIO, is_json: bool) -> None:
    logs.configure("debug", "auto", stream)
    try:
        _own.warning("it happened")
    finally:
        logs.unconfigure()
    assert stream.getvalue().startswith("{") is is_json


def test_a_chosen_format_holds_on_a_terminal_too() -> None:
    stream = _Terminal()
    logs.configure("debug", "logfmt", stream)
    try:
        _own.warning("it happened")
    finally:
        logs.unconfigure()
    assert stream.getvalue().startswith("time=")


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (
            "json",
            '{"time":"TIME","level":"warning","logger":"taskgate.test","event":"it happened",'
            '"upstream":"reports","empty":"","list":["a",1],"nested":{"k":true},"none":null}',
        ),
        (
            "logfmt",
            'time=TIME level=warning logger=taskgate.test event="it happened" '
            'upstream=reports empty="" list=a,1 nested="{\\"k\\": true}" none=null',
        ),
        (
            "console",
            "TIME warning  taskgate.test: it happened "
            'upstream=reports empty="" list=a,1 nested="{\\"k\\": true}" none=null',
        ),
    ],
)
def test_a_line_looks_like_this(format: logs.Format, expected: str) -> None:
    line = _written(format, "it happened", upstream="reports", empty="", list=["a", 1], nested={"k": True}, none=None)
    assert _TIME.sub("TIME", line) == expected


def test_a_console_line_without_fields_ends_with_the_event() -> None:
    assert _TIME.sub("TIME", _written("console", "it happened")) == "TIME warning  taskgate.test: it happened"


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_in_a_record_breaks_the_line(format: logs.Format) -> None:
    line = _written(format, NASTY, **{NASTY: NASTY, "list": [NASTY], "nested": {NASTY: NASTY}, "": 1})
    assert line.isprintable()


@pytest.mark.parametrize("format", FORMATS)
def test_the_name_of_a_logger_does_not_break_the_line_either(format: logs.Format) -> None:
    assert _written(format, "x", logging.getLogger(f"library {NASTY}")).isprintable()


@settings(max_examples=60)
@given(
    st.sampled_from(FORMATS),
    st.text(max_size=30),
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
)
def test_any_text_is_one_printable_line(format: logs.Format, event: str, fields: dict[str, str]) -> None:
    line = _written(format, event, **{f"f{key}": value for key, value in fields.items()})
    assert line.isprintable()


@given(st.text(max_size=30))
def test_a_json_line_gives_the_text_back(text: str) -> None:
    line = json.loads(_written("json", text, field=text))
    assert (line["event"], line["field"]) == (text, text)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("ä", "ä"),
        (1.5, "1.5"),
        (True, "true"),
    ],
)
def test_a_word_of_logfmt_is_quoted_where_it_must_be(value: Any, word: str) -> None:
    assert _written("logfmt", "x", field=value).endswith(f" field={word}")


def test_a_key_of_logfmt_is_a_plain_word() -> None:
    assert _written("logfmt", "x", **{"a b=ü": 1}).endswith(" a_b__=1")


# --- whose a line is -----------------------------------------------------------------------------------------------


class _Span:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"


def _request_context() -> RequestContext:
    request_context = RequestContext("abcdefgh-1", "192.0.2.7", "POST", "/reports/mcp")
    request_context.caller, request_context.span = AuthContext(key="5b0k"), cast("Any", _Span())
    return request_context


def test_a_line_has_the_ids_of_the_request_that_it_belongs_to() -> None:
    with in_request(_request_context()):
        line = json.loads(_written("json", "it happened", upstream="reports"))
    assert list(line.items())[3:] == [
        ("event", "it happened"),
        ("request_id", "abcdefgh-1"),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("ctx", "c_5b0k"),
        ("upstream", "reports"),
    ]


BOB = Identity(
    issuer_name="corp", issuer="https://idp.example", subject="bob", client_id="desk", tenant="acme",
    scopes=frozenset(), expires_at=None, claims={},
)  # fmt: skip


@pytest.mark.parametrize("names_callers", [True, False])
@pytest.mark.parametrize(
    ("identity", "names"),
    [
        (BOB, {"sub": "bob", "client_id": "desk", "tenant": "acme"}),
        (replace(BOB, client_id=None, tenant=None), {"sub": "bob"}),
        (None, {}),
    ],
)
def test_a_line_has_the_names_of_its_caller_if_operators_see_them(
    names_callers: bool, identity: Identity | None, names: dict[str, str]
) -> None:
    context = _request_context()
    context.caller = AuthContext(key="5b0k", identity=identity)
    with in_request(context):
        line = json.loads(_written("json", "it happened", names_callers=names_callers))
    assert line["ctx"] == "c_5b0k"
    assert {key: line[key] for key in ("sub", "client_id", "tenant") if key in line} == (names if names_callers else {})


def test_what_is_not_known_of_a_request_is_not_in_its_lines() -> None:
    with in_request(RequestContext("abcdefgh-1", "192.0.2.7", "POST", "/reports/mcp")):
        line = json.loads(_written("json", "it happened"))
    assert set(line) == {"time", "level", "logger", "event", "request_id"}
    assert set(json.loads(_written("json", "it happened"))) == {"time", "level", "logger", "event"}


def test_no_field_can_say_that_a_line_belongs_to_another_request() -> None:
    with in_request(_request_context()):
        line = json.loads(_written("json", "x", request_id="planted", ctx="planted", trace_id="planted"))
    assert (line["request_id"], line["ctx"], line["trace_id"]) == ("abcdefgh-1", "c_5b0k", _Span.trace_id)
    assert (line["request_id_"], line["ctx_"], line["trace_id_"]) == ("planted",) * 3


def test_what_libraries_report_belongs_to_no_request_of_ours() -> None:
    with in_request(_request_context()):
        line = json.loads(_written("json", "x", logging.getLogger("library")))
    assert set(line) == {"time", "level", "logger", "event"}
