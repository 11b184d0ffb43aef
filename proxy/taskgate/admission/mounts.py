"""What is mounted where: the path that hosts know, and the server behind it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from taskgate.admission.bulkhead import Bulkhead
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import SupportOf
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.upstream.base import Upstream

MOST_REMEMBERED: Final = 16
"""Paths that lead nowhere any more, and are known for the sake of requests that were let in before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One server at one path of the public listener.

    `name` is the operator's and a metric label. `bulkhead` gives out the turns at the server. `support` is what hosts
    are told of its tools, `extensions` what crosses of those. `resource` is what tokens for it are made for, `scopes`
    what they should have, and `metadata` the address of the document that says where to get one, if there is one.
    `info` is what its hosts are told as serverInfo; None tells what the server tells.
    """

    name: str
    path: str
    upstream: Upstream
    bulkhead: Bulkhead
    offers_tasks: bool
    support: SupportOf
    resource: str
    metadata: str | None = None
    scopes: tuple[str, ...] = ()
    extensions: ExtensionPolicy = field(default_factory=ExtensionPolicy)
    info: RawJson | None = None


class Mounts:
    """All that are mounted now, for whoever has to know them by name or path: the two mappings are the same for good.

    `by_path` keeps for a while what was taken away from a path that nothing else has: a request that was let in before
    goes on.
    """

    def __init__(self, mounts: Iterable[Mount] = ()) -> None:
        self.by_name: dict[str, Mount] = {}
        self.by_path: dict[str, Mount] = {}
        self._paths: frozenset[str] = frozenset()
        self.replace(mounts)

    def replace(self, mounts: Iterable[Mount]) -> None:
        """Have these and no other, in one step."""
        present = tuple(mounts)
        self.by_name.clear()
        self.by_name.update((mount.name, mount) for mount in present)
        self.by_path.update((mount.path, mount) for mount in present)
        self._paths = frozenset(mount.path for mount in present)
        gone = [path for path in self.by_path if path not in self._paths]
        for path in gone[:-MOST_REMEMBERED]:
            del self.by_path[path]

    def names_server(self, name: str) -> bool:
        """Whether hosts are told which server that of that name is: never of one that is not mounted any more."""
        mount = self.by_name.get(name)
        return mount is not None and mount.info is None

    def utilization(self, name: str) -> float:
        """How much is asked of the server of that name; see Bulkhead. None of one that is not mounted any more."""
        mount = self.by_name.get(name)
        return 0.0 if mount is None else mount.bulkhead.utilization

    def serve(self, path: str) -> bool:
        """Whether a path, byte by byte, leads to a server now."""
        return path in self._paths
