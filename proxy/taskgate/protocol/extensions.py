"""The carriage policy of an upstream: which extensions cross it, and what of each (X-EXT-50 to X-EXT-56). Pure.

An extension is a key of `capabilities.extensions`. It crosses where both sides are of eras that it is defined in, and
the operator lets it. The members of `experimental`, and capabilities that no revision defines, cross where the
identifiers do that nobody names.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from taskgate.domain.versions import Era
from taskgate.errors import InvalidParams
from taskgate.jsontext.edits import splice
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol.amending import object_edits, written
from taskgate.protocol.reading import cut
from taskgate.protocol.vocabulary import TASKS_EXTENSION

UI: Final = "io.modelcontextprotocol/ui"
SKILLS: Final = "io.modelcontextprotocol/skills"
EVENTS: Final = "io.modelcontextprotocol/events"

AUTHORIZATION: Final = frozenset(
    {
        "io.modelcontextprotocol/oauth-client-credentials",
        "io.modelcontextprotocol/enterprise-managed-authorization",
        "io.modelcontextprotocol/dpop",
        "io.modelcontextprotocol/workload-identity-federation",
    }
)
"""Extensions about how this hop is authorized: the declaration of one side says nothing to the other (X-EXT-48)."""

_BOTH: Final = frozenset(Era)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What of one extension crosses.

    `eras` are those that it is defined in, so that it crosses from one to the other; None: from each to itself alone.
    `result_types` are the values of `resultType` besides `complete` that its methods may be answered with. Results of
    `cacheable` methods say how long they may be kept. `capability` is another spelling of its declaration, a key of the
    capabilities themselves. `codes` are errors of its methods that cross unchanged. A request of a method in `streams`
    lasts as long as its host listens.
    """

    methods: frozenset[str] = frozenset()
    notifications: frozenset[str] = frozenset()
    filters: frozenset[str] = frozenset()
    result_types: frozenset[str] = frozenset()
    cacheable: frozenset[str] = frozenset()
    eras: frozenset[Era] | None = None
    capability: str | None = None
    codes: frozenset[int] = frozenset()
    streams: frozenset[str] = frozenset()

    def knows_result(self, kind: object) -> bool:
        """Whether its methods may be answered with that `resultType` (X-EXT-22)."""
        return isinstance(kind, str) and (kind == "complete" or kind in self.result_types)

    def crosses(self, host: Era, server: Era) -> bool:
        """Whether it crosses between a host and a server of those eras."""
        if self.eras is None:
            return host is server
        return host in self.eras and server in self.eras


BUILT_IN: Final[Mapping[str, Extension]] = MappingProxyType(
    {
        UI: Extension(eras=_BOTH),
        SKILLS: Extension(
            methods=frozenset({"skills/list", "skills/get", "resources/directory/read"}),
            cacheable=frozenset({"skills/list", "skills/get", "resources/directory/read"}),
            eras=_BOTH,
        ),
        EVENTS: Extension(
            methods=frozenset(
                {"events/list", "events/poll", "events/stream", "events/subscribe", "events/unsubscribe"}
            ),
            notifications=frozenset(
                f"notifications/events/{name}"
                for name in ("active", "event", "error", "heartbeat", "terminated", "list_changed")
            ),
            filters=frozenset({"eventsListChanged"}),
            capability="events",
            # Those of SEP-3415, and those of the design that came before it.
            codes=frozenset({*range(-32027, -32022), *range(-32015, -32010)}),
            streams=frozenset({"events/stream"}),
        ),
    }
)
"""The extensions that are known here, as they cross where they are allowed. `tasks` is the gateway's own."""

ALLOWED_BY_DEFAULT: Final = frozenset({UI, SKILLS})
KNOWN_METHODS: Final = frozenset[str]().union(*(extension.methods for extension in BUILT_IN.values()))
_OF_SERVERS: Final = frozenset({"completions", "logging", "prompts", "resources", "tools"})
_OF_HOSTS: Final = frozenset({"roots", "sampling", "elicitation"})
_KNOWN: Final = frozenset(name.casefold() for name in (*BUILT_IN, *AUTHORIZATION, TASKS_EXTENSION))
_KNOWN_KEYS: Final = frozenset(
    {"tasks", "extensions", "experimental", *_OF_SERVERS, *_OF_HOSTS}
    | {each.capability for each in BUILT_IN.values() if each.capability is not None}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionPolicy:
    """What crosses one upstream. `allowed` are the extensions that do, by identifier.

    `denied` are identifiers that do not, whatever becomes of those that nobody names: these cross if `others`, with
    their declaration and metadata, within one era.
    """

    allowed: Mapping[str, Extension] = field(
        default_factory=lambda: {name: BUILT_IN[name] for name in ALLOWED_BY_DEFAULT}
    )
    denied: frozenset[str] = frozenset()
    others: bool = False
    all_filters: frozenset[str] = field(init=False, compare=False, repr=False)
    """The members of the filter of `subscriptions/listen` of all extensions that cross."""
    streams: frozenset[str] = field(init=False, compare=False, repr=False)
    """The methods whose requests last as long as their hosts listen."""
    _denied: frozenset[str] = field(init=False, compare=False, repr=False)
    _by_method: Mapping[str, Extension] = field(init=False, compare=False, repr=False)
    _by_notification: Mapping[str, Extension] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "all_filters", frozenset[str]().union(*(each.filters for each in self.allowed.values())))
        put(self, "streams", frozenset[str]().union(*(each.streams for each in self.allowed.values())))
        put(self, "_denied", frozenset(name.casefold() for name in self.denied))
        put(self, "_by_method", {name: each for each in self.allowed.values() for name in each.methods})
        put(self, "_by_notification", {name: each for each in self.allowed.values() for name in each.notifications})

    def method(self, method: str) -> Extension | None:
        """The carried extension that has the method; None for one of the core, and for one that does not cross."""
        return self._by_method.get(method)

    def relays(self, method: str, host: Era, server: Era | None = None) -> bool:
        """Whether a host's request crosses; `server` None asks for any server of the upstream."""
        found = self._by_method.get(method)
        if found is None:
            return False
        if server is None:
            return found.eras is None or host in found.eras
        return found.crosses(host, server)

    def hears(self, notification: str, host: Era, server: Era) -> bool:
        """Whether a server's notification crosses (X-EXT-23)."""
        found = self._by_notification.get(notification)
        return found is not None and found.crosses(host, server)

    def carries(self, identifier: str, host: Era, server: Era) -> bool:
        """Whether the declaration of that extension crosses."""
        found = self.allowed.get(identifier)
        if found is not None:
            return found.crosses(host, server)
        return (
            self.others
            and host is server
            and identifier.casefold() not in _KNOWN
            and identifier.casefold() not in self._denied
        )

    def filters(self, declared: Mapping[str, Any], host: Era, server: Era) -> frozenset[str]:
        """The members of the filter of `subscriptions/listen` that cross to a server with those capabilities."""
        found = (each for name, each in self.allowed.items() if is_declared(name, each, declared))
        return frozenset[str]().union(*(each.filters for each in found if each.crosses(host, server)))

    def behind(self, filters: Collection[str]) -> frozenset[str]:
        """The notifications that are told where those members of the filter are granted (X-EXT-24)."""
        found = (each for each in self.allowed.values() if not each.filters.isdisjoint(filters))
        return frozenset[str]().union(*(each.notifications for each in found))

    def of_host(self, said: Mapping[str, Any], host: Era, server: Era) -> dict[str, Any]:
        """What a server is told of a host besides the capabilities of the core (X-EXT-6)."""
        found: dict[str, Any] = {}
        for name, value in said.items():
            if name == "extensions":
                kept = self._kept(value, host, server)
            elif name == "experimental":
                kept = value if (self.others and host is server) or value == {} else None
            elif name in _OF_HOSTS or name == "tasks":
                kept = None
            else:
                kept = value if self._carries_key(name, host, server) else None
            if kept is not None:
                found[name] = kept
        return found

    def of_server(self, declared: RawJson, host: Era, server: Era, own: Mapping[str, RawJson]) -> RawJson:
        """What a host is told of a server's capabilities: those that are carried, and the `own` extensions.

        Whatever stays, stays to the byte. Legacy `tasks` are never among them.
        """
        found = members(declared, {"extensions": {}, "experimental": {}})
        put = {
            "extensions": _kept_text(declared, found, "extensions", lambda name: self.carries(name, host, server), own),
            "experimental": _kept_text(declared, found, "experimental", lambda _: self.others and host is server, {}),
        }
        gone = {name for name in found if name not in put and not self._stays(name, host, server)}
        gone.update(name for name, text in put.items() if text is None)
        kept = {name: text for name, text in put.items() if text is not None}
        return splice(declared, object_edits(found, declared.index("{"), kept, gone))

    def denials(self, said: Mapping[str, Any], host: Era, server: Era) -> list[str]:
        """The identifiers that a side declares and that do not cross."""
        declared = said.get("extensions")
        names = list(declared) if isinstance(declared, dict) else []
        names += [name for name, each in BUILT_IN.items() if each.capability in said and name not in names]
        ours = (TASKS_EXTENSION,)
        return [name for name in names if name not in ours and not self.carries(name, host, server)]

    def _kept(self, said: Any, host: Era, server: Era) -> dict[str, Any] | None:
        if not isinstance(said, dict):
            return None
        kept = {
            name: value for name, value in said.items() if isinstance(value, dict) and self.carries(name, host, server)
        }
        return kept if kept or not said else None

    def _stays(self, name: str, host: Era, server: Era) -> bool:
        return name in _OF_SERVERS or (name != "tasks" and self._carries_key(name, host, server))

    def _carries_key(self, name: str, host: Era, server: Era) -> bool:
        """Whether a capability crosses that is none of the core."""
        for identifier, extension in BUILT_IN.items():
            if extension.capability == name:
                return self.carries(identifier, host, server)
        # Readers that fold case take another spelling of what is known for that.
        return self.others and host is server and name.casefold() not in _KNOWN_KEYS


def written_capabilities(told: Mapping[str, Any]) -> RawJson:
    """What a server is told of a host, as JSON. Raises InvalidParams for a number that no JSON can write.

    Hosts may declare what a quicker writer refuses: whole numbers of any length, and lone surrogates.
    """
    try:
        return json.dumps(told, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise InvalidParams("The capabilities hold a number that is too large to be written again") from None


def is_declared(identifier: str, extension: Extension, capabilities: Mapping[str, Any]) -> bool:
    """Whether a side with those capabilities declares the extension, in either spelling."""
    extensions = capabilities.get("extensions")
    return (isinstance(extensions, dict) and isinstance(extensions.get(identifier), dict)) or (
        extension.capability is not None and isinstance(capabilities.get(extension.capability), dict)
    )


def _kept_text(
    text: RawJson, found: Members, name: str, stays: Callable[[str], bool], own: Mapping[str, RawJson]
) -> RawJson | None:
    """An object of capabilities with the members that stay and the `own`; None where that leaves nothing.

    One that came empty stays empty.
    """
    member = found.get(name)
    inner = None if member is None else member.members
    if member is None or inner is None:
        return f"{{{written(own)}}}" if own else None
    gone = {each for each, value in inner.items() if each in own or not (value.is_object and stays(each))}
    if inner and len(gone) == len(inner) and not own:
        return None
    return cut(text, member.start, member.end, object_edits(inner, member.start, own, gone))
