"""What an answer tells of a server's era: what names the modern one, and nothing else."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Era
from taskgate.protocol.evidence import era_of_discovery, era_of_refusal

BOTH = ["2025-11-25", "2026-07-28"]
UNSUPPORTED = {"code": -32022, "message": "no", "data": {"supported": BOTH, "requested": "2025-11-25"}}


def unsupported(supported: Any) -> dict[str, Any]:
    return UNSUPPORTED | {"data": {"supported": supported, "requested": "2026-07-28"}}


def discovered(**result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def refused(code: Any, **error: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no", **error}}).encode()


@pytest.mark.parametrize(
    "message",
    [
        discovered(supportedVersions=["2026-07-28"]),
        discovered(supportedVersions=BOTH, resultType="complete"),
        discovered(supportedVersions=[7, None, "2099-01-01", "2026-07-28"]),
        refused(-32020),
        refused(-32021, data={"requiredCapabilities": {}}),
        refused(-32022, data={"supported": ["2026-07-28"], "requested": "x"}),
        b'{"error":{"code":-32020}}',
    ],
)
@covers("V-ERA-5")
def test_a_revision_or_an_error_of_the_modern_era_tells_of_it(message: bytes) -> None:
    assert era_of_discovery(message) is Era.MODERN


@pytest.mark.parametrize(
    "message",
    [
        discovered(),
        discovered(supportedVersions=["2025-11-25"]),
        discovered(supportedVersions=["2099-01-01"]),
        discovered(supportedVersions="2026-07-28"),
        discovered(supportedVersions={"2026-07-28": {}}),
        b'{"jsonrpc":"2.0","id":1,"result":["2026-07-28"]}',
        *(refused(code) for code in (-32000, -32001, -32002, -32600, -32601, -32602, -32603, -32700, -32023, -32042)),
        refused("-32020"),
        refused(-32022),
        refused(-32022, data="2026-07-28"),
        refused(-32022, data={"supported": ["2025-11-25"]}),
        refused(-32022, data={"supported": "2026-07-28"}),
        b'{"jsonrpc":"2.0","id":1,"error":"-32020"}',
        b"",
        b"<html>",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{" + b'"a":{' * 70 + b"}" * 71,
    ],
)
@covers("V-ERA-5", "V-ERA-9")
def test_anything_else_that_answers_tells_of_the_other_era(message: bytes) -> None:
    assert era_of_discovery(message) is Era.LEGACY


@pytest.mark.parametrize(
    "message",
    [b"[]", b"7", b"null", b"{}", b'{"method":"notifications/message","params":{}}', b'{"id":1,"method":"ping"}'],
)
def test_what_is_no_answer_tells_nothing(message: bytes) -> None:
    assert era_of_discovery(message) is None


@covers("V-ERA-7")
def test_a_handshake_that_is_refused_for_another_revision_that_we_speak_tells_of_its_era() -> None:
    assert era_of_refusal(UNSUPPORTED) is Era.MODERN


@pytest.mark.parametrize(
    "error",
    [
        {},
        {"code": -32601, "message": "no", "data": {"supported": BOTH}},
        {"code": -32022, "message": "no"},
        {"code": -32020, "message": "no"},
        unsupported(["2025-06-18"]),
        unsupported([["2026-07-28"]]),
        unsupported(None),
    ],
)
def test_no_other_refusal_of_a_handshake_tells_anything(error: dict[str, Any]) -> None:
    assert era_of_refusal(error) is None
