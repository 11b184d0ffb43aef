"""Capabilities of hosts for legacy servers: what a server is told, and whether a question is
allowed.

Both follow from `declared`, so that a server is told only what a host can be asked. The host may be
of either era; a modern one is described in legacy terms, without tasks. None is no host: it has no
capabilities. A capability of a wrong type counts as missing.
"""

from typing import Any, Final

from taskgate.domain.versions import Era, Peer, Revision, era_of
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol import vocabulary as names

TASK_REQUESTS: Final = {
    names.SAMPLING_CREATE: ("sampling", "createMessage"),
    names.ELICITATION_CREATE: ("elicitation", "create"),
}
"""The questions that can ask a host for a task of its own, and the path of that capability."""

_QUESTIONS: Final = frozenset({"roots", "sampling", "elicitation"})
"""The capabilities of hosts that can be asked something."""

Declared = dict[str, Any]
"""Capabilities of a host that cross the gateway; every member is an object or `true`."""


def declared(host: Peer | None) -> Declared:
    """The capabilities of a host for a server, as far as the host's revision has them
    (B-CONV-4).
    """
    if host is None:
        return {}
    own, found = host.capabilities, Declared()
    has_parts = host.revision in _WITH_PARTS
    if isinstance(roots := own.get("roots"), dict):
        # A modern host has no way to send the notification.
        notifies = roots.get("listChanged") is True and era_of(host.revision) is Era.LEGACY
        found["roots"] = {"listChanged": True} if notifies else {}
    if isinstance(sampling := own.get("sampling"), dict):
        found["sampling"] = _parts(sampling, ("tools", "context")) if has_parts else {}
    if isinstance(elicitation := own.get("elicitation"), dict) and host.revision in _WITH_ELICITATION:
        found["elicitation"] = _parts(elicitation, ("form", "url")) if has_parts else {}
    if isinstance(tasks := own.get("tasks"), dict) and host.revision.has_tasks:
        found["tasks"] = _parts(tasks, ("list", "cancel")) | _task_requests(tasks.get("requests"))
    return found


def may_be_asked(host: Peer) -> bool:
    """Whether a server may ask the host something on a stream. A modern host is asked by answers."""
    return era_of(host.revision) is Era.LEGACY and not _QUESTIONS.isdisjoint(declared(host))


def refusal(host: Peer | None, method: str, params: Members) -> int | None:
    """The JSON-RPC error code for a question that the host does not support; None if it can be
    asked (L-INPUT-6).
    """
    found = declared(host)
    match method:
        case names.ROOTS_LIST:
            is_known = "roots" in found
        case names.SAMPLING_CREATE:
            is_known = "sampling" in found
            if is_known and "tools" not in found["sampling"] and _names_tools(params):
                return names.INVALID_PARAMS
        case names.ELICITATION_CREATE:
            is_known = "elicitation" in found
            if is_known and not _has_mode(found["elicitation"], params):
                return names.INVALID_PARAMS
        case names.TASKS_GET | names.TASKS_RESULT:
            is_known = "tasks" in found
        case names.TASKS_LIST | names.TASKS_CANCEL:
            is_known = method.removeprefix("tasks/") in found.get("tasks", {})
        case _:
            is_known = False
    return None if is_known else names.METHOD_NOT_FOUND


def missing(host: Peer | None, method: str, params: Members) -> Declared | None:
    """The capabilities with which the host could be asked a question that `refusal` refused.

    None if no capability would help.
    """
    match method:
        case names.ROOTS_LIST:
            return {"roots": {}}
        case names.SAMPLING_CREATE:
            return {"sampling": {"tools": {}} if _names_tools(params) else {}}
        case names.ELICITATION_CREATE:
            mode = _mode(params)
            if mode == "url" or (mode == "form" and "elicitation" in declared(host)):
                return {"elicitation": {mode: {}}}
            return {"elicitation": {}} if mode == "form" else None
    return None


def can_ask(host: Peer | None, method: str, params: RawJson) -> bool:
    """Whether the host can be asked that; `params` is the text of an object, or empty.

    Raises MalformedMessage if it repeats a key.
    """
    return refusal(host, method, members(params)) is None


def makes_tasks_of(host: Peer | None, method: str) -> bool:
    """Whether the host runs questions of that method as tasks of its own on request (L-HOST-6)."""
    group, verb = TASK_REQUESTS.get(method, ("", ""))
    return verb in declared(host).get("tasks", {}).get("requests", {}).get(group, {})


def allows_notification(host: Peer | None, method: str) -> bool:
    """Whether a notification of the host is for its server: what was declared promises it."""
    found = declared(host)
    if method == names.NOTE_ROOTS_CHANGED:
        return "listChanged" in found.get("roots", {})
    return method == names.NOTE_TASK_STATUS and "tasks" in found


def _parts(capability: dict[str, Any], parts: tuple[str, ...]) -> Declared:
    return {name: {} for name in parts if isinstance(capability.get(name), dict)}


def _task_requests(requests: object) -> Declared:
    if not isinstance(requests, dict):
        return {}
    found: Declared = {}
    for group, verb in TASK_REQUESTS.values():
        verbs = requests.get(group)
        if isinstance(verbs, dict) and isinstance(verbs.get(verb), dict):
            found[group] = {verb: {}}
    return {"requests": found}


def _names_tools(params: Members) -> bool:
    return any(name in params and params[name].value is not None for name in ("tools", "toolChoice"))


def _has_mode(elicitation: Declared, params: Members) -> bool:
    mode = _mode(params)
    if mode == "form":
        # Without modes it means forms: revisions before URL mode had no modes.
        return not elicitation or "form" in elicitation
    return mode == "url" and "url" in elicitation


def _mode(params: Members) -> object:
    return params["mode"].value if "mode" in params else "form"


_WITH_PARTS: Final = frozenset({Revision.R2025_11_25, Revision.R2026_07_28})
_WITH_ELICITATION: Final = _WITH_PARTS | {Revision.R2025_06_18}
