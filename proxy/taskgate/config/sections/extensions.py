"""Section `extensions` of an upstream: which extensions of MCP cross the gateway."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, StringConstraints, Tag

from taskgate.config.fields import NOT_EMPTY, UNIQUE, Section, json_pattern
from taskgate.config.problems import Conflict, Location, dotted, list_at, mapping_at
from taskgate.config.sections.auth import auth_mode
from taskgate.domain.versions import Era
from taskgate.protocol.extensions import (
    ALLOWED_BY_DEFAULT,
    AUTHORIZATION,
    BUILT_IN,
    EVENTS,
    SKILLS,
    Extension,
    ExtensionPolicy,
)
from taskgate.protocol.vocabulary import (
    ERA_NOTICES,
    METHODS_OF_HOSTS,
    NOTE_INITIALIZED,
    NOTE_PROGRESS,
    NOTE_ROOTS_CHANGED,
    TASKS_EXTENSION,
)

ERAS: Final = {"legacy": Era.LEGACY, "modern": Era.MODERN}
"""The eras by their words in the file."""
TAGS: Final = ("extension in a word", "extension in full")
"""What pydantic puts into locations for the two kinds of decisions; no key looks like these."""

# The grammar of keys of `_meta`, with the prefix that `capabilities.extensions` requires.
_IDENTIFIER = re.compile(
    r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
)
MAX_IDENTIFIER: Final = 256
_WORD = "^[A-Za-z0-9_.-]{1,128}$"
_METHOD = r"^[A-Za-z0-9_$.-]+(/[A-Za-z0-9_$.-]+)*$"
_DECISIONS = frozenset({"allow", "deny", "own"})
_WRITTEN_LISTS: Final = ("notifications", "filters", "result_types", "cacheable")
"""Lists that default to those of a built-in extension."""


def _check_method(name: str) -> str:
    if not re.fullmatch(_METHOD, name):
        raise ValueError("must be the name of a method, such as widgets/list")
    return name


def _check_notification(name: str) -> str:
    if not name.startswith("notifications/") or not re.fullmatch(_METHOD, name):
        raise ValueError("must be the name of a notification, such as notifications/widgets/changed")
    return name


def _check_word(word: str) -> str:
    if not re.fullmatch(_WORD, word):
        raise ValueError("must be 1 to 128 letters, digits and _ . -")
    return word


def _is_identifier(text: str) -> bool:
    return len(text) <= MAX_IDENTIFIER and _IDENTIFIER.fullmatch(text) is not None


_Short = StringConstraints(min_length=1, max_length=128)
Method = Annotated[str, _Short, AfterValidator(_check_method)]
Notification = Annotated[str, _Short, AfterValidator(_check_notification)]
Word = Annotated[str, AfterValidator(_check_word), json_pattern(_WORD)]


class ExtensionSection(Section):
    """Parts of one extension that pass, besides its declaration and its metadata."""

    methods: Annotated[tuple[Method, ...], *UNIQUE] = ()
    """Requests of hosts."""
    notifications: Annotated[tuple[Notification, ...], *UNIQUE] = ()
    """Notifications of the server: in the answer to a request, in a session, and where a filter
    grants them.
    """
    filters: Annotated[tuple[Word, ...], *UNIQUE] = ()
    """Members of the filter of subscriptions/listen that may be true."""
    result_types: Annotated[tuple[Word, ...], *UNIQUE] = ()
    """Values of resultType, besides complete, that answers to its methods may have."""
    cacheable: Annotated[tuple[Method, ...], *UNIQUE] = ()
    """Those of its methods whose results say how long they may be cached."""
    eras: Annotated[tuple[Literal["legacy", "modern"], ...], *NOT_EMPTY, *UNIQUE] | None = None
    """The eras that define it, between which it is translated. null means those of the built-in
    extension; any other then passes within each era alone.
    """

    def to_extension(self, name: str) -> Extension:
        """Return the extension of that identifier.

        Lists that are not written, except for `methods`, are those of the built-in extension.
        """
        written = self.model_fields_set
        lists: dict[str, Any] = {key: frozenset(getattr(self, key)) for key in _WRITTEN_LISTS if key in written}
        lists["methods"] = frozenset(self.methods)
        found = replace(BUILT_IN.get(name, Extension()), **lists)
        if self.eras is not None:
            found = replace(found, eras=frozenset(ERAS[era] for era in self.eras))
        return replace(found, streams=found.streams & found.methods, cacheable=found.cacheable & found.methods)


def _tag(value: object) -> str | None:
    if isinstance(value, dict | ExtensionSection):
        return TAGS[1]
    return TAGS[0] if isinstance(value, str) and value in _DECISIONS else None


Decision = Annotated[
    Annotated[Literal["allow", "deny", "own"], Tag(TAGS[0])] | Annotated[ExtensionSection, Tag(TAGS[1])],
    Discriminator(
        _tag,
        custom_error_type="extension_decision",
        custom_error_message="must be allow, deny or own, or a mapping such as {methods: [widgets/list]}",
    ),
]


class ExtensionsSection(Section):
    """Extensions that pass through the gateway, by their identifiers as in capabilities.extensions.

    allow: its declaration and metadata pass, and all its methods if taskgate knows the extension. A
    mapping names what else passes; deny: nothing passes; own: the gateway implements it itself, for
    io.modelcontextprotocol/tasks alone.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Decision] = Field(init=False)

    OF_EXTRA: ClassVar = ExtensionSection
    """The section under a key that is no field."""

    default: Literal["deny", "allow"] = "deny"
    """What happens to identifiers that are not named, members of experimental, and capabilities of
    no revision.
    """

    @property
    def named(self) -> dict[str, Literal["allow", "deny", "own"] | ExtensionSection]:
        """Return the decisions by identifier."""
        return self.__pydantic_extra__

    def to_policy(self) -> ExtensionPolicy:
        """Return which extensions cross."""
        allowed = {name: BUILT_IN[name] for name in ALLOWED_BY_DEFAULT if self.named.get(name) != "deny"}
        denied = {name for name, decision in self.named.items() if decision == "deny"}
        for name, decision in self.named.items():
            if decision == "allow":
                allowed[name] = BUILT_IN.get(name, Extension())
            elif isinstance(decision, ExtensionSection):
                allowed[name] = decision.to_extension(name)
        return ExtensionPolicy(allowed=allowed, denied=frozenset(denied), others=self.default == "allow")


# --- rules between keys ---------------------------------------------------------------------------------------------


_CORE_FILTERS: Final = frozenset(
    {"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds"}
)
_CORE_RESULTS: Final = frozenset({"complete", "input_required", "task"})
_ERA_METHODS: Final = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
_CORE_METHODS: Final = frozenset(method.casefold() for method in METHODS_OF_HOSTS | _ERA_METHODS)
_RESERVED: Final = {"tasks/": TASKS_EXTENSION, "events/": EVENTS, "skills/": SKILLS}
_SUBSCRIBE: Final = "events/subscribe"
_SPELLINGS: Final = {name.casefold(): name for name in (*BUILT_IN, *AUTHORIZATION, TASKS_EXTENSION)}
# Other notifications always pass, so a rate for one of them alone would do nothing. The end of a
# handshake does too; the built-in policy of handshakes names it as a part of them.
_COUNTED_NOTICES: Final = frozenset({NOTE_INITIALIZED, NOTE_PROGRESS, NOTE_ROOTS_CHANGED})


def extension_conflicts(raw: object) -> Iterator[Conflict]:
    """Find wrong identifiers, decisions and names, and rules for methods that never arrive."""
    anonymous = auth_mode(raw) == "none"
    for name, upstream in mapping_at(raw, "upstreams").items():
        owners: dict[str, Location] = {}
        for identifier, decision in mapping_at(upstream, "extensions").items():
            if identifier == "default":
                continue
            where = ("upstreams", name, "extensions", identifier)
            if not _is_identifier(str(identifier)):
                yield where, "must be default, or an identifier with a prefix, such as io.modelcontextprotocol/ui"
                continue
            spelling = _SPELLINGS.get(str(identifier).casefold(), identifier)
            if spelling != identifier:
                yield where, f"must be spelt {spelling}"
                continue
            yield from _decision_conflicts(identifier, decision, where)
            yield from _list_conflicts(identifier, mapping_at(decision), where)
            if identifier != EVENTS:
                yield from _events_conflicts(mapping_at(decision), where)
            for key in ("methods", "notifications", "filters"):
                for index, word in _words(mapping_at(decision), key):
                    if owners.setdefault(word, where) != where:
                        yield (*where, key, index), f"must not stand under {dotted(owners[word])} as well"
            yield from _unsafe(identifier, decision, mapping_at(upstream), where, anonymous=anonymous)
    yield from _unmatched_methods(raw)


def _decision_conflicts(identifier: str, decision: object, where: Location) -> Iterator[Conflict]:
    if identifier == TASKS_EXTENSION:
        if decision != "own":
            yield where, "must be own: tasks are the gateway's, and never those of a server (tasks.upgrade)"
    elif decision == "own":
        yield where, f"must not be own, which {TASKS_EXTENSION} alone is"
    elif identifier in AUTHORIZATION and decision != "deny":
        yield where, "must be deny: how one hop is authorized says nothing to the next"


def _list_conflicts(identifier: str, given: Mapping[str, object], where: Location) -> Iterator[Conflict]:
    methods = list_at(given, "methods")
    for index, method in _words(given, "methods"):
        # A server that folds case takes another spelling for the same method.
        if method.casefold() in _CORE_METHODS:
            yield (*where, "methods", index), "must not be a method of the core, which crosses as it is"
            continue
        owner = _owner(method.casefold())
        if owner is not None and (owner != identifier or method != method.casefold()):
            yield (*where, "methods", index), f"must not be a method that is reserved for {owner}"
    for index, notification in _words(given, "notifications"):
        if notification in ERA_NOTICES:
            yield (*where, "notifications", index), "must not be a notification of the core, which crosses as it is"
    for key, core in (("filters", _CORE_FILTERS), ("result_types", _CORE_RESULTS)):
        for index, word in _words(given, key):
            if word in core:
                yield (*where, key, index), "must not be a word of the core"
    for index, cacheable in enumerate(list_at(given, "cacheable")):
        if cacheable not in methods:
            yield (*where, "cacheable", index), f"must be among {dotted((*where, 'methods'))}"
    if list_at(given, "result_types") and not methods:
        yield (*where, "result_types"), "must be empty without methods: results of the core have their own"


def _events_conflicts(given: Mapping[str, object], where: Location) -> Iterator[Conflict]:
    """Find names that are reserved for the extension of events."""
    for index, notification in _words(given, "notifications"):
        if notification.casefold().startswith("notifications/events/"):
            yield (*where, "notifications", index), f"must not be a notification that is reserved for {EVENTS}"
    for index, word in _words(given, "filters"):
        if word in BUILT_IN[EVENTS].filters:
            yield (*where, "filters", index), f"must not be a member that is reserved for {EVENTS}"


def _words(given: Mapping[str, object], key: str) -> Iterator[tuple[int, str]]:
    """Iterate over the texts of a list, with their indices."""
    return ((index, word) for index, word in enumerate(list_at(given, key)) if isinstance(word, str))


def _owner(method: str) -> str | None:
    """Return the extension that a method is reserved for, if any (X-EXT-20)."""
    if method.startswith("resources/directory/"):
        return SKILLS
    return next((owner for prefix, owner in _RESERVED.items() if method.startswith(prefix)), None)


def _unsafe(
    identifier: str, decision: object, upstream: Mapping[str, object], where: Location, *, anonymous: bool
) -> Iterator[Conflict]:
    """Find extensions through which callers of one server would reach each other."""
    is_program = upstream.get("transport") == "stdio"
    if identifier == EVENTS and (decision == "allow" or _SUBSCRIBE in list_at(mapping_at(decision), "methods")):
        mode = mapping_at(upstream, "credentials").get("mode", "none")
        if is_program:
            # X-UE-7.
            yield where, f"must not carry {_SUBSCRIBE} to a program, which knows no caller: list the other methods"
        elif mode != "token_exchange" and not anonymous:
            # X-EXT-40, X-UE-2.
            why = "a server that takes all users for one would let them end or redirect each other's subscriptions"
            yield where, f"must not carry {_SUBSCRIBE} unless credentials.mode is token_exchange: {why}"
    if is_program and upstream.get("sessions") == "shared" and list_at(mapping_at(decision), "notifications"):
        # X-EXT-42.
        yield (*where, "notifications"), "must be empty with sessions shared, where a notification has no one caller"


def _unmatched_methods(raw: object) -> Iterator[Conflict]:
    """Find globs of rules and rates that match no request of a host."""
    requests = METHODS_OF_HOSTS | _crossing_methods(raw)
    for keys, others in ((("authorization", "rules"), frozenset[str]()), (("limits", "rate"), _COUNTED_NOTICES)):
        for index, rule in enumerate(list_at(raw, *keys)):
            for place, glob in enumerate(list_at(mapping_at(rule), "methods")):
                # Its author would rely on a rule that has no effect.
                if isinstance(glob, str) and not any(fnmatchcase(each, glob) for each in requests | others):
                    yield (
                        (*keys, index, "methods", place),
                        "must match a request that hosts can send, such as tools/call, tasks/* or resources/read",
                    )


def _crossing_methods(raw: object) -> frozenset[str]:
    """Return the methods of extensions that cross at any upstream of the file."""
    found: set[str] = set()
    for name in mapping_at(raw, "upstreams"):
        given = mapping_at(raw, "upstreams", name, "extensions")
        for identifier in ALLOWED_BY_DEFAULT - given.keys():
            found |= BUILT_IN[identifier].methods
        for identifier, decision in given.items():
            if decision == "allow" and identifier in BUILT_IN:
                found |= BUILT_IN[identifier].methods
            found.update(method for _, method in _words(mapping_at(decision), "methods"))
    return frozenset(found)
