"""What a host is told leads it to a token for the mount it asked, and nothing breaks out of a header."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.auth.metadata import (
    WELL_KNOWN,
    canonical_url,
    challenge,
    document_url,
    metadata_path,
    resource_document,
    root_mount,
    scope_challenge,
)

RESOURCE = "https://mcp.example.com/reports/mcp"
URL = "https://mcp.example.com/.well-known/oauth-protected-resource/reports/mcp"
IDP = "https://idp.example.com/"
scope_names = st.text(st.sampled_from([chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\']), min_size=1)
printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)


def fields(**changes: object) -> dict[str, object]:
    document = resource_document(RESOURCE, **({"authorization_servers": [IDP]} | changes))  # type: ignore[arg-type]
    read = json.loads(document)
    assert isinstance(read, dict)
    return read


def parameters(header: str) -> dict[str, str]:
    """What a reader of RFC 9110 finds in the one challenge of a header; fails on anything it does not understand."""
    scheme, _, rest = header.partition(" ")
    assert scheme == "Bearer"
    found: dict[str, str] = {}
    while rest:
        match = re.match(r'([a-z_]+)="((?:[\t !#-\[\]-~]|\\[\t -~])*)"(?:, (?=.)|$)', rest)
        assert match, rest
        assert match[1] not in found
        found[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
        rest = rest[match.end() :]
    return found


# --- the name of a mount ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("public_url", "expected"),
    [
        ("https://mcp.example.com", RESOURCE),
        ("https://mcp.example.com/", RESOURCE),
        ("HTTPS://MCP.Example.COM", RESOURCE),
        ("https://mcp.example.com:443", RESOURCE),
        ("https://mcp.example.com#part", RESOURCE),
        ("https://mcp.example.com?a=b", RESOURCE),
        ("https://user:word@mcp.example.com", RESOURCE),
        ("https://mcp.example.com:8443", "https://mcp.example.com:8443/reports/mcp"),
        ("https://mcp.example.com:80", "https://mcp.example.com:80/reports/mcp"),
        ("http://127.0.0.1:80", "http://127.0.0.1/reports/mcp"),
        ("http://127.0.0.1:443", "http://127.0.0.1:443/reports/mcp"),
        ("http://[::1]:80", "http://[::1]/reports/mcp"),
        ("http://[FE80::1]:8080", "http://[fe80::1]:8080/reports/mcp"),
        ("https://mcp.example.com/Gate/", "https://mcp.example.com/Gate/reports/mcp"),
    ],
)
def test_however_the_address_is_written_a_mount_has_one_name(public_url: str, expected: str) -> None:
    assert canonical_url(public_url, "/reports/mcp") == expected


def test_the_name_heeds_the_case_of_the_path_and_has_no_slash_at_the_end() -> None:
    assert canonical_url("https://mcp.example.com", "/Reports/") == "https://mcp.example.com/Reports"
    assert canonical_url("https://mcp.example.com/", "/") == "https://mcp.example.com"


@given(
    scheme=st.sampled_from(["http", "https", "HTTPS"]),
    host=st.sampled_from(["a.example", "A.Example", "127.0.0.1", "[::1]"]),
    port=st.sampled_from(["", ":80", ":443", ":8080"]),
    path=st.sampled_from(["", "/", "/gate"]),
    mount=st.sampled_from(["/a", "/a/mcp"]),
)
def test_a_name_is_its_own_name(scheme: str, host: str, port: str, path: str, mount: str) -> None:
    name = canonical_url(f"{scheme}://{host}{port}{path}", mount)
    assert canonical_url(name, "") == name


# --- where the document stands ----------------------------------------------------------------------------------------


def test_the_document_of_a_mount_stands_behind_the_well_known_name() -> None:
    assert metadata_path("/reports/mcp") == "/.well-known/oauth-protected-resource/reports/mcp"
    assert metadata_path("/") == WELL_KNOWN == "/.well-known/oauth-protected-resource"


def test_the_well_known_name_is_inserted_before_the_whole_path_of_the_resource() -> None:
    assert document_url(RESOURCE) == URL
    assert document_url("http://[::1]:8080/gate/a") == f"http://[::1]:8080{WELL_KNOWN}/gate/a"
    assert document_url("https://mcp.example.com") == f"https://mcp.example.com{WELL_KNOWN}"


def test_at_the_root_stands_the_document_of_the_only_mount() -> None:
    assert root_mount(["/reports/mcp"]) == "/reports/mcp"


@pytest.mark.parametrize("paths", [[], ["/a", "/b"], ["/a", "/b", "/c"]])
def test_at_the_root_stands_no_document_where_it_could_name_the_wrong_mount(paths: list[str]) -> None:
    assert root_mount(paths) is None


# --- the document -----------------------------------------------------------------------------------------------------


def test_a_document_names_the_resource_its_issuers_and_the_one_way_to_send_a_token() -> None:
    assert fields() == {
        "resource": RESOURCE,
        "authorization_servers": [IDP],
        "bearer_methods_supported": ["header"],
    }


def test_issuers_stay_in_the_operators_order() -> None:
    assert fields(authorization_servers=("https://b/", "https://a/"))["authorization_servers"] == [
        "https://b/",
        "https://a/",
    ]


def test_each_scope_is_told_once_and_offline_access_never() -> None:
    assert fields(scopes=["b", "offline_access", "a", "b"])["scopes_supported"] == ["a", "b"]
    assert "scopes_supported" not in fields(scopes=["offline_access"])


def test_documentation_is_told_where_there_is_some() -> None:
    assert fields(documentation="https://docs.example.com/")["resource_documentation"] == "https://docs.example.com/"


def test_more_fields_are_the_operators() -> None:
    extra = {"resource_name": "Berichte für alle", "dpop_bound_access_tokens_required": False}
    assert fields(extra=extra) == fields() | extra
    assert "für".encode() in resource_document(RESOURCE, authorization_servers=[IDP], extra=extra)


# --- challenges -------------------------------------------------------------------------------------------------------


def test_a_host_without_a_token_is_told_where_to_look_and_of_no_error() -> None:
    assert challenge(URL, token_sent=False) == f'Bearer resource_metadata="{URL}"'


def test_a_host_whose_token_is_not_accepted_is_told_so() -> None:
    assert challenge(URL, token_sent=True) == f'Bearer error="invalid_token", resource_metadata="{URL}"'


def test_a_challenge_names_all_scopes_at_once() -> None:
    assert parameters(challenge(URL, token_sent=False, scopes=["b", "a", "b"])) == {
        "scope": "a b",
        "resource_metadata": URL,
    }


def test_too_few_scopes_are_an_error_of_their_own() -> None:
    header = scope_challenge(URL, frozenset({"reports.admin", "reports.read"}))
    assert header == (
        f'Bearer error="insufficient_scope", scope="reports.admin reports.read", resource_metadata="{URL}"'
    )


def test_offline_access_is_asked_of_no_host() -> None:
    assert parameters(challenge(URL, token_sent=False, scopes=["offline_access"])) == {"resource_metadata": URL}
    assert parameters(scope_challenge(URL, ["offline_access", "a"]))["scope"] == "a"


def test_where_no_document_is_served_a_challenge_names_none() -> None:
    assert challenge(None, token_sent=False) == "Bearer"
    assert challenge(None, token_sent=True) == 'Bearer error="invalid_token"'
    assert scope_challenge(None, ["a"]) == 'Bearer error="insufficient_scope", scope="a"'


def test_quotation_marks_and_backslashes_of_a_url_are_escaped() -> None:
    assert challenge('https://a/"\\', token_sent=False) == 'Bearer resource_metadata="https://a/\\"\\\\"'


@given(url=printable, token_sent=st.booleans(), scopes=st.sets(scope_names))
def test_a_challenge_is_read_as_it_was_meant(url: str, token_sent: bool, scopes: set[str]) -> None:
    found = parameters(challenge(url, token_sent=token_sent, scopes=scopes))
    assert found.pop("resource_metadata") == url
    assert found.pop("error", None) == ("invalid_token" if token_sent else None)
    assert set(found.pop("scope", "").split()) == scopes - {"offline_access"}
    assert found == {}


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, 0x85, 0xE4, 0x2028, 0xD800])
def test_what_no_header_may_hold_gets_into_none(code: int) -> None:
    for url in (f"https://a/{chr(code)}", f"https://a/{chr(code)}x"):
        with pytest.raises(ValueError):
            challenge(url, token_sent=True)
        with pytest.raises(ValueError):
            scope_challenge(url, ["a"])


@pytest.mark.parametrize("scope", ["", " ", "a b", 'a"', "a\\", "a\n", "\ta", "a\x7f", "ä"])
def test_what_is_no_scope_is_told_nowhere(scope: str) -> None:
    with pytest.raises(ValueError):
        challenge(URL, token_sent=True, scopes=["ok", scope])
    with pytest.raises(ValueError):
        scope_challenge(URL, [scope])
    with pytest.raises(ValueError):
        fields(scopes=[scope])
