"""What a host is told leads it to a token for the mount it asked, and nothing breaks out of a header."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.auth.metadata import (
    canonical_url,
    challenge,
    scope_challenge,
)

scope_names = st.text(st.sampled_from([chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\']), min_size=1)
printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)


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


# --- challenges -------------------------------------------------------------------------------------------------------


@given(url=printable, token_sent=st.booleans(), scopes=st.sets(scope_names), detail=st.none() | printable)
def test_a_challenge_is_read_as_it_was_meant(url: str, token_sent: bool, scopes: set[str], detail: str | None) -> None:
    found = parameters(challenge(url, token_sent=token_sent, scopes=scopes, detail=detail))
    assert found.pop("resource_metadata") == url
    assert found.pop("error_description", None) == detail
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
