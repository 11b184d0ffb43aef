"""The time that a host without tasks waits for an answer: `HandoffRules`. Pure.

Hosts end a call that takes longer than their ceiling, and lose its result. So the answer comes just
before that: the result, or a handle. Which ceiling a host has is not in the protocol, so it is found
by the name of the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, NamedTuple

from taskgate.domain.policy import Handoff

_MARGIN: Final = 0.1
"""The part of a ceiling that is left for the way of the answer."""
_MOST_MARGIN: Final = timedelta(seconds=5)

CEILINGS: Final[Mapping[str, timedelta]] = MappingProxyType(
    {
        "claude-code": timedelta(minutes=5),
        "claude-ai": timedelta(minutes=1),
        "codex-mcp-client": timedelta(minutes=1),
        "gemini-cli-mcp-client*": timedelta(minutes=10),
    }
)
"""What is known of released hosts, by a glob over their name: how long they wait without progress."""
CEILINGS_WITH_PROGRESS: Final[Mapping[str, timedelta]] = MappingProxyType({"claude-code": timedelta(hours=24)})
"""How long those wait whose wait progress extends."""


class Ceiling(NamedTuple):
    """The longest wait of the hosts whose name matches the glob `client`."""

    client: str
    longest: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffRules:
    """The ceilings of hosts: the first that matches counts, and `usual` is that of all others.

    `with_progress` are the ceilings of calls that get progress before each usual one is over, for hosts
    whose wait that extends. `retry_window` is how long after its end an unfetched result answers the
    same call made again.
    """

    ceilings: tuple[Ceiling, ...] = ()
    with_progress: tuple[Ceiling, ...] = ()
    usual: timedelta = timedelta(seconds=50)
    retry_window: timedelta = timedelta(minutes=5)

    def patience(self, handoff: Handoff | None, client: str | None, progress: timedelta | None) -> timedelta:
        """How long an answer to a host may take: its ceiling without the margin.

        `handoff` has the terms of the tool, None without any. `progress` is the longest time without
        progress that the host gets; None if it gets none.
        """
        extended = None if handoff is not None and handoff.ceiling is not None else self._extended(client, progress)
        longest = extended or self._ceiling(handoff, client)
        return longest - min(longest * _MARGIN, _MOST_MARGIN)

    def grace(self, handoff: Handoff, client: str | None, progress: timedelta | None) -> timedelta:
        """How long a call may take before its host gets a handle.

        A host whose wait progress extends gets none before the end of that.
        """
        patience = self.patience(handoff, client, progress)
        if handoff.ceiling is None and self._extended(client, progress) is not None:
            return patience
        return min(handoff.after, patience)

    def _ceiling(self, handoff: Handoff | None, client: str | None) -> timedelta:
        if handoff is not None and handoff.ceiling is not None:
            return handoff.ceiling
        return _first(self.ceilings, client) or self.usual

    def _extended(self, client: str | None, progress: timedelta | None) -> timedelta | None:
        """The ceiling of a host that gets progress often enough to extend its wait; None for any other."""
        if progress is None or progress >= (_first(self.ceilings, client) or self.usual):
            return None
        return _first(self.with_progress, client)


def _first(ceilings: tuple[Ceiling, ...], client: str | None) -> timedelta | None:
    """The first ceiling of a host of that name."""
    if client is None:
        return None
    return next((each.longest for each in ceilings if fnmatchcase(client, each.client)), None)


USUAL: Final = HandoffRules()
"""The rules without any known host."""
