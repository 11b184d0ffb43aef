"""`taskgate explain`: who is not let in, and what cannot be asked."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from unit.explain.explain_command import run, token


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1}, "(expired): it has expired, or is older than max_token_age"),
        ({"aud": "https://mcp.example.com/search/mcp"}, "(audience): its aud names neither the upstream's path"),
        ({"org": 7}, "(claim): a claim that it must have is missing or malformed"),
    ],
)
def test_a_token_that_is_refused_says_why(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey, claims: dict[str, Any], why: str
) -> None:
    bad = token(tmp_path, key, claims)
    status, out, err = run("--config", known, "--upstream", "reports", "--tool", "a", "--token", bad)
    assert (status, out) == (1, "")
    assert err.startswith(f"taskgate: a token of the issuer corp is refused {why}")


def test_a_token_of_another_key_is_refused(known: Path, tmp_path: Path) -> None:
    forged = token(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    status, _, err = run("--config", known, "--upstream", "reports", "--tool", "a", "--token", forged)
    assert (status, err) == (1, "taskgate: a token of the issuer corp is refused (signature): its signature is wrong\n")


def test_without_a_token_nobody_is_let_in_where_one_is_required(known: Path) -> None:
    assert run("--config", known, "--upstream", "reports", "--tool", "a") == (
        1,
        "",
        "taskgate: refused (missing): auth.mode is required, and there is no token\n",
    )


def test_a_token_whose_keys_cannot_be_had_is_not_judged(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    (tmp_path / "keys.json").unlink()
    status, _, err = run("--config", known, "--upstream", "reports", "--tool", "a", "--token", token(tmp_path, key))
    assert status == 1
    assert "the token cannot be judged" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--upstream", "report", "--tool", "a"), "--upstream must be one of reports, search"),
        (("--upstream", "reports", "--tool", "a", "--hint", "readOnly=true"), "--hint must be NAME=true or NAME=false"),
        (("--upstream", "reports", "--tool", "a", "--hint", "readOnlyHint=yes"), "--hint must be NAME=true"),
        (("--upstream", "reports", "--tool", "a", "--token", "nowhere"), "--token: nowhere cannot be read"),
        (("--upstream", "reports"), "Missing option '--tool'"),
    ],
)
def test_a_question_that_cannot_be_asked_ends_with_status_2(
    anonymous: Path, arguments: tuple[str, ...], words: str
) -> None:
    status, out, err = run("--config", anonymous, *arguments)
    assert (status, out) == (2, "")
    assert words in err


def test_a_file_that_is_wrong_is_told_as_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nauth: {mode: none}\nupstreams: {}\n")
    status, out, err = run("--config", file, "--upstream", "a", "--tool", "b")
    assert (status, out, err) == (2, "", f"{file}:3: upstreams: must not be empty\n")
