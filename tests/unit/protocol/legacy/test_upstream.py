"""Messages to and from legacy servers."""

import json

import pytest

from helpers.schema import check_client_message
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import MAX_WELCOME
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import (
    SessionNotification,
)

# --- requests and responses -------------------------------------------------------------------------------------------


DIALECT = LegacyUpstream("0.1.0", ExtensionPolicy())
NO_OBJECTS = ["null", "true", "7", '"x"', "[]", '[{"tools":[]}]']


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=64)
    assert isinstance(message, Response)
    return message


def result(text: str) -> Response:
    return response(f'{{ "id":1,"result" :{text} ,"jsonrpc":"2.0"}}')


def reason_of(failure: pytest.ExceptionInfo[UpstreamFailed]) -> tuple[str, bool]:
    return failure.value.reason, failure.value.dispatched


# --- what is told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "told"), [(Revision.R2024_11_05, True), (Revision.R2026_07_28, False)])
def test_the_handshake_tells_what_no_revision_defines_where_others_cross_and_both_are_of_this_era(
    revision: Revision, told: bool
) -> None:
    # X-EXT-55.
    said = {"experimental": {"x": {}}, "acme": {}, "extensions": {"com.example/x": {}}}
    text = LegacyUpstream("0.1.0", ExtensionPolicy(others=True)).handshake(
        1, Peer(revision=revision, capabilities=said, info={})
    )
    assert json.loads(text)["params"]["capabilities"] == (said if told else {})


def test_the_handshake_ends_with_a_notification() -> None:
    text = DIALECT.initialized()
    assert text == '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    check_client_message(text)


# --- the welcome ---------------------------------------------------------------------------------------------------


NO_REVISION, NO_CAPABILITIES = "it chose an unknown protocol revision", "it declared no capabilities"
BAD_WELCOMES: dict[str, tuple[str, str]] = {
    "no revision": ('{"capabilities":{}}', NO_REVISION),
    "a revision to come": ('{"protocolVersion":"2026-07-28","capabilities":{}}', NO_REVISION),
    "a revision of nobody": ('{"protocolVersion":"1","capabilities":{}}', NO_REVISION),
    "a revision that is a number": ('{"protocolVersion":20251125,"capabilities":{}}', NO_REVISION),
    "no capabilities": ('{"protocolVersion":"2025-11-25"}', NO_CAPABILITIES),
    "capabilities that are null": ('{"protocolVersion":"2025-11-25","capabilities":null}', NO_CAPABILITIES),
    "capabilities that are a list": ('{"protocolVersion":"2025-11-25","capabilities":[]}', NO_CAPABILITIES),
    "a capability told twice": (
        '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"t\\u006fols":{}}}',
        "its result of initialize repeats a key, or has too many keys",
    ),
    "more than anybody has to say": (
        f'{{"protocolVersion":"2025-11-25","capabilities":{{}},"instructions":"{"x" * MAX_WELCOME}"}}',
        "its result of initialize is too long",
    ),
    **{text: (text, NO_REVISION) for text in NO_OBJECTS},
}


@pytest.mark.parametrize(("welcome", "told"), BAD_WELCOMES.values(), ids=BAD_WELCOMES)
def test_a_welcome_that_cannot_be_read_is_a_failure(welcome: str, told: str) -> None:
    with pytest.raises(UpstreamFailed, match=f"^The server broke the protocol: {told}$") as failure:
        DIALECT.read_welcome(result(welcome))
    assert reason_of(failure) == ("malformed", True)


# --- hear ----------------------------------------------------------------------------------------------------------


CHANGED = Extension(notifications=frozenset({"notifications/thing/changed"}), eras=frozenset(Era))
OF_ERA = Extension(notifications=frozenset({"notifications/other/changed"}))
CARRYING = LegacyUpstream("0.1.0", ExtensionPolicy(allowed={"com.example/thing": CHANGED, "com.example/other": OF_ERA}))


def changed(thing: str) -> str:
    return f'{{ "jsonrpc":"2.0","method":"notifications/{thing}/changed","params":{{"a": 1.0,"_meta":{{"b":2}}}} }}'


@pytest.mark.parametrize(
    ("thing", "revision", "is_heard"),
    [
        ("thing", Revision.R2025_11_25, True),
        ("thing", Revision.R2026_07_28, True),
        ("other", Revision.R2024_11_05, True),
        ("other", Revision.R2026_07_28, False),
        ("third", Revision.R2025_11_25, False),
    ],
)
def test_a_notification_of_an_extension_is_passed_on_where_it_crosses(
    thing: str, revision: Revision, is_heard: bool
) -> None:
    # X-EXT-23.
    heard = CARRYING.decode(changed(thing).encode(), Peer(revision=revision, capabilities={}, info={}))
    assert (isinstance(heard, SessionNotification) and heard.notification.text) == (is_heard and changed(thing))


def test_a_notification_of_an_extension_is_for_nobody_where_no_host_is_known() -> None:
    # X-EXT-42.
    assert CARRYING.decode(changed("thing").encode(), None) is None
