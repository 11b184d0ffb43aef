"""The checks of a `subscriptions/listen` request, as pure functions for `Subscriptions`.

They check the bounds of a request, what its server can send, and whether a notification was
granted. Notifications of tasks come from the gateway itself, so they are left out here.
"""

from collections.abc import Callable
from typing import Final

from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.messages import Notification

MAX_TASKS: Final = 1000
MAX_RESOURCES: Final = 256
MAX_URI: Final = 2048
"""The limits of one request: tasks, resources, and characters of a URI."""


def check_bounds(wants: Subscription) -> None:
    """Raise InvalidParams for a request that exceeds the limits."""
    if len(wants.tasks or ()) > MAX_TASKS:
        raise InvalidParams(f"taskIds names more than {MAX_TASKS} tasks")
    uris = wants.resource_uris or ()
    if len(uris) > MAX_RESOURCES:
        raise InvalidParams(f"resourceSubscriptions names more than {MAX_RESOURCES} resources")
    if any(len(uri) > MAX_URI for uri in uris):
        raise InvalidParams(f"A URI in resourceSubscriptions is longer than {MAX_URI} characters")


def concerns_server(wants: Subscription) -> bool:
    """Return whether the request wants any notification that the server has to send."""
    return wants.tools or wants.prompts or wants.resources or bool(wants.resource_uris) or bool(wants.filters)


def declares(server: ServerDescription) -> Callable[[str, str], bool]:
    """Return a function of a capability and a flag: whether the server declares that capability
    with the flag set to true."""
    declared = members(server.capabilities)

    def has(capability: str, flag: str) -> bool:
        said = declared[capability].value if capability in declared else None
        return isinstance(said, dict) and said.get(flag) is True

    return has


def is_granted(granted: Subscription, notification: Notification) -> bool:
    """Return whether a notification is of a granted kind, and about a granted resource (M-NOTIF-7)."""
    match notification.method:
        case words.NOTE_TOOLS_CHANGED:
            return granted.tools
        case "notifications/prompts/list_changed":
            return granted.prompts
        case "notifications/resources/list_changed":
            return granted.resources
        case "notifications/resources/updated":
            uri = notification.params["uri"].value if "uri" in notification.params else None
            return isinstance(uri, str) and any(_is_within(uri, asked) for asked in granted.resource_uris or ())
    return False


def _is_within(uri: str, asked: str) -> bool:
    """Return whether `uri` is the requested resource or a part of it: servers may send either."""
    return uri == asked or uri.startswith(asked if asked.endswith("/") else f"{asked}/")
