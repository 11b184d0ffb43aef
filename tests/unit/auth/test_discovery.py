"""Where metadata are looked for, which of them are believed, and what is never asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.auth.metadata import DiscoveryRefused, is_allowed, jwks_uri

ISSUER = "https://idp.example.com/tenant"
KEYS = "https://keys.example.net/jwks.json"


def metadata(**members: object) -> bytes:
    return json.dumps({"issuer": ISSUER, "jwks_uri": KEYS} | members).encode()


@covers("T39", "A-AUTH-17")
@pytest.mark.parametrize(
    "address",
    [
        "",
        "h",
        "/p",
        "//h/p",
        "https:h/p",
        "https:///p",
        "http://h/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://127.1/",
        "http://2130706433/",
        "http://localhost.evil.example/",
        "http://127.0.0.1.evil.example/",
        "ftp://h/",
        "file:///etc/passwd",
        "data:application/json,{}",
        "javascript:1",
        "https://u@h/",
        "https://u:p@h/",
        "https://@h/",
        "https://:@h/",
        "https://127.0.0.1@h/",
        "https://h/#f",
        "https://h/#",
        "https://h:99999/",
        "https://h:x/",
        "https://[::1/",
        "https://h /",
        " https://h/",
        "https://h/\n",
        "https://h/a\tb",
        "https://h\\@evil.example/",
        "https://h/é",
        "https://é.example/",
        "https://h/\x00",
        "https://h/" + "a" * 2048,
    ],
)
def test_nothing_else_may_be_asked(address: str) -> None:
    assert not is_allowed(address)


@pytest.mark.parametrize(
    "document",
    [b"", b"<html>", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000]
    + [metadata(jwks_uri=uri) for uri in (None, 1, ["https://h/"], {})]
    + [json.dumps({"issuer": ISSUER}).encode()],
)
def test_what_is_no_metadata_is_not_believed(document: bytes) -> None:
    with pytest.raises(DiscoveryRefused) as refused:
        jwks_uri(document, ISSUER)
    assert refused.value.reason == "document"


def test_metadata_may_start_with_a_byte_order_mark() -> None:
    assert jwks_uri(b"\xef\xbb\xbf" + metadata(), ISSUER) == jwks_uri(metadata(), ISSUER)


@given(st.binary(max_size=100) | st.dictionaries(st.text(), st.text()).map(lambda value: json.dumps(value).encode()))
def test_no_document_does_more_than_to_be_refused(document: bytes) -> None:
    with pytest.raises(DiscoveryRefused):
        jwks_uri(document, ISSUER)


@given(st.text(alphabet="htps:/@#?[].%1a\\ é") | st.text().map("https://".__add__) | st.text().map("http://".__add__))
def test_every_text_may_be_asked_or_not(address: str) -> None:
    if is_allowed(address):
        assert jwks_uri(metadata(issuer="http://[::1]/", jwks_uri=address), "http://[::1]/") == address
