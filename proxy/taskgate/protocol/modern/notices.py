"""What hosts of this era are told without having asked at once: on the stream of a call, or of `subscriptions/listen`.

Every message of a listen stream carries the id of its request, of the same JSON type (M-NOTIF-3). Pure; who wants to
hear what is decided elsewhere.
"""

from typing import Any

from taskgate.domain.record import RequestId
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.jsonrpc import notification_text
from taskgate.protocol.messages import Notification, meta_of
from taskgate.protocol.meta import ObjectEdit, edit_object
from taskgate.protocol.vocabulary import LOG_LEVELS, NOTE_PROGRESS, NOTE_SUBSCRIBED, SERVER_INFO, SUBSCRIPTION_ID


def on_notification(notification: Notification, token: RequestId | None, id: RequestId | None = None) -> str:
    """A server's notification on the stream of a request, under the host's own progress token if one is given.

    One that names its stream names it by `id` instead.
    """
    is_progress = notification.method == NOTE_PROGRESS
    put = {} if token is None or not is_progress else {"progressToken": dump(token)}
    names_stream = id is not None and SUBSCRIPTION_ID in meta_of(notification.params)
    return _told(notification, ObjectEdit(put=put, meta_put={SUBSCRIPTION_ID: dump(id)} if names_stream else {}))


def progress(token: RequestId, done: float, message: str) -> str:
    """Progress of our own; an empty `message` is left out."""
    told: dict[str, Any] = {"progressToken": token, "progress": done}
    if message:
        told["message"] = message
    return notification_text(NOTE_PROGRESS, dump(told))


def is_loud_enough(notification: Notification, level: str | None) -> bool:
    """Whether a log message is one that a request with this level wants to hear (M-LOG-1); `level` is a known one."""
    said = notification.params.get("level")
    if level is None or said is None or said.value not in LOG_LEVELS:
        return False
    return LOG_LEVELS.index(said.value) >= LOG_LEVELS.index(level)


def acknowledged(subscription: RequestId, granted: Subscription) -> str:
    """The first message of a listen stream: what of the wishes is granted (M-NOTIF-2)."""
    told: dict[str, Any] = {
        name: True
        for name, wanted in (
            ("toolsListChanged", granted.tools),
            ("promptsListChanged", granted.prompts),
            ("resourcesListChanged", granted.resources),
        )
        if wanted
    }
    if granted.resource_uris is not None:
        told["resourceSubscriptions"] = list(granted.resource_uris)
    if granted.tasks is not None:
        told["taskIds"] = list(granted.tasks)
    told.update(dict.fromkeys(granted.filters, True))
    return notification_text(NOTE_SUBSCRIBED, dump({"notifications": told, "_meta": {SUBSCRIPTION_ID: subscription}}))


def published(notification: Notification, subscription: RequestId) -> str:
    """A server's notification on a listen stream."""
    return _told(notification, ObjectEdit(meta_put={SUBSCRIPTION_ID: dump(subscription)}))


def listen_result(subscription: RequestId, info: RawJson) -> RawJson:
    """What ends a listen stream (M-NOTIF-6)."""
    meta = f"{{{dump(SUBSCRIPTION_ID)}:{dump(subscription)},{dump(SERVER_INFO)}:{info}}}"
    return f'{{"resultType":"complete","_meta":{meta}}}'


def _told(notification: Notification, change: ObjectEdit) -> str:
    text = notification.params_text
    return notification_text(notification.method, edit_object(text if text.startswith("{") else "{}", change))
