"""Extensions of an upstream: `ExtensionPolicy` says which of them cross, and how (X-EXT-50 to 56).

An extension is a key of `capabilities.extensions`. It crosses the gateway if both sides are of eras
that define it, and the operator allows it. Members of `experimental`, and capabilities that no
revision defines, cross like extensions that the configuration does not name. `host` and `server`
are the eras of both sides. Each upstream has one policy, made from its configuration; the dialects
and the gateway ask it for each message.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from taskgate.domain.versions import Era
from taskgate.errors import InvalidParams
from taskgate.jsontext.edits import splice, splice_range
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol.meta import member_edits, members_text
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
"""Extensions about the authorization of one hop: a declaration says nothing to the other side
(X-EXT-48).
"""

_BOTH: Final = frozenset(Era)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The parts of one extension that cross: methods of hosts, notifications of servers.

    `filters` are its members of the filter of `subscriptions/listen`. `eras` are the eras that
    define it, between which it crosses; None for any one era, to itself alone. `result_types` are
    values of `resultType` besides `complete` for its methods. Results of `cacheable` methods say
    how long they may be cached. `capability` is another spelling of its declaration, a key of the
    capabilities themselves. `codes` are errors of its methods that cross unchanged. A request of a
    method in `streams` lasts as long as its host listens.
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

    def allows_result(self, kind: object) -> bool:
        """Whether a result of its methods may have that `resultType` (X-EXT-22)."""
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
            # The codes of SEP-3415, and of the design before it.
            codes=frozenset({*range(-32027, -32022), *range(-32015, -32010)}),
            streams=frozenset({"events/stream"}),
        ),
    }
)
"""The extensions that taskgate knows, as they cross if allowed. `tasks` is the gateway's own."""

ALLOWED_BY_DEFAULT: Final = frozenset({UI, SKILLS})
KNOWN_METHODS: Final = frozenset[str]().union(*(extension.methods for extension in BUILT_IN.values()))
_SERVER_CAPABILITIES: Final = frozenset({"completions", "logging", "prompts", "resources", "tools"})
_HOST_CAPABILITIES: Final = frozenset({"roots", "sampling", "elicitation"})
_KNOWN: Final = frozenset(name.casefold() for name in (*BUILT_IN, *AUTHORIZATION, TASKS_EXTENSION))
_KNOWN_KEYS: Final = frozenset(
    {"tasks", "extensions", "experimental", *_SERVER_CAPABILITIES, *_HOST_CAPABILITIES}
    | {each.capability for each in BUILT_IN.values() if each.capability is not None}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionPolicy:
    """The extensions that cross one upstream; `allowed` has them by identifier.

    `denied` are identifiers that do not cross, even with `others`. With `others`, the declaration
    and metadata of all further ones that taskgate does not know cross within one era. Their methods
    and notifications do not.
    """

    allowed: Mapping[str, Extension] = field(
        default_factory=lambda: {name: BUILT_IN[name] for name in ALLOWED_BY_DEFAULT}
    )
    denied: frozenset[str] = frozenset()
    others: bool = False
    all_filters: frozenset[str] = field(init=False, compare=False, repr=False)
    """The members of the filter of `subscriptions/listen` of all allowed extensions."""
    streams: frozenset[str] = field(init=False, compare=False, repr=False)
    """The methods whose requests last as long as their hosts listen."""
    by_method: Mapping[str, Extension] = field(init=False, compare=False, repr=False)
    """The allowed extension that has a method; methods of the core are in none."""
    _denied: frozenset[str] = field(init=False, compare=False, repr=False)
    _by_notification: Mapping[str, Extension] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "all_filters", frozenset[str]().union(*(each.filters for each in self.allowed.values())))
        put(self, "streams", frozenset[str]().union(*(each.streams for each in self.allowed.values())))
        put(self, "_denied", frozenset(name.casefold() for name in self.denied))
        put(self, "by_method", {name: each for each in self.allowed.values() for name in each.methods})
        put(self, "_by_notification", {name: each for each in self.allowed.values() for name in each.notifications})

    def allows_method(self, method: str, host: Era, server: Era | None = None) -> bool:
        """Whether a host's request of that method crosses; false for a method of the core.

        `server` None asks whether it crosses to a server of any era.
        """
        found = self.by_method.get(method)
        if found is None:
            return False
        if server is None:
            return found.eras is None or host in found.eras
        return found.crosses(host, server)

    def allows_notification(self, notification: str, host: Era, server: Era) -> bool:
        """Whether a server's notification crosses (X-EXT-23); false for one of the core."""
        found = self._by_notification.get(notification)
        return found is not None and found.crosses(host, server)

    def allows(self, identifier: str, host: Era, server: Era) -> bool:
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
        """The members of the filter of `subscriptions/listen` that a host may use.

        They are those of allowed extensions that `declared`, the server's capabilities, has.
        """
        found = (each for name, each in self.allowed.items() if is_declared(name, each, declared))
        return frozenset[str]().union(*(each.filters for each in found if each.crosses(host, server)))

    def notifications_of(self, filters: Collection[str]) -> frozenset[str]:
        """The notifications that those members of the filter turn on (X-EXT-24)."""
        found = (each for each in self.allowed.values() if not each.filters.isdisjoint(filters))
        return frozenset[str]().union(*(each.notifications for each in found))

    def host_capabilities(self, declared: Mapping[str, Any], host: Era, server: Era) -> dict[str, Any]:
        """The capabilities of a host for a server, without those of the core (X-EXT-6)."""
        found: dict[str, Any] = {}
        for name, value in declared.items():
            if name == "extensions":
                allowed = self._allowed_extensions(value, host, server)
            elif name == "experimental":
                allowed = value if (self.others and host is server) or value == {} else None
            elif name in _HOST_CAPABILITIES or name == "tasks":
                allowed = None
            else:
                allowed = value if self._allows_key(name, host, server) else None
            if allowed is not None:
                found[name] = allowed
        return found

    def server_capabilities(self, declared: RawJson, host: Era, server: Era, own: Mapping[str, RawJson]) -> RawJson:
        """The capabilities of a server for a host: those that cross, and the `own` extensions.

        What crosses stays to the byte. Legacy `tasks` never cross.
        """
        found = members(declared, {"extensions": {}, "experimental": {}})
        put = {
            "extensions": _allowed_text(
                declared, found, "extensions", lambda name: self.allows(name, host, server), own
            ),
            "experimental": _allowed_text(
                declared, found, "experimental", lambda _: self.others and host is server, {}
            ),
        }
        gone = {name for name in found if name not in put and not self._allows_capability(name, host, server)}
        gone.update(name for name, text in put.items() if text is None)
        replaced = {name: text for name, text in put.items() if text is not None}
        return splice(declared, member_edits(found, declared.index("{"), replaced, gone))

    def denials(self, declared: Mapping[str, Any], host: Era, server: Era) -> list[str]:
        """The identifiers of extensions that a side declares and that do not cross, for the log."""
        extensions = declared.get("extensions")
        names = list(extensions) if isinstance(extensions, dict) else []
        names += [name for name, each in BUILT_IN.items() if each.capability in declared and name not in names]
        return [name for name in names if name != TASKS_EXTENSION and not self.allows(name, host, server)]

    def _allowed_extensions(self, declared: Any, host: Era, server: Era) -> dict[str, Any] | None:
        if not isinstance(declared, dict):
            return None
        allowed = {
            name: value
            for name, value in declared.items()
            if isinstance(value, dict) and self.allows(name, host, server)
        }
        return allowed if allowed or not declared else None

    def _allows_capability(self, name: str, host: Era, server: Era) -> bool:
        return name in _SERVER_CAPABILITIES or (name != "tasks" and self._allows_key(name, host, server))

    def _allows_key(self, name: str, host: Era, server: Era) -> bool:
        """Whether a capability outside of the core crosses."""
        for identifier, extension in BUILT_IN.items():
            if extension.capability == name:
                return self.allows(identifier, host, server)
        # A case-insensitive reader takes another spelling of a known capability for that one.
        return self.others and host is server and name.casefold() not in _KNOWN_KEYS


def dump_capabilities(declared: Mapping[str, Any]) -> RawJson:
    """Capabilities of a host as JSON. Raises InvalidParams for a number that JSON cannot express.

    The standard encoder, because hosts may declare integers of any length and lone surrogates.
    """
    try:
        return json.dumps(declared, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise InvalidParams("The capabilities hold a number that is too large to be written again") from None


def merge_capabilities(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Capabilities that declare both; all members and their members are objects."""
    found = {name: {**one.get(name, {}), **other.get(name, {})} for name in (*one, *other)}
    if "elicitation" in one and "elicitation" in other and not (one["elicitation"] and other["elicitation"]):
        # An elicitation without modes means forms; beside another mode that must be said.
        found["elicitation"] = {"form": {}, **found["elicitation"]} if found["elicitation"] else {}
    return found


def is_declared(identifier: str, extension: Extension, capabilities: Mapping[str, Any]) -> bool:
    """Whether those capabilities declare the extension, in either spelling."""
    extensions = capabilities.get("extensions")
    return (isinstance(extensions, dict) and isinstance(extensions.get(identifier), dict)) or (
        extension.capability is not None and isinstance(capabilities.get(extension.capability), dict)
    )


def _allowed_text(
    text: RawJson, found: Members, name: str, allows: Callable[[str], bool], own: Mapping[str, RawJson]
) -> RawJson | None:
    """An object of capabilities with the allowed members and the `own`; None if that leaves
    nothing.

    One that was empty stays empty.
    """
    member = found.get(name)
    inner = None if member is None else member.members
    if member is None or inner is None:
        return f"{{{members_text(own)}}}" if own else None
    gone = {each for each, value in inner.items() if each in own or not (value.is_object and allows(each))}
    if inner and len(gone) == len(inner) and not own:
        return None
    return splice_range(text, member.start, member.end, member_edits(inner, member.start, own, gone))
