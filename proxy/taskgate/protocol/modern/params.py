"""Reading the parameters of requests of this era: types checked, the host's text kept.

Everything of the wrong type is InvalidParams. What belongs to this hop alone (`task`, which means nothing
here, the answers of a retry, the protocol's own keys of `_meta`, and ours) is cut out; every other byte stays.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

from taskgate.errors import InvalidParams
from taskgate.jsontext.edits import removals, splice_range
from taskgate.jsontext.spans import Members, RawJson
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.messages import Params, Request, is_task_id, meta_of, required_unicode, value_of
from taskgate.protocol.meta import HOP_KEYS, ObjectEdit, edits_for


def passage(request: Request, *, less: Collection[str] = ()) -> Params:
    """The parameters of a request, made ready for a server, without the members that `less` names.

    They are an object, with a `_meta` whose progress token can be one.
    """
    found, text, begin = request.params, request.text, request.params_at
    end = begin + len(request.params_text)
    if _has_only_meta_of_hop(found) and found.keys().isdisjoint((*less, "task")):
        # As nearly always: all that is not for the server stands in one place.
        return Params(splice_range(text, begin, end, removals(found, _META)))
    edits = edits_for(found, begin, _without(*less))
    token = meta_of(found).get("progressToken")
    if token is None:
        return Params(splice_range(text, begin, end, edits))
    return Params(splice_range(text, begin, token.start, edits), splice_range(text, token.end, end, edits))


def _has_only_meta_of_hop(found: Members) -> bool:
    meta = found.get("_meta")
    inner = None if meta is None else meta.members
    return inner.keys() <= HOP_KEYS if inner else False


_META: Final = ("_meta",)


@lru_cache(maxsize=8)
def _without(*names: str) -> ObjectEdit:
    return ObjectEdit(drop=("task", *names))


def kept(request: Request, *, less: Collection[str] = ()) -> RawJson:
    """The same parameters as a record keeps them: without any progress token."""
    begin = request.params_at
    change = ObjectEdit(drop=("task", *less), meta_drop=("progressToken",))
    edits = edits_for(request.params, begin, change)
    return splice_range(request.text, begin, begin + len(request.params_text), edits)


def request_state(params: Members) -> str | None:
    """What the host was given to hand back; None where it hands nothing back."""
    return required_unicode(params, "requestState", "requestState") if "requestState" in params else None


def subscription(params: Members, extensions: ExtensionPolicy) -> Subscription:
    """What a host wants to hear of; members that are not known are nothing to it, nor those of no carried extension."""
    wanted = value_of(params, "notifications")
    if not isinstance(wanted, dict):
        raise InvalidParams("notifications must be an object")
    tasks = _texts(wanted, "taskIds")
    return Subscription(
        tools=_flag(wanted, "toolsListChanged"),
        prompts=_flag(wanted, "promptsListChanged"),
        resources=_flag(wanted, "resourcesListChanged"),
        resource_uris=_texts(wanted, "resourceSubscriptions"),
        tasks=None if tasks is None else tuple(filter(is_task_id, tasks)),
        filters=tuple(name for name in sorted(extensions.all_filters) if wanted.get(name) is True),
    )


def _flag(wanted: dict[str, Any], name: str) -> bool:
    value = wanted.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParams(f"{name} must be true or false")
    return value


def _texts(wanted: dict[str, Any], name: str) -> tuple[str, ...] | None:
    if name not in wanted:
        return None
    listed = wanted[name]
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise InvalidParams(f"{name} must be a list of strings")
    return tuple(dict.fromkeys(listed))
