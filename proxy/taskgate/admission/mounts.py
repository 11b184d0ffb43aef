"""The mounts of the gateway: the path that hosts use, and the server behind it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from taskgate.admission.concurrency import Bulkhead
from taskgate.auth.context import AuthContext
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.handoff import HandoffTools, MayHandOff
from taskgate.upstream.base import Upstream

MOST_REMEMBERED: Final = 16
"""The most removed paths that stay known, for requests that were admitted before the removal.

Beyond it, those go first that were mounted first.
"""


def _never(_tool: str, _hints: Mapping[str, bool]) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One server at one path of the public listener. A reload replaces changed ones.

    - `name`: the configured name, and a metric label.
    - `bulkhead`: the limit of calls at the server.
    - `server`: the origin of its URL, or its program, for operators.
    - `offers_tasks`: whether hosts may create tasks here.
    - `extensions`: which extensions are forwarded between hosts and the server.
    - `resource`: the audience that tokens for this mount must have.
    - `scopes`: the scopes that a host without a valid token is told to request.
    - `gets_scopes`: whether its server gets a token of the caller's own, which the scopes of the caller decide.
    - `metadata`: the address of the protected resource metadata, which it is told too; None if there is none.
    - `info`: the serverInfo for hosts; None passes on that of the server.
    - `handoff`: the tools of the gateway for hosts without tasks; None if there are no tasks here.
    - `hands_off`: whether a rule hands calls off here, so that such hosts list these tools.
    - `inbox`: whether hosts that know tasks list the tool of the gateway that lists calls.
    - `reserved`: the names that tools of the gateway have at some mount. No tool of the server with such a name is
      listed or called.
    - `own_names`: the names of tools whose calls may be for the gateway.
    - `may_hand_off`: the function that returns whether a rule does that for a tool.
    """

    name: str
    path: str
    upstream: Upstream
    bulkhead: Bulkhead
    offers_tasks: bool
    resource: str
    server: str = ""
    metadata: str | None = None
    scopes: tuple[str, ...] = ()
    gets_scopes: bool = False
    extensions: ExtensionPolicy = field(default_factory=ExtensionPolicy)
    info: RawJson | None = None
    handoff: HandoffTools | None = None
    hands_off: bool = False
    inbox: bool = False
    reserved: frozenset[str] = frozenset()
    own_names: frozenset[str] = field(init=False, repr=False, compare=False)
    may_hand_off: MayHandOff = _never

    def __post_init__(self) -> None:
        names = self.reserved if self.handoff is None else self.reserved | self.handoff.names
        object.__setattr__(self, "own_names", names)

    def scopes_of(self, caller: AuthContext) -> frozenset[str]:
        """The scopes on which an answer of the server to a caller may depend."""
        return caller.identity.scopes if self.gets_scopes and caller.identity is not None else frozenset()


class Mounts:
    """The present mounts by name and by path, and their paths. Other parts hold these, so `replace`
    changes them in place.

    A path with a slash at its end is the same as without; / has no other. No other spelling is normalized.
    `by_path` also has some removed mounts whose path is not used again, so that admitted requests can go on.
    """

    def __init__(self, mounts: Iterable[Mount] = ()) -> None:
        self.by_name: dict[str, Mount] = {}
        self.by_path: dict[str, Mount] = {}
        self.paths: set[str] = set()
        self._named: set[str] = set()
        self.is_server_named: Callable[[str], bool] = self._named.__contains__
        """Whether hosts get the own serverInfo of the server of that name; False for a removed mount."""
        self.replace(mounts)

    def replace(self, mounts: Iterable[Mount]) -> None:
        """Replace all mounts. It awaits nothing, so every request sees all old or all new ones."""
        present = tuple(mounts)
        self.by_name.clear()
        self.by_name.update((mount.name, mount) for mount in present)
        self._named.clear()
        self._named.update(mount.name for mount in present if mount.info is None)
        served = {path: mount for mount in present for path in (mount.path, f"{mount.path.rstrip('/')}/")}
        self.by_path.update(served)
        self.paths.clear()
        self.paths.update(served)
        gone = [path for path in self.by_path if path not in self.paths]
        # Each mount has two, or one at /.
        for path in gone[: -2 * MOST_REMEMBERED]:
            del self.by_path[path]

    def utilization(self, name: str) -> float:
        """The utilization of a mount's bulkhead; 0 for a removed mount."""
        mount = self.by_name.get(name)
        return 0.0 if mount is None else mount.bulkhead.utilization
