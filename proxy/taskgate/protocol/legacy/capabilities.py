"""What servers of the legacy era may ask of a host, by what it declared: cut for them, and held against questions.

A host of the modern era is told of in the words of this one: it declares the same, but nothing of tasks. Both sides
read it here, so that no server is promised what no host is asked. Pure. What is no object where an object belongs
counts as not declared, whatever else it is.
"""

from typing import Any, Final

from taskgate.domain.versions import Era, Peer, Revision, era_of
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol import vocabulary as words

TASK_REQUESTS: Final = {
    words.SAMPLING_CREATE: ("sampling", "createMessage"),
    words.ELICITATION_CREATE: ("elicitation", "create"),
}
"""The questions that may ask a host for a task of its own, and where it declares that."""

Declared = dict[str, Any]
"""Capabilities of a host that cross the gateway; every member of it is an object or `true`."""


def declared(host: Peer | None) -> Declared:
    """What a server is told of a host: what the gateway passes on, as far as its revision has it (B-CONV-4)."""
    if host is None:
        return {}
    said, found = host.capabilities, Declared()
    has_parts = host.revision in _WITH_PARTS
    if isinstance(roots := said.get("roots"), dict):
        # In the modern era no host could tell.
        tells = roots.get("listChanged") is True and era_of(host.revision) is Era.LEGACY
        found["roots"] = {"listChanged": True} if tells else {}
    if isinstance(sampling := said.get("sampling"), dict):
        found["sampling"] = _parts(sampling, ("tools", "context")) if has_parts else {}
    if isinstance(elicitation := said.get("elicitation"), dict) and host.revision in _WITH_ELICITATION:
        found["elicitation"] = _parts(elicitation, ("form", "url")) if has_parts else {}
    if isinstance(tasks := said.get("tasks"), dict) and host.revision.has_tasks:
        found["tasks"] = _parts(tasks, ("list", "cancel")) | _task_requests(tasks.get("requests"))
    return found


def refusal(host: Peer | None, method: str, params: Members) -> int | None:
    """The JSON-RPC code that such a question gets in the host's name; None where it can be asked (L-INPUT-6)."""
    found = declared(host)
    match method:
        case words.ROOTS_LIST:
            is_known = "roots" in found
        case words.SAMPLING_CREATE:
            is_known = "sampling" in found
            if is_known and "tools" not in found["sampling"] and _names_tools(params):
                return words.INVALID_PARAMS
        case words.ELICITATION_CREATE:
            is_known = "elicitation" in found
            if is_known and not _takes_mode(found["elicitation"], params):
                return words.INVALID_PARAMS
        case words.TASKS_GET | words.TASKS_RESULT:
            is_known = "tasks" in found
        case words.TASKS_LIST | words.TASKS_CANCEL:
            is_known = method.removeprefix("tasks/") in found.get("tasks", {})
        case _:
            is_known = False
    return None if is_known else words.METHOD_NOT_FOUND


def lacking(host: Peer | None, method: str, params: Members) -> Declared | None:
    """What a host that cannot be asked that would have to declare; None where there is nothing that it could."""
    match method:
        case words.ROOTS_LIST:
            return {"roots": {}}
        case words.SAMPLING_CREATE:
            return {"sampling": {"tools": {}} if _names_tools(params) else {}}
        case words.ELICITATION_CREATE:
            mode = _mode(params)
            if mode == "url" or (mode == "form" and "elicitation" in declared(host)):
                return {"elicitation": {mode: {}}}
            return {"elicitation": {}} if mode == "form" else None
    return None


def allows(host: Peer | None, method: str, params: RawJson) -> bool:
    """Whether the host declared that it can be asked that; `params` is the text of an object, or empty.

    Raises MalformedMessage where it repeats a key.
    """
    return refusal(host, method, members(params)) is None


def hosts_tasks_of(host: Peer | None, method: str) -> bool:
    """Whether the host declared that it makes tasks of such questions where it is asked to (L-HOST-6)."""
    asked, verb = TASK_REQUESTS.get(method, ("", ""))
    return verb in declared(host).get("tasks", {}).get("requests", {}).get(asked, {})


def may_tell(host: Peer | None, method: str) -> bool:
    """Whether a notification of the host is one that its server was told to expect."""
    found = declared(host)
    if method == words.NOTE_ROOTS_CHANGED:
        return "listChanged" in found.get("roots", {})
    return method == words.NOTE_TASK_STATUS and "tasks" in found


def _parts(said: dict[str, Any], names: tuple[str, ...]) -> Declared:
    return {name: {} for name in names if isinstance(said.get(name), dict)}


def _task_requests(said: object) -> Declared:
    if not isinstance(said, dict):
        return {}
    found: Declared = {}
    for asked, verb in TASK_REQUESTS.values():
        verbs = said.get(asked)
        if isinstance(verbs, dict) and isinstance(verbs.get(verb), dict):
            found[asked] = {verb: {}}
    return {"requests": found}


def _names_tools(params: Members) -> bool:
    return any(name in params and params[name].value is not None for name in ("tools", "toolChoice"))


def _takes_mode(elicitation: Declared, params: Members) -> bool:
    mode = _mode(params)
    if mode == "form":
        # Nothing said of modes is what hosts said before there were two.
        return not elicitation or "form" in elicitation
    return mode == "url" and "url" in elicitation


def _mode(params: Members) -> object:
    return params["mode"].value if "mode" in params else "form"


_WITH_PARTS: Final = frozenset({Revision.R2025_11_25, Revision.R2026_07_28})
_WITH_ELICITATION: Final = _WITH_PARTS | {Revision.R2025_06_18}
