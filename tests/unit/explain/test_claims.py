"""`taskgate explain --claims`: what applies to a caller without its token."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from taskgate.config import load
from taskgate.explain.inputs import identify
from unit.explain.explain_command import ISSUER, run, token

CALL = ("--upstream", "reports", "--tool", "delete_report")
PAIRS = "sub=alice, org=gold,client_id=desk,scope=reports.admin"


def explained(known: Path, *arguments: str | Path) -> dict[str, Any]:
    status, out, err = run("--config", known, *CALL, "--json", *arguments)
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    "claims",
    [
        PAIRS,
        f"{PAIRS},iss=corp",
        f"{PAIRS},iss={ISSUER}",
        json.dumps({"sub": "alice", "org": "gold", "client_id": "desk", "scope": ["reports.admin"]}),
    ],
)
def test_claims_explain_what_a_token_with_them_explains(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey, claims: str
) -> None:
    assert explained(known, "--claims", claims) == explained(known, "--token", token(tmp_path, key))


def test_a_client_may_be_left_out(known: Path) -> None:
    caller = explained(known, "--claims", "sub=bob,org=gold")["caller"]
    assert {key: caller[key] for key in ("subject", "client", "tenant", "scopes")} == {
        "subject": "bob",
        "client": None,
        "tenant": "gold",
        "scopes": [],
    }


async def test_rules_see_the_claims_of_a_token_but_for_the_client_that_is_left_out(known: Path) -> None:
    found = await identify(load(known, {}), "reports", None, {"sub": "bob", "org": "gold", "iss": "corp"})
    assert found is not None
    assert (found.claims["iss"], found.claims["sub"], found.client_id) == (ISSUER, "bob", None)
    assert {"aud", "exp", "iat"} <= found.claims.keys()
    assert "explain" not in found.claims.values()


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ("org=gold", "(claim): the token has no sub"),
        ("sub=bob", "(claim): no tenant is named by org"),
        ("sub=bob,org=gold,iss=other", "the claim iss must name one of the issuers: corp"),
        ("sub=bob,org=gold,aud=elsewhere", "(audience): aud is elsewhere"),
        ('{"sub":"bob","org":"gold","exp":1}', "(expired): the token expired"),
        ('{"sub":"bob","org":"gold","client_id":7}', "(claim): no client is named by"),
    ],
)
def test_claims_that_no_good_token_has_are_refused_with_the_reason(known: Path, claims: str, words: str) -> None:
    status, out, err = run("--config", known, *CALL, "--claims", claims)
    assert (status, out) == (1, "")
    assert words in err


@pytest.mark.parametrize("claims", ["", "bob", "=bob", "sub=bob,", "{", '{"a":', "{" * 5000, "[]"])
def test_a_text_that_is_no_claims_is_wrong_use(known: Path, claims: str) -> None:
    status, _, err = run("--config", known, *CALL, "--claims", claims)
    assert status == 2
    assert "--claims must be NAME=VALUE, with commas between several, or a JSON object" in err


def test_a_name_twice_is_wrong_use(known: Path) -> None:
    status, _, err = run("--config", known, *CALL, "--claims", "sub=bob,sub=amy")
    assert status == 2
    assert "--claims has one name twice" in err


def test_callers_with_api_keys_have_no_claims(tmp_path: Path) -> None:
    key = "{ci: {hash: 'sha256:" + "0" * 64 + "', subject: ci}}"
    file = tmp_path / "keys.yaml"
    file.write_text(
        f"version: 1\nauth: {{mode: required, api_keys: {key}}}\n"
        "upstreams: {reports: {path: /reports/mcp, url: 'http://127.0.0.1:1/mcp'}}\n"
    )
    status, _, err = run("--config", file, *CALL, "--claims", "sub=ci")
    assert status == 1
    assert "all callers have API keys: give the key by --token" in err


def test_claims_and_a_token_are_wrong_use(known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    status, _, err = run("--config", known, *CALL, "--claims", PAIRS, "--token", token(tmp_path, key))
    assert status == 2
    assert "--claims must not be given with --token" in err


def test_without_authentication_claims_are_ignored_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "open.yaml"
    file.write_text(
        "version: 1\nauth: {mode: none}\nupstreams: {reports: {path: /reports/mcp, url: 'http://127.0.0.1:1/mcp'}}\n"
    )
    status, out, err = run("--config", file, *CALL, "--json", "--claims", "sub=bob")
    assert (status, json.loads(out)["caller"]["anonymous"]) == (0, True)
    assert err == "taskgate: --claims is ignored: auth.mode is none, so all hosts are one caller\n"
