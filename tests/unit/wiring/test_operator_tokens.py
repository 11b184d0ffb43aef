"""The tokens of operators that a configuration names are read from their files."""

from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from taskgate.auth.key_file import KeyFileRefused
from taskgate.operators.access import Operator, Role
from taskgate.wiring.authentication import operator_tokens

TOKEN = b"a-token-of-an-operator"


def token_file(folder: Path, name: str, text: bytes = TOKEN, mode: int = 0o600) -> str:
    file = folder / name
    file.write_bytes(text)
    file.chmod(mode)
    return str(file)


def section(file: str, name: str = "ops", role: str = "operator") -> dict[str, Any]:
    return {"file": file, "name": name, "role": role}


def read(**admin: Any) -> Any:
    return operator_tokens(configuration({"reports": "http://127.0.0.1:9/mcp"}, admin=admin))


def test_each_file_has_one_token_with_the_name_and_role_of_its_section(tmp_path: Path) -> None:
    found = read(
        token_file=token_file(tmp_path, "0", b"the-first-token-of-all\n"),
        tokens=[
            section(token_file(tmp_path, "1")),
            section(token_file(tmp_path, "2", b"0123456789abcdef" * 2), "looks", "viewer"),
        ],
    )
    assert found == {
        b"the-first-token-of-all": Operator("token_file", Role.OPERATOR),
        TOKEN: Operator("ops", Role.OPERATOR),
        b"0123456789abcdef" * 2: Operator("looks", Role.VIEWER),
    }
    assert read() == {}


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (b"short", 0o600, r"admin\.tokens\[0\]\.file: must hold one token .* openssl rand -hex 32"),
        (b"x" * 21, 0o600, r"admin\.tokens\[0\]\.file: must hold one token"),
        (b"0123456789abcdef" * 2, 0o604, r"admin\.tokens\[0\]\.file: may be read or written by every user"),
        (b"0123456789ABCDEF" * 2 + b"0" * 4065, 0o600, r"admin\.tokens\[0\]\.file: must hold one token"),
        (b"0123456789abcdef"[1:] * 2, 0o600, r"admin\.tokens\[0\]\.file: must hold one token"),
        (b"two tokens are in this file", 0o600, r"admin\.tokens\[0\]\.file: must hold one token"),
        (TOKEN, 0o604, r"admin\.tokens\[0\]\.file: may be read or written by every user"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: bytes, mode: int, told: str) -> None:
    with pytest.raises(KeyFileRefused, match=told):
        read(tokens=[section(token_file(tmp_path, "1", text, mode))])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileRefused, match=r"admin\.tokens\[0\]\.file: cannot be read: No such file"):
        read(tokens=[section(str(tmp_path / "none"))])


def test_one_token_has_one_name(tmp_path: Path) -> None:
    with pytest.raises(KeyFileRefused, match=r"admin\.tokens\[1\]\.file: has the same token as ops"):
        read(tokens=[section(token_file(tmp_path, "1")), section(token_file(tmp_path, "2"), "other")])
