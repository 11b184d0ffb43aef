"""`taskgate explain` as a command: a token for it, a run of it, and the lines that it printed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from jwt import encode

from taskgate.cli import main

ISSUER, GATEWAY = "https://idp.example.com/", "https://mcp.example.com"


def token(folder: Path, key: ec.EllipticCurvePrivateKey, claims: Mapping[str, Any] | None = None) -> Path:
    """A file with a token of a caller of the tenant gold, signed; with other claims, if any."""
    now = int(datetime.now(UTC).timestamp())
    usual = {
        "iss": ISSUER,
        "sub": "alice",
        "aud": f"{GATEWAY}/reports/mcp",
        "iat": now,
        "exp": now + 300,
        "client_id": "desk",
        "scope": "reports.admin",
        "org": "gold",
    }
    file = folder / "token"
    file.write_text(encode({**usual, **(claims or {})}, key, algorithm="ES256", headers={"kid": "k"}) + "\n")
    file.chmod(0o600)
    return file


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Status, standard output and standard error of `taskgate explain`."""
    ended = CliRunner().invoke(main, ["explain", *(str(each) for each in arguments)])
    return ended.exit_code, ended.stdout, ended.stderr


def said(text: str, heading: str) -> list[str]:
    """The lines below a heading."""
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, text
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines()]


def told(*arguments: str | Path) -> str:
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    return out
