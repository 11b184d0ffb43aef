"""What `taskgate token inspect` says of a token."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from jwt import encode
from jwt.algorithms import ECAlgorithm

from taskgate.cli import main

ISSUER, AUDIENCE = "https://idp.example.com/", "https://mcp.example.com/reports/mcp"


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def file(tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """A file with one issuer, whose key is beside it."""
    public: Any = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k", "alg": "ES256", "use": "sig"}]}))
    issuer = f"{{issuer: '{ISSUER}', jwks_file: keys.json, claims: {{tenant: org}}, max_token_age: 1h}}"
    file = tmp_path / "taskgate.yaml"
    file.write_text(
        f"version: 1\nserver: {{public_url: 'https://mcp.example.com'}}\n"
        f"auth: {{mode: required, issuers: {{corp: {issuer}}}}}\n"
        "upstreams: {reports: {path: /reports/mcp, url: 'http://127.0.0.1:9/mcp'}}\n"
    )
    return file


def token(
    folder: Path,
    key: ec.EllipticCurvePrivateKey,
    claims: Mapping[str, Any] | None = None,
    header: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Path:
    """A file with a signed token; times are seconds from now."""
    now = int(datetime.now(UTC).timestamp())
    usual = {"iss": ISSUER, "sub": "alice", "aud": AUDIENCE, "iat": 0, "exp": 300}
    usual |= {"client_id": "desk", "scope": "read write", "org": "gold", **(claims or {})}
    sent = {name: value for name, value in usual.items() if name not in without}
    sent |= {name: now + value for name, value in sent.items() if name in ("iat", "exp", "nbf")}
    place = folder / "token"
    place.write_text(encode(sent, key, algorithm="ES256", headers={"kid": "k", **(header or {})}) + "\n")
    place.chmod(0o600)
    return place


def inspect(file: Path, place: Path, *options: str) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["token", "inspect", "--config", str(file), "--token", str(place), *options])
    return ended.exit_code, ended.stdout


def test_a_good_token_passes_each_check_and_names_its_caller(
    file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    status, out = inspect(file, token(tmp_path, key))
    lines = out.splitlines()
    assert (status, lines[-1]) == (0, "verdict    accepted")
    names = ["form", "iss", "keys", "alg", "typ", "kid", "signature", "aud", "sub", "exp", "nbf", "iat", "required"]
    assert [line.split()[0] for line in lines[:-1]] == [*names, "kind", "client", "scopes", "tenant", "caller"]
    assert all(line.split()[1] == "ok" for line in lines[:-1])
    assert "found alice of corp, client_id desk, tenant gold, scopes read write" in lines[-2]
    assert f"aud        ok       expected {AUDIENCE}; found {AUDIENCE}" in lines


REFUSED: dict[str, tuple[dict[str, Any], str, list[str], str]] = {
    "aud": ({"claims": {"aud": "https://other"}}, "audience", ["aud"], "found https://other"),
    "sub": ({"claims": {"sub": ""}}, "claim", ["sub"], 'found ""'),
    "exp": ({"claims": {"exp": -60}}, "expired", ["exp"], "expected after "),
    "nbf": ({"claims": {"nbf": 600}}, "not_yet_valid", ["nbf"], "expected none, or before "),
    "iat": ({"claims": {"iat": 600}}, "not_yet_valid", ["iat"], "expected before "),
    "age": ({"claims": {"iat": -7200}}, "expired", ["iat"], "at most 1h ago"),
    "kind": ({"claims": {"nonce": "n"}}, "claim", ["kind"], "found claims nonce client_id scope"),
    "ID token": ({"claims": {"typ": "ID"}}, "claim", ["kind"], "found claims typ client_id scope"),
    "client": ({"without": ("client_id",)}, "claim", ["client"], "found none"),
    "scopes": ({"claims": {"scope": 7}}, "claim", ["scopes"], "found scope 7"),
    "tenant": ({"without": ("org",)}, "claim", ["tenant"], "expected a name in org; found none"),
    "typ": ({"header": {"typ": "dpop+jwt"}}, "typ", ["typ"], "found dpop+jwt"),
    "kid": ({"header": {"kid": "other"}}, "unknown_kid", ["kid"], "found other"),
    "iss": ({"claims": {"iss": "https://idp.example.com"}}, "issuer", ["iss"], f"expected {ISSUER}; found"),
    "two": ({"claims": {"aud": "https://other", "exp": -60}}, "audience", ["aud", "exp"], "found https://other"),
}


@pytest.mark.parametrize(("changes", "reason", "rows", "text"), REFUSED.values(), ids=REFUSED)
def test_each_check_that_refuses_is_told_with_what_was_expected_and_found(
    file: Path,
    tmp_path: Path,
    key: ec.EllipticCurvePrivateKey,
    changes: dict[str, Any],
    reason: str,
    rows: list[str],
    text: str,
) -> None:
    status, out = inspect(file, token(tmp_path, key, **changes))
    lines = out.splitlines()
    assert (status, lines[-1]) == (1, f"verdict    refused ({reason})")
    refused = [line for line in lines if line.split()[1] == "REFUSED"]
    assert [line.split()[0] for line in refused] == rows
    assert text in refused[0]


def test_a_missing_claim_is_named(file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    status, out = inspect(file, token(tmp_path, key, without=("iat",)))
    assert (status, "found without iat" in out) == (1, True)


def test_a_wrong_signature_is_told_and_neither_it_nor_the_token_is_printed(
    file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    for signer, status in ((key, 0), (ec.generate_private_key(ec.SECP256R1()), 1)):
        place = token(tmp_path, signer)
        for options in ((), ("--json",)):
            ended, out = inspect(file, place, *options)
            assert ended == status
            assert not any(part in out for part in place.read_text().strip().split("."))
    report = json.loads(out)
    assert (report["accepted"], report["reason"]) == (False, "signature")
    assert [each["name"] for each in report["checks"] if each["passed"] is False] == ["signature"]


def test_a_token_that_every_user_of_the_machine_may_read_is_not_used(
    file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    place = token(tmp_path, key)
    place.chmod(0o644)
    for command in (["token", "inspect"], ["explain", "--upstream", "reports", "--tool", "a"]):
        ended = CliRunner().invoke(main, [*command, "--config", str(file), "--token", str(place)])
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert f"--token: {place} may be read or written by every user of this machine" in ended.stderr


def test_a_text_that_is_no_token_is_refused_for_its_form(file: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("no-token")
    (tmp_path / "token").chmod(0o600)
    status, out = inspect(file, tmp_path / "token")
    assert (status, out.splitlines()[-1]) == (1, "verdict    refused (malformed)")


def test_keys_that_cannot_be_fetched_are_told_and_the_claims_are_judged_all_the_same(
    file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    (tmp_path / "keys.json").unlink()
    status, out = inspect(file, token(tmp_path, key, {"exp": -60}))
    refused = [line.split()[0] for line in out.splitlines() if line.split()[1] == "REFUSED"]
    assert (status, refused) == (1, ["keys", "exp"])


def test_an_upstream_is_needed_where_the_audience_depends_on_it(
    file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    two = "upstreams: {books: {path: /books, url: 'http://127.0.0.1:9/b'}, reports:"
    file.write_text(file.read_text().replace("upstreams: {reports:", two))
    place = token(tmp_path, key)
    assert inspect(file, place)[0] == 2
    assert inspect(file, place, "--upstream", "none")[0] == 2
    assert inspect(file, place, "--upstream", "reports")[0] == 0
    assert inspect(file, place, "--upstream", "books")[0] == 1


def test_without_authentication_no_token_is_read(file: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.write_text("version: 1\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'http://127.0.0.1:9/'}}\n")
    assert inspect(file, token(tmp_path, key)) == (2, "")
