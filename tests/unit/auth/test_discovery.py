"""Where metadata are looked for, which of them are believed, and what is never asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.auth.metadata import DiscoveryRefused, is_allowed, is_foreign, jwks_uri, metadata_urls

ISSUER = "https://idp.example.com/tenant"
KEYS = "https://keys.example.net/jwks.json"


def metadata(**members: object) -> bytes:
    return json.dumps({"issuer": ISSUER, "jwks_uri": KEYS} | members).encode()


@pytest.mark.parametrize("issuer", ["https://h/p", "https://h/p/"])
def test_three_places_may_have_the_metadata_of_an_issuer_with_a_path(issuer: str) -> None:
    assert metadata_urls(issuer) == (
        "https://h/.well-known/oauth-authorization-server/p",
        "https://h/p/.well-known/openid-configuration",
        "https://h/.well-known/openid-configuration/p",
    )


@pytest.mark.parametrize("issuer", ["https://h:8443", "https://h:8443/"])
def test_two_places_may_have_the_metadata_of_an_issuer_without_a_path(issuer: str) -> None:
    assert metadata_urls(issuer) == (
        "https://h:8443/.well-known/oauth-authorization-server",
        "https://h:8443/.well-known/openid-configuration",
    )


def test_a_path_is_kept_as_it_is_written() -> None:
    assert metadata_urls("https://h/a%2Fb/C//d")[1] == "https://h/a%2Fb/C//d/.well-known/openid-configuration"


@pytest.mark.parametrize("issuer", ["idp", "http://h/", "https://h/?a=b", "https://h/#a", "https://u@h/", ""])
def test_an_issuer_that_is_no_address_to_ask_has_no_metadata(issuer: str) -> None:
    with pytest.raises(DiscoveryRefused) as refused:
        metadata_urls(issuer)
    assert refused.value.reason == "address"


@pytest.mark.parametrize(
    "address",
    [
        "https://h",
        "HTTPS://H/",
        "https://h:8443/p?a=b&c=%20",
        "https://10.0.0.1/",
        "https://[2001:db8::1]/",
        "https://h/p@x",
        "http://localhost/",
        "http://LOCALHOST:1/",
        "http://127.0.0.1:8080/p",
        "http://127.9.9.9/",
        "http://[::1]:80/",
    ],
)
def test_what_may_be_asked_is_https_or_on_this_machine(address: str) -> None:
    assert is_allowed(address)


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


def test_the_metadata_name_the_keys() -> None:
    assert jwks_uri(metadata(more=1), ISSUER) == KEYS


@covers("A-AUTH-17")
@pytest.mark.parametrize(
    "issuer",
    [
        "https://idp.example.com/tenant/",
        "https://idp.example.com",
        "https://IDP.example.com/tenant",
        "https://idp.example.com:443/tenant",
        "https://idp.example.com/{tenantid}",
        None,
        ["https://idp.example.com/tenant"],
    ],
)
def test_metadata_of_another_issuer_are_not_believed(issuer: object) -> None:
    with pytest.raises(DiscoveryRefused) as refused:
        jwks_uri(metadata(issuer=issuer), ISSUER)
    assert refused.value.reason == "issuer"


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


@pytest.mark.parametrize(
    "uri", ["http://h/", "file:///k", "https://u@h/", "https://h/#k", "", "/jwks.json", "http://169.254.169.254/"]
)
def test_metadata_cannot_send_us_where_nothing_may_be_asked(uri: str) -> None:
    with pytest.raises(DiscoveryRefused) as refused:
        jwks_uri(metadata(jwks_uri=uri), ISSUER)
    assert refused.value.reason == "address"


def test_an_issuer_elsewhere_cannot_send_us_to_what_listens_on_this_machine() -> None:
    uri = "http://127.0.0.1:9200/keys"
    with pytest.raises(DiscoveryRefused) as refused:
        jwks_uri(metadata(jwks_uri=uri), ISSUER)
    assert refused.value.reason == "address"
    local = "http://127.0.0.1:8080"
    assert jwks_uri(metadata(issuer=local, jwks_uri=uri), local) == uri
    assert jwks_uri(metadata(issuer=local), local) == KEYS


def test_a_refusal_repeats_nothing() -> None:
    with pytest.raises(DiscoveryRefused) as refused:
        jwks_uri(metadata(jwks_uri="http://hunter2/"), ISSUER)
    assert "hunter2" not in str(refused.value)


@given(st.binary(max_size=100) | st.dictionaries(st.text(), st.text()).map(lambda value: json.dumps(value).encode()))
def test_no_document_does_more_than_to_be_refused(document: bytes) -> None:
    with pytest.raises(DiscoveryRefused):
        jwks_uri(document, ISSUER)


@given(st.text(alphabet="htps:/@#?[].%1a\\ é") | st.text().map("https://".__add__) | st.text().map("http://".__add__))
def test_every_text_may_be_asked_or_not(address: str) -> None:
    if is_allowed(address):
        assert jwks_uri(metadata(issuer="http://[::1]/", jwks_uri=address), "http://[::1]/") == address


@covers("A-AUTH-17")
@pytest.mark.requirement("T39")
@pytest.mark.parametrize(
    "host",
    ["10.0.0.5", "169.254.169.254", "127.0.0.1", "192.168.1.1:8443", "[::1]", "[fd00::1]", "[::ffff:10.0.0.5]"],
)
def test_metadata_lead_to_no_private_address(host: str) -> None:
    with pytest.raises(DiscoveryRefused, match="address"):
        jwks_uri(metadata(jwks_uri=f"https://{host}/keys"), ISSUER)


@pytest.mark.parametrize("host", ["9.9.9.9", "[2620:fe::fe]", "keys.example.net"])
def test_metadata_may_lead_to_another_public_host(host: str) -> None:
    assert jwks_uri(metadata(jwks_uri=f"https://{host}/keys"), ISSUER) == f"https://{host}/keys"
    assert is_foreign(f"https://{host}/keys", ISSUER)


def test_an_issuers_own_host_may_be_a_private_one() -> None:
    issuer = "https://10.0.0.5/realm"
    assert jwks_uri(metadata(issuer=issuer, jwks_uri="https://10.0.0.5:8443/keys"), issuer)
    assert not is_foreign("https://10.0.0.5:8443/keys", issuer)
    assert not is_foreign("http://127.0.0.1:1/keys", "http://localhost:2")
    assert is_foreign("https://127.0.0.1/keys", issuer)
