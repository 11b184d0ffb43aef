"""What a host wishes to hear of on `subscriptions/listen`: how much of it, what its server can tell, and what is it.

No state and no wait; what must not live here: tasks, which no server tells of.
"""

from collections.abc import Callable
from typing import Final

from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Notification
from taskgate.protocol.modern_requests import Subscription

MAX_TASKS: Final = 1000
MAX_RESOURCES: Final = 256
MAX_URI: Final = 2048
"""What one request may name: tasks, resources, and letters of the URI of each."""


def check_bounds(wants: Subscription) -> None:
    """Raise InvalidParams for wishes without measure."""
    if len(wants.tasks or ()) > MAX_TASKS:
        raise InvalidParams(f"taskIds names more than {MAX_TASKS} tasks")
    uris = wants.resource_uris or ()
    if len(uris) > MAX_RESOURCES:
        raise InvalidParams(f"resourceSubscriptions names more than {MAX_RESOURCES} resources")
    if any(len(uri) > MAX_URI for uri in uris):
        raise InvalidParams(f"A URI in resourceSubscriptions is longer than {MAX_URI} characters")


def concerns_server(wants: Subscription) -> bool:
    """Whether any of it is for the server to tell."""
    return wants.tools or wants.prompts or wants.resources or bool(wants.resource_uris) or bool(wants.filters)


def declares(server: Server) -> Callable[[str, str], bool]:
    """Whether the server declared a flag of one of its capabilities, by the names of both."""
    declared = members(server.capabilities)

    def has(capability: str, flag: str) -> bool:
        said = declared[capability].value if capability in declared else None
        return isinstance(said, dict) and said.get(flag) is True

    return has


def is_granted(granted: Subscription, notification: Notification) -> bool:
    """Whether a server's notification is of a kind that is told, and about a resource that is (M-NOTIF-7)."""
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
    """Whether it is the resource that was asked for, or a part of it: servers may name either."""
    return uri == asked or uri.startswith(asked if asked.endswith("/") else f"{asked}/")
