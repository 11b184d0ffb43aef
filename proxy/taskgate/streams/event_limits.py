"""The largest event that a host takes from an event stream: `EventLimits`.

Some hosts end a stream with a larger event, and lose the answer. They take a JSON document of any size. A
host does not say its limit, so that is found by its name, or by the library that it names as its User-Agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, NamedTuple

from taskgate.domain.versions import Client

EVENT_LIMITS: Final[Mapping[str, int]] = MappingProxyType({"python-httpx2/*": 2**20, "fastmcp/4.*": 2**20})
"""What is known of released hosts whose documents have no limit, in bytes. The Python SDK has it from httpx2
2.10 (https://github.com/modelcontextprotocol/python-sdk/issues/3332).
"""


class EventLimit(NamedTuple):
    """The most bytes of an event for the hosts that match the glob `host`."""

    host: str
    most: int


@dataclass(frozen=True, slots=True)
class EventLimits:
    """The limits of hosts: the first that matches counts. All other hosts have none."""

    limits: tuple[EventLimit, ...] = ()

    def most(self, client: Client, user_agent: str | None) -> int | None:
        """The most bytes of an event for a host; None for no limit.

        A glob is matched with name and version of the host, joined by a slash, and with its User-Agent.
        """
        names = (f"{client.name or ''}/{client.version or ''}", user_agent or "")
        return next((each.most for each in self.limits if any(fnmatchcase(name, each.host) for name in names)), None)


NONE: Final = EventLimits()
"""No limit of any host."""
