"""What goes out on the stream of a call and on a listen stream, and under whose id."""

from typing import Any

import pytest

from requirements import covers
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification
from taskgate.protocol.modern import notices
from unit.protocol.modern.judge import EXTENSION, INFO, INFO_KEY, RELATED, check, read

KEY = "io.modelcontextprotocol/subscriptionId"


def note(method: str, params: str | None = None) -> Notification:
    tail = "" if params is None else f',"params":{params}'
    message = parse(f'{{"method":"notifications/{method}"{tail},"jsonrpc":"2.0"}}'.encode(), max_depth=32)
    assert isinstance(message, Notification)
    return message


@pytest.mark.parametrize(("token", "written"), [(7, "7"), ('h"', '"h\\""')])
def test_progress_goes_out_under_the_hosts_own_token(token: str | int, written: str) -> None:
    told = note("progress", f'{{"progressToken": 42 ,"progress":1.0,"_meta":{{"{RELATED}":{{}},"x":1}}}}')
    text = notices.on_notification(told, token)
    assert text == (
        '{"jsonrpc":"2.0","method":"notifications/progress",'
        f'"params":{{"progressToken": {written} ,"progress":1.0,"_meta":{{"x":1}}}}}}'
    )
    check(text, "ProgressNotification")


def test_a_log_message_goes_out_as_it_came() -> None:
    text = notices.on_notification(note("message", '{"level":"info","data":[1e999]}'), None)
    assert text == '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":[1e999]}}'
    check(text, "LoggingMessageNotification")


@pytest.mark.parametrize(
    ("id_", "written", "told"),
    [
        (
            "h",
            f'{{"_meta":{{"{KEY}": 3 ,"a/b":1.0}},"cursor":null}}',
            f'{{"_meta":{{"{KEY}": "h" ,"a/b":1.0}},"cursor":null}}',
        ),
        (7, f'{{"_meta":{{"{KEY}":"x"}}}}', f'{{"_meta":{{"{KEY}":7}}}}'),
        (7, '{"_meta":{"a/b":1.0}}', '{"_meta":{"a/b":1.0}}'),
        (7, "{}", "{}"),
        (None, f'{{"_meta":{{"{KEY}":3,"a/b":1.0}}}}', '{"_meta":{"a/b":1.0}}'),
    ],
)
def test_a_notification_that_names_its_stream_names_the_hosts_own(
    id_: str | int | None, written: str, told: str
) -> None:
    # X-EXT-23.
    text = notices.on_notification(note("events/active", written), None, id_)
    assert text == f'{{"jsonrpc":"2.0","method":"notifications/events/active","params":{told}}}'


def test_a_token_is_told_with_progress_alone() -> None:
    text = notices.on_notification(note("events/active", '{"progressToken":3}'), "h", "h")
    assert read(text)["params"] == {"progressToken": 3}


@pytest.mark.parametrize(("message", "told"), [("", {}), ("half", {"message": "half"})])
def test_progress_of_our_own_says_what_there_is_to_say(message: str, told: dict[str, Any]) -> None:
    text = notices.progress("t", 0.5, message)
    assert read(text)["params"] == {"progressToken": "t", "progress": 0.5, **told}
    check(text, "ProgressNotification")


@covers("M-LOG-1", "T-16")
@pytest.mark.parametrize(
    ("said", "wanted", "heard"),
    [
        ('"error"', "warning", True),
        ('"warning"', "warning", True),
        ('"notice"', "warning", False),
        ('"debug"', "debug", True),
        ('"emergency"', "emergency", True),
        ('"emergency"', None, False),
        ('"loud"', "debug", False),
        ('["error"]', "debug", False),
    ],
)
def test_a_log_message_is_heard_from_its_level_on(said: str, wanted: str | None, heard: bool) -> None:
    assert notices.is_loud_enough(note("message", f'{{"level":{said},"data":1}}'), wanted) is heard
    assert not notices.is_loud_enough(note("message", '{"data":1}'), wanted)


GRANTS: dict[str, tuple[Subscription, dict[str, Any]]] = {
    "nothing": (Subscription(), {}),
    "all": (
        Subscription(tools=True, prompts=True, resources=True, resource_uris=("a:b",), tasks=("t", "u")),
        {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["a:b"],
            "taskIds": ["t", "u"],
        },
    ),
    "none of the tasks": (Subscription(prompts=True, tasks=()), {"promptsListChanged": True, "taskIds": []}),
    "members of extensions": (
        Subscription(tools=True, filters=("eventsListChanged", "thingChanged")),
        {"toolsListChanged": True, "eventsListChanged": True, "thingChanged": True},
    ),
    "none of the resources": (Subscription(resource_uris=()), {"resourceSubscriptions": []}),
}


@covers("M-NOTIF-2", "T-15")
@pytest.mark.parametrize("id_", ["sub-7", 7])
@pytest.mark.parametrize(("granted", "told"), GRANTS.values(), ids=GRANTS)
def test_a_stream_begins_with_what_is_granted(granted: Subscription, told: dict[str, Any], id_: str | int) -> None:
    found = read(notices.acknowledged(id_, granted))
    assert found["params"] == {"notifications": told, "_meta": {KEY: id_}}
    check(found, "SubscriptionsAcknowledgedNotification")
    check(told, "TaskSubscriptionAcknowledgedNotifications", schema=EXTENSION)


@covers("M-NOTIF-3")
@pytest.mark.parametrize(
    ("params", "told"),
    [
        (None, f'{{"_meta":{{"{KEY}":"s"}}}}'),
        ("[]", f'{{"_meta":{{"{KEY}":"s"}}}}'),
        ('{"uri" : "a:b"}', f'{{"_meta":{{"{KEY}":"s"}},"uri" : "a:b"}}'),
        (f'{{"_meta":{{"{KEY}":1,"x":2}}}}', f'{{"_meta":{{"{KEY}":"s","x":2}}}}'),
        (f'{{"_meta":{{"{RELATED}":1}}}}', f'{{"_meta":{{"{KEY}":"s"}}}}'),
    ],
)
def test_news_of_a_server_carry_the_id_of_the_stream(params: str | None, told: str) -> None:
    text = notices.published(note("tools/list_changed", params), "s")
    assert text == f'{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{told}}}'
    check(text, "ToolListChangedNotification")


@covers("M-NOTIF-6")
def test_a_stream_ends_with_an_empty_result() -> None:
    text = notices.listen_result(7, INFO)
    assert read(text) == {"resultType": "complete", "_meta": {KEY: 7, INFO_KEY: read(INFO)}}
    check(text, "SubscriptionsListenResult")
