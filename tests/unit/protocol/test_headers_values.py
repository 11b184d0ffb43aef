"""A value of a header is sent as it is, or in one encoding, and what is encoded badly is none."""

from base64 import b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requirements import covers
from taskgate.protocol.headers import (
    decode_value,
    encode_value,
    is_plain,
)

ENCODED = {
    "us-west1": "us-west1",
    "a b": "a b",
    "": "",
    "Hello, 世界": "=?base64?SGVsbG8sIOS4lueVjA==?=",
    " padded ": "=?base64?IHBhZGRlZCA=?=",
    "a\tb": "=?base64?YQli?=",
    "line1\nline2": "=?base64?bGluZTEKbGluZTI=?=",
    "\x7f": "=?base64?fw==?=",
    "=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
    "=?base64?=": "=?base64?PT9iYXNlNjQ/PQ==?=",
    "=?base64?open": "=?base64?open",
    "closed?=": "closed?=",
    "=?BASE64?literal?=": "=?BASE64?literal?=",
}


@pytest.mark.parametrize(("text", "sent"), ENCODED.items(), ids=repr)
def test_a_text_is_sent_as_it_is_where_that_is_safe_and_says_nothing_else(text: str, sent: str) -> None:
    # H-MOD-3.
    assert encode_value(text) == sent
    assert decode_value(sent) == text


@pytest.mark.parametrize(("value", "sent"), [(42, "42"), (-7, "-7"), (0, "0"), (True, "true"), (False, "false")])
def test_numbers_and_truth_are_sent_as_json_writes_them(value: int, sent: str) -> None:
    assert encode_value(value) == sent


@given(st.text())
@example("=?base64??=")
@example("=?base64?=?=")
def test_what_was_encoded_is_read_again_and_safe_on_the_way(text: str) -> None:
    sent = encode_value(text)
    assert sent.isascii()
    assert sent.isprintable()
    assert sent == sent.strip()
    assert decode_value(sent) == text


@covers("T29")
@given(st.one_of(st.text(), st.text("ABQRZgw+/=\n é", max_size=12).map(lambda inner: f"=?base64?{inner}?=")))
def test_a_value_is_refused_or_means_itself_or_is_the_one_base64_of_what_it_means(sent: str) -> None:
    try:
        text = decode_value(sent)
    except ValueError:
        return
    assert sent.isascii()
    assert sent in (text, f"=?base64?{b64encode(text.encode()).decode()}?=")


@pytest.mark.parametrize(
    "sent",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVsbG8=\n?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVsbG9=?=",
        "=?base64?SGVsbG8=SGVsbG8=?=",
        "=?base64?_-__?=",
        "=?base64?世?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "é",
        "\udce9",
        "a\nb",
        "\x00",
        "\x7f",
        " a",
        "a\t",
        "a\n",
    ],
    ids=repr,
)
def test_what_is_encoded_badly_or_should_have_been_is_no_value(sent: str) -> None:
    with pytest.raises(ValueError):
        decode_value(sent)


@pytest.mark.parametrize(
    "sent", ["=?base64?SGVsbG8=", "SGVsbG8=?=", "=?Base64?SGVsbG8=?=", "?base64?SGVsbG8=?=", "a\tb"]
)
def test_what_lacks_a_mark_is_meant_as_it_is(sent: str) -> None:
    assert decode_value(sent) == sent


def test_a_text_that_no_encoding_could_write_is_not_encoded() -> None:
    with pytest.raises(ValueError):
        encode_value("\ud800")


@pytest.mark.parametrize(
    ("value", "plain"),
    [("", True), ("a", True), ("a\tb c", True), ("=?base64?", True), (" a", False), ("é", False), ("a\r\nb", False)],
)
def test_a_value_can_be_sent_as_it_is_where_it_is_plain(value: str, plain: bool) -> None:
    assert is_plain(value) is plain
