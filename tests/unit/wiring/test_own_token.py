"""The token that a gateway makes for its operators, where none is configured."""

from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.manual_clock import ManualClock
from taskgate.clock import SystemEntropy
from taskgate.operators.access import ApiError, Operator, OperatorAccess, Role
from taskgate.wiring.operator_token import OPERATOR_TOKEN, kept_token, own_token

SERVERS = {"reports": "http://127.0.0.1:9/mcp"}
GIVEN = b"a-token-of-an-operator"
OWN = b"the-own-token-of-a-gateway"


def made(**admin: Any) -> bytes | None:
    auth = {"mode": "none", "allow_insecure": True}
    return own_token(configuration(SERVERS, admin=admin, auth=auth), SystemEntropy())


def test_a_listener_of_this_machine_gets_one_and_another_each_time() -> None:
    one, other = made(listen="127.0.0.1:0"), made(listen="[::1]:0")
    assert one is not None
    assert other is not None
    assert one != other
    assert len(one) == 32


@pytest.mark.parametrize(
    "admin",
    [
        {"listen": "0.0.0.0:9464"},
        {"listen": "127.0.0.1:0", "token_file": "/mine"},
        {"listen": "127.0.0.1:0", "tokens": [{"file": "/mine", "role": "viewer", "name": "looks"}]},
    ],
)
def test_any_other_gateway_gets_none(admin: dict[str, Any]) -> None:
    assert made(**admin) is None


def test_it_is_in_a_file_for_the_length_of_the_block(tmp_path: Path) -> None:
    with kept_token(OWN, tmp_path, 9464) as file:
        assert file is not None
        assert (file.name, file.read_bytes()) == ("operator-9464.token", OWN)
        assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []
    for token, folder in ((None, tmp_path), (OWN, None), (OWN, tmp_path / "none")):
        with kept_token(token, folder, 9464) as file:
            assert file is None


def test_files_of_others_stay(tmp_path: Path) -> None:
    configured = tmp_path / OPERATOR_TOKEN
    configured.write_bytes(GIVEN)
    with kept_token(OWN, tmp_path, 1) as file, kept_token(GIVEN, tmp_path, 2):
        assert file is not None
        file.write_bytes(b"that of the next gateway at this port")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["operator-1.token", OPERATOR_TOKEN]
    assert configured.read_bytes() == GIVEN


def test_configured_tokens_stand_in_its_place_until_they_are_gone() -> None:
    access = OperatorAccess(ManualClock().elapsed, OWN)

    def who(token: bytes) -> str | None:
        try:
            return access.identify({}, [f"Bearer {token.decode()}"], "127.0.0.1").name
        except ApiError:
            return None

    given = {GIVEN: Operator("ops", Role.OPERATOR)}
    for tokens, expected in (({}, ("own_token", None)), (given, (None, "ops")), ({}, ("own_token", None))):
        access.replace(tokens)
        assert (who(OWN), who(GIVEN)) == expected
