"""What the keys about extensions say together, and with rules that name their methods.

What lives here: which decision an identifier may have, what its methods may be called, when it is unsafe to carry it,
and which methods rules can name. What must not: the models. What holds: as in coherence, malformed parts contradict
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from taskgate.config.extension_models import is_identifier
from taskgate.config.problems import Location, dotted
from taskgate.config.transport_coherence import STDIO
from taskgate.config.written import Contradiction, listed, section
from taskgate.protocol.extensions import ALLOWED_BY_DEFAULT, AUTHORIZATION, BUILT_IN, EVENTS, SKILLS
from taskgate.protocol.vocabulary import (
    ERA_NOTICES,
    METHODS_OF_HOSTS,
    NOTE_PROGRESS,
    NOTE_ROOTS_CHANGED,
    TASKS_EXTENSION,
)

_CORE_FILTERS: Final = frozenset(
    {"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds"}
)
_CORE_RESULTS: Final = frozenset({"complete", "input_required", "task"})
_RESERVED: Final = {"tasks/": TASKS_EXTENSION, "events/": EVENTS, "skills/": SKILLS}
_SUBSCRIBE: Final = "events/subscribe"
# The others always pass, so a rate for one of them alone would do nothing.
_COUNTED_NOTICES: Final = frozenset({NOTE_PROGRESS, NOTE_ROOTS_CHANGED})


def extension_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    anonymous = section(written, "auth").get("mode") == "none"
    for name in section(written, "upstreams"):
        here = ("upstreams", name, "extensions")
        upstream = section(written, "upstreams", name)
        owners: dict[str, Location] = {}
        for identifier, decision in section(upstream, "extensions").items():
            if identifier == "default":
                continue
            where = (*here, identifier)
            if not is_identifier(str(identifier)):
                yield where, "must be default, or an identifier with a prefix, such as io.modelcontextprotocol/ui"
                continue
            spelt = _SPELT.get(str(identifier).casefold(), identifier)
            if spelt != identifier:
                yield where, f"must be spelt {spelt}"
                continue
            yield from _of_decision(identifier, decision, where)
            yield from _of_lists(identifier, section(decision), where)
            if identifier != EVENTS:
                yield from _of_events(section(decision), where)
            yield from _of_names(section(decision), where, owners)
            yield from _of_safety(identifier, decision, upstream, where, anonymous=anonymous)
    yield from _of_rules(written)


def _of_decision(identifier: str, decision: object, where: Location) -> Iterator[Contradiction]:
    if identifier == TASKS_EXTENSION:
        if decision != "own":
            yield where, "must be own: tasks are the gateway's, and never those of a server (tasks.upgrade)"
    elif decision == "own":
        yield where, f"must not be own, which {TASKS_EXTENSION} alone is"
    elif identifier in AUTHORIZATION and decision != "deny":
        yield where, "must be deny: how one hop is authorized says nothing to the next"


def _of_lists(identifier: str, said: Mapping[str, object], where: Location) -> Iterator[Contradiction]:
    methods = listed(said, "methods")
    for index, method in _words(said, "methods"):
        # Servers that fold case would take another spelling for the same.
        if method.casefold() in _CORE_METHODS:
            yield (*where, "methods", index), "must not be a method of the core, which crosses as it is"
            continue
        owner = _owner(method.casefold())
        if owner is not None and (owner != identifier or method != method.casefold()):
            yield (*where, "methods", index), f"must not be a method that is reserved for {owner}"
    for index, notification in _words(said, "notifications"):
        if notification in ERA_NOTICES:
            yield (*where, "notifications", index), "must not be a notification of the core, which crosses as it is"
    for key, core in (("filters", _CORE_FILTERS), ("result_types", _CORE_RESULTS)):
        for index, word in _words(said, key):
            if word in core:
                yield (*where, key, index), "must not be a word of the core"
    for index, cacheable in enumerate(listed(said, "cacheable")):
        if cacheable not in methods:
            yield (*where, "cacheable", index), f"must be among {dotted((*where, 'methods'))}"
    if listed(said, "result_types") and not methods:
        yield (*where, "result_types"), "must be empty without methods: results of the core have their own"


def _of_events(said: Mapping[str, object], where: Location) -> Iterator[Contradiction]:
    """What no other extension may name."""
    for index, notification in _words(said, "notifications"):
        if notification.casefold().startswith("notifications/events/"):
            yield (*where, "notifications", index), f"must not be a notification that is reserved for {EVENTS}"
    for index, word in _words(said, "filters"):
        if word in BUILT_IN[EVENTS].filters:
            yield (*where, "filters", index), f"must not be a member that is reserved for {EVENTS}"


def _words(said: Mapping[str, object], key: str) -> Iterator[tuple[int, str]]:
    """The texts of a list, with their places."""
    return ((index, word) for index, word in enumerate(listed(said, key)) if isinstance(word, str))


def _owner(method: str) -> str | None:
    """The extension that such methods are reserved for, if any (X-EXT-20)."""
    if method.startswith("resources/directory/"):
        return SKILLS
    return next((owner for prefix, owner in _RESERVED.items() if method.startswith(prefix)), None)


def _of_names(said: Mapping[str, object], where: Location, owners: dict[str, Location]) -> Iterator[Contradiction]:
    for key in ("methods", "notifications", "filters"):
        for index, word in _words(said, key):
            if owners.setdefault(word, where) != where:
                yield (*where, key, index), f"must not stand under {dotted(owners[word])} as well"


def _of_safety(
    identifier: str, decision: object, upstream: Mapping[str, object], where: Location, *, anonymous: bool
) -> Iterator[Contradiction]:
    is_program = upstream.get("transport") == STDIO
    if identifier == EVENTS and (decision == "allow" or _SUBSCRIBE in listed(section(decision), "methods")):
        mode = section(upstream, "credentials").get("mode", "none")
        if is_program:
            # X-UE-7.
            yield where, f"must not carry {_SUBSCRIBE} to a program, which knows no caller: list the other methods"
        elif mode != "token_exchange" and not anonymous:
            # X-EXT-40, X-UE-2.
            why = "a server that takes all users for one would let them end or redirect each other's subscriptions"
            yield where, f"must not carry {_SUBSCRIBE} unless credentials.mode is token_exchange: {why}"
    if is_program and upstream.get("sessions") == "shared" and listed(section(decision), "notifications"):
        # X-EXT-42.
        yield (*where, "notifications"), "must be empty with sessions shared, where nobody knows whom they are for"


def _of_rules(written: object) -> Iterator[Contradiction]:
    requests = METHODS_OF_HOSTS | _carried(written)
    for keys, others in ((("authorization", "rules"), frozenset[str]()), (("limits", "rate"), _COUNTED_NOTICES)):
        for index, rule in enumerate(listed(written, *keys)):
            for place, glob in enumerate(listed(section(rule), "methods")):
                # A rule for what never comes would be a rule that its author believes in.
                if isinstance(glob, str) and not any(fnmatchcase(each, glob) for each in requests | others):
                    yield (
                        (*keys, index, "methods", place),
                        "must match a request that hosts can send, such as tools/call, tasks/* or resources/read",
                    )


def _carried(written: object) -> frozenset[str]:
    """The methods of extensions that cross any upstream of the file."""
    found: set[str] = set()
    for name in section(written, "upstreams"):
        said = section(written, "upstreams", name, "extensions")
        for identifier in ALLOWED_BY_DEFAULT - said.keys():
            found |= BUILT_IN[identifier].methods
        for identifier, decision in said.items():
            if decision == "allow" and identifier in BUILT_IN:
                found |= BUILT_IN[identifier].methods
            found.update(method for _, method in _words(section(decision), "methods"))
    return frozenset(found)


_METHODS_OF_ERAS: Final = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
_CORE_METHODS: Final = frozenset(method.casefold() for method in METHODS_OF_HOSTS | _METHODS_OF_ERAS)
_SPELT: Final = {name.casefold(): name for name in (*BUILT_IN, *AUTHORIZATION, TASKS_EXTENSION)}
