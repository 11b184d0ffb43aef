"""Arguments and results in lines: as much as the operator wants, without what is to be taken out."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.protocol.jsonrpc import MANY_BYTES
from taskgate.telemetry.auditlog.events import UNREAD, summary_in, without_payload
from taskgate.telemetry.auditlog.formats import redaction
from taskgate.telemetry.auditlog.formats.field_redaction import REDACTED, parse_paths
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import LineOptions
from unit.telemetry.auditlog.audit_cases import (
    ANSWERED,
    CALL,
    COMPLETED,
    KEY,
    events_of,
    line_of,
    message_text,
    new_context,
)


@covers("O-AUD-3")
def test_arguments_are_told_as_the_operator_wants() -> None:
    def told(how: str) -> Any:
        return line_of(ANSWERED, new_context(), arguments=how)["args"]

    whole = told("hash")
    assert told("none") is None
    assert told("keys") == {**whole, "hmac": None}
    assert told("full") == {**whole, "values": {"city": "Oslo", "year": 2026}}


def test_the_same_arguments_have_the_same_digest_whatever_stands_around_them() -> None:
    def of(body: bytes) -> Any:
        return line_of(ANSWERED, new_context(body))["args"]["hmac"]

    other = b'{"params":' + CALL.partition(b'"params": ')[2][:-1] + b', "method": "tools/call","id":9,"jsonrpc":"2.0"}'
    assert of(other) == of(CALL)
    assert of(CALL.replace(b"2026", b"2027")) != of(CALL)


def test_arguments_in_full_are_told_without_what_is_to_be_taken_out() -> None:
    arguments = {"user": "u", "password": "p1", "deep": [{"token": {"a": "p2"}}, {"secret": "p3"}]}
    line = line_of(ANSWERED, new_context(message_text("tools/call", name="t", arguments=arguments)), arguments="full")
    assert line["args"]["values"] == {
        "user": "u", "password": "[redacted]", "deep": [{"token": "[redacted]"}, {"secret": "[redacted]"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"text":"' + "x" * 16_384 + '"}', "size"),
        ('{"text":"\\ud800"}', "unreadable"),
        ('{"a":' * 60 + "{}" + "}" * 60, None),
    ],
)
def test_arguments_that_cannot_be_told_in_full_are_left_out_with_the_reason(arguments: str, why: str | None) -> None:
    body = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}'
    told = line_of(ANSWERED, new_context(body.encode()), arguments="full")["args"]
    # Also where the message is kept as bytes.
    large = body.replace("{", f'{{"more":"{"x" * MANY_BYTES}",', 1)
    assert line_of(ANSWERED, new_context(large.encode()), arguments="full")["args"] == told
    assert (told.get("omitted"), "values" in told) == (why, why is None)
    assert told["hmac"] is not None


@pytest.mark.parametrize("arguments", ["7", "[1]", "[" + "1," * 1000 + "1]"], ids=len)
def test_arguments_that_are_no_object_have_no_keys(arguments: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"arguments":{arguments}}}}}'
    told = line_of(ANSWERED, new_context(body.encode()))
    assert (told["args"]["keys"], told["args"]["bytes"]) == (None, len(arguments))
    assert told["mcp"]["tool"] is None


def test_a_call_without_arguments_tells_none_and_of_many_keys_the_first() -> None:
    for call in (message_text("tools/call", name="t"), message_text("tools/call", name="t", arguments=None)):
        assert line_of(ANSWERED, new_context(call))["args"] is None
    many = message_text("tools/call", name="t", arguments={f"k{each}": each for each in range(50)})
    assert len(line_of(ANSWERED, new_context(many))["args"]["keys"]) == 32


@pytest.mark.parametrize(("count", "is_shown"), [(900, True), (1100, False)])
def test_arguments_of_very_many_values_are_not_searched(count: int, is_shown: bool) -> None:
    """To do that for one call may take longer than the call."""
    call = message_text("tools/call", name="t", arguments={"all": [{}] * (count // 2)})
    args = line_of(ANSWERED, new_context(call), arguments="full")["args"]
    assert ("values" in args, args.get("omitted")) == (is_shown, None if is_shown else "size")


def test_what_was_let_go_for_want_of_memory_is_said_to_be() -> None:
    [event] = events_of(ANSWERED, new_context())
    line = Renderer(LineOptions(), key=KEY, node="gw-1")(without_payload(event))
    assert line["args"] == {"keys": ["city", "year"], "bytes": None, "hmac": None, "omitted": "memory"}


def test_the_keys_of_long_arguments_are_looked_for_where_the_line_is_made() -> None:
    call = message_text("tools/call", name="t", arguments={f"k{each}": ["x" * 100] * 10 for each in range(50)})
    [event] = events_of(ANSWERED, new_context(call))
    asked = summary_in(event.origin)
    assert asked.arguments is not None
    assert asked.arguments.keys is UNREAD
    render = Renderer(LineOptions(), key=KEY, node="gw-1")
    assert render(event)["args"]["keys"] == [f"k{each}" for each in range(32)]
    assert render(without_payload(event))["args"] == {"keys": None, "bytes": None, "hmac": None, "omitted": "memory"}


def test_of_a_long_key_no_more_is_searched_for_tokens_than_could_be_shown() -> None:
    began = time.process_time()
    for size in (10_000, 40_000):
        call = message_text("tools/call", name="t", arguments={"eyJ" * size: 1, "b": ["x"] * 1000})
        [key, _] = line_of(ANSWERED, new_context(call))["args"]["keys"]
        assert key == ("eyJ" * size)[: redaction.MAX_NAME] + "…"
        [event] = events_of(ANSWERED, new_context(call))
        arguments = summary_in(event.origin).arguments
        assert arguments is not None
        assert max(map(len, arguments.first_keys(arguments.encoded()) or ())) <= 2 * redaction.MAX_NAME, (
            "words of before are remembered"
        )
        assert redaction.scrubbed("eyJ" * size) == key
    # To search all of it takes time that grows with its square.
    assert time.process_time() - began < 2


def test_results_are_told_as_the_operator_wants() -> None:
    def told(how: str) -> Any:
        return line_of(COMPLETED, None, results=how)["data"].get("result")

    assert told("none") is None
    assert told("size") == {"bytes": 14}
    assert told("hash") == {"bytes": 14, "hmac": told("hash")["hmac"]}
    assert told("hash")["hmac"].startswith("r_")
    assert "result" not in line_of(ANSWERED, new_context(result_bytes=5), results="none")["data"]


# --- paths of what is taken out --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "value", "left"),
    [
        ([], {"a": 1}, {"a": 1}),
        (["$"], {"a": 1}, REDACTED),
        (["$.a", "$"], {"a": 1}, REDACTED),
        (["$.a"], {"a": 1, "b": {"a": 2}}, {"a": REDACTED, "b": {"a": 2}}),
        (["$..a"], {"a": {"a": 1}, "b": [{"a": 2}]}, {"a": REDACTED, "b": [{"a": REDACTED}]}),
        (["$.a[1]"], {"a": [1, 2]}, {"a": [1, REDACTED]}),
        (["$.a[?@.k == 'key'].v"], {"a": [{"k": "key", "v": 1}]}, {"a": [{"k": "key", "v": REDACTED}]}),
        (["$..a", "$..b"], {"a": {"b": 1}, "b": 2}, {"a": REDACTED, "b": REDACTED}),
        (["$.a"], [1], [1]),
        (["$.a"], 7, 7),
        (["$..A"], {"a": 1}, {"a": REDACTED}),
        (
            ["$..password"],
            {"Password": 1, "x": [{"PASSWORD": 2, "password": 3}], "passwords": 4},
            {"Password": REDACTED, "x": [{"PASSWORD": REDACTED, "password": REDACTED}], "passwords": 4},
        ),
        (["$['straße']"], {"STRASSE": 1}, {"STRASSE": REDACTED}),
        (["$['a', 'b'].C"], {"A": {"c": 1}, "b": {"C": 2}}, {"A": {"c": REDACTED}, "b": {"C": REDACTED}}),
    ],
)  # fmt: skip
def test_what_a_path_finds_is_taken_out(paths: list[str], value: Any, left: Any) -> None:
    assert parse_paths(paths).apply(value) == left


@pytest.mark.parametrize("path", ["", "password", "$..", "$.a~", "$[", "$.a | $.b", "$.a["])
def test_what_is_no_path_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(ValueError, match="is not a valid JSONPath") as refused:
        parse_paths(["$.fine", path])
    assert "\n" not in str(refused.value)


def test_what_is_nested_too_deep_to_be_searched_is_refused() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested too deep"):
        parse_paths(["$..password"]).apply(deep)


@given(st.text(st.sampled_from("$.@*[]()?'\"ab0:,!<=>&|~\\ \n"), max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        redaction = parse_paths([text])
    except ValueError:
        return
    redaction.apply({"a": [{"b": 1}], "b": {"a": "x"}})
