"""Modern requests: parameters of hosts prepared for a server, and requests encoded for servers.

`ModernDownstream` uses the first part. It removes from a host's text what is for the gateway alone.
That is `task`, the members of a retry, the `HOP_KEYS` of `_meta`, and taskgate's own keys. The rest
can go to a server of either era. A wrong type raises InvalidParams.

`ModernUpstream` uses the second part. It gives such parameters the `_meta` that every modern
request has (V-META-8), and makes the HTTP headers that repeat parts of it. Every other byte stays.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import MODERN
from taskgate.errors import InvalidParams, MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import Members, RawJson, members, skip_space, span_with_comma
from taskgate.protocol import vocabulary as names
from taskgate.protocol.extensions import ExtensionPolicy, dump_capabilities
from taskgate.protocol.headers import NAME_PARAMS, encode_value, header_arguments, is_bare, is_plain, value_at
from taskgate.protocol.host_requests import Subscription
from taskgate.protocol.jsonrpc import request_text
from taskgate.protocol.messages import Params, Request, is_task_id, required_unicode, spliced_params, value_of
from taskgate.protocol.meta import HOP_KEYS, ObjectEdit, edit_object, edits_for, members_text
from taskgate.protocol.server_messages import EncodedRequest, RequestDraft, ServerSubscription

# --- from hosts -------------------------------------------------------------------------------------------------------


def prepare_params(request: Request, *, without: Collection[str] = ()) -> Params:
    """The parameters of a host's request for a server, split at the progress token if it has one.

    `task`, the members that `without` names, and the keys of `_meta` that do not cross are removed.
    `classify` has checked before that the parameters are an object, and the token is valid.
    """
    found = request.params
    member = found.get("_meta")
    meta = (member and member.members) or {}
    if meta and meta.keys() <= HOP_KEYS and "task" not in found and found.keys().isdisjoint(without):
        # The common case: nothing in `_meta` crosses, so all of it is removed, with the comma before
        # or after it. There is no progress token, as that is none of `HOP_KEYS`.
        (start, end), text, at = span_with_comma(found, found["_meta"]), request.params_text, request.params_at
        return Params(f"{text[: start - at]}{text[end - at :]}")
    return spliced_params(request, edits_for(found, request.params_at, _removal(*without)), meta.get("progressToken"))


@lru_cache(maxsize=8)
def _removal(*removed: str) -> ObjectEdit:
    """The change that removes `task` and these members.

    Without `keeps_hop`, it also removes `HOP_KEYS` and taskgate's own keys from `_meta`.
    """
    return ObjectEdit(drop=("task", *removed))


def stored_params(request: Request, *, without: Collection[str] = ()) -> RawJson:
    """The parameters of `prepare_params` as one text for the record of a task.

    The progress token is removed with its key: it is of this request alone.
    """
    change = ObjectEdit(drop=("task", *without), meta_drop=("progressToken",))
    return spliced_params(request, edits_for(request.params, request.params_at, change), None).head


def read_request_state(params: Members) -> str | None:
    """The `requestState` that the host sends back in a retry; None without one.

    Raises InvalidParams for anything but a string, MalformedMessage for invalid Unicode.
    """
    return required_unicode(params, "requestState", "requestState") if "requestState" in params else None


def read_subscription(params: Members, extensions: ExtensionPolicy) -> Subscription:
    """The events that a host asks for in `subscriptions/listen`.

    Ignored are unknown members, members of extensions that are not allowed, and task ids that are
    none of taskgate's. Raises InvalidParams for a wrong type.
    """
    wanted = value_of(params, "notifications")
    if not isinstance(wanted, dict):
        raise InvalidParams("notifications must be an object")
    tasks = _strings(wanted, "taskIds")
    return Subscription(
        tools=_flag(wanted, "toolsListChanged"),
        prompts=_flag(wanted, "promptsListChanged"),
        resources=_flag(wanted, "resourcesListChanged"),
        resource_uris=_strings(wanted, "resourceSubscriptions"),
        tasks=None if tasks is None else tuple(filter(is_task_id, tasks)),
        filters=tuple(name for name in sorted(extensions.all_filters) if wanted.get(name) is True),
    )


def _flag(wanted: dict[str, Any], name: str) -> bool:
    """A boolean member; false if it is missing."""
    value = wanted.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParams(f"{name} must be true or false")
    return value


def _strings(wanted: dict[str, Any], name: str) -> tuple[str, ...] | None:
    """A list of strings without repetitions; None if it is missing."""
    if name not in wanted:
        return None
    listed = wanted[name]
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise InvalidParams(f"{name} must be a list of strings")
    return tuple(dict.fromkeys(listed))


# --- to servers -------------------------------------------------------------------------------------------------------


REVISION: Final = MODERN[-1]
"""The revision of requests to modern servers."""


def encode_request(id: int, draft: RequestDraft, capabilities: RawJson, info: RawJson) -> EncodedRequest:
    """The request `draft` under that id, with the headers that repeat parts of it.

    `capabilities` are the host's, `info` is the gateway's clientInfo. Parameters that are no object
    are replaced by an empty one. A value that no header can express gets no header. The server then
    refuses the request, and the host sees that error.
    """
    params = draft.params
    text = "" if params is None else params.head if params.tail is None else params.with_token(id)
    text = text if text[:1] == "{" else "{}"
    meta, meta_text = _common_meta(capabilities, info)
    own: dict[str, RawJson] = {}
    if draft.log_level is not None:
        own[names.LOG_LEVEL] = dump(draft.log_level)
    if draft.wants_progress:
        own["progressToken"] = str(id)
    if draft.answers is None and draft.state is None and '"_meta"' not in text and "\\u" not in text:
        # Without escapes, no key can be `_meta`: the object is not walked.
        comma = "," if text[1] == '"' or text[skip_space(text, 1)] != "}" else ""
        put = f"{meta_text},{members_text(own)}" if own else meta_text
        whole = f'{{"_meta":{{{put}}}{comma}{text[1:]}'
    else:
        whole = _with_meta(text, draft, {**meta, **own})
    method, headers = draft.method, {names.VERSION_HEADER: _REVISION, names.METHOD_HEADER: draft.method}
    first = _FIRST(text) if method in NAME_PARAMS and not draft.header_paths and not draft.host_headers else None
    if first is not None and first[1] == NAME_PARAMS[method]:
        # No argument has a header, and the name is the first member of the parameters. They are not
        # walked then.
        headers[names.NAME_HEADER] = first[2] if is_bare(first[2]) else encode_value(first[2])
    else:
        if draft.host_headers:
            headers.update(_other_headers(draft.host_headers, draft.header_paths))
        if method in NAME_PARAMS or draft.header_paths:
            headers.update(_value_headers(text, draft))
    return EncodedRequest(request_text(id, method, whole), headers)


def subscription_params(wants: ServerSubscription) -> RawJson:
    """The parameters of `subscriptions/listen`."""
    flags = {
        "toolsListChanged": wants.tools,
        "promptsListChanged": wants.prompts,
        "resourcesListChanged": wants.resources,
    }
    notifications: dict[str, Any] = {name: True for name, wanted in flags.items() if wanted}
    if wants.uris:
        notifications["resourceSubscriptions"] = list(wants.uris)
    notifications.update(dict.fromkeys(wants.filters, True))
    if wants.tasks:
        notifications["taskIds"] = list(wants.tasks)
    return dump({"notifications": notifications})


def encode_capabilities(core: Mapping[str, Any], others: Mapping[str, Any], *, follows_tasks: bool) -> RawJson:
    """The capabilities of a host as a request states them to a server.

    `core` are those of the protocol itself, `others` those that the extension policy lets cross.
    With `follows_tasks`, the tasks extension is added, because the gateway follows the server's
    tasks.
    """
    declared = {**core, **others}
    if follows_tasks:
        declared["extensions"] = {**others.get("extensions", {}), names.TASKS_EXTENSION: {}}
    return dump_capabilities(declared)


class _CommonMeta(NamedTuple):
    """The members of `_meta` that all requests for one host have; `text` is the same as JSON,
    without braces.
    """

    meta: Mapping[str, RawJson]
    text: RawJson


@lru_cache(maxsize=256)
def _common_meta(capabilities: RawJson, info: RawJson) -> _CommonMeta:
    meta = {names.PROTOCOL_VERSION: f'"{_REVISION}"', names.CLIENT_CAPABILITIES: capabilities, names.CLIENT_INFO: info}
    return _CommonMeta(MappingProxyType(meta), members_text(meta))


def _with_meta(text: RawJson, draft: RequestDraft, meta: Mapping[str, RawJson]) -> RawJson:
    """The parameters with the members of `_meta`, and with the answers and the state of the draft."""
    retried = {"inputResponses": draft.answers, "requestState": draft.state}
    put = {name: value for name, value in retried.items() if value is not None}
    return edit_object(text, ObjectEdit(put=put, drop=tuple(retried) if put else (), meta_put=meta))


def _value_headers(params: RawJson, draft: RequestDraft) -> Iterator[tuple[str, str]]:
    """The headers for the name of a request (H-MOD-1), and for the arguments in `header_paths`
    (H-MOD-5).
    """
    found = members(params)
    wanted = [(names.NAME_HEADER, value_of(found, NAME_PARAMS.get(draft.method, "")))]
    if draft.header_paths:
        try:
            arguments = header_arguments(params, draft.header_paths.values())
        except MalformedMessage:
            # A key on the way to an argument is repeated, or has a lookalike. No header is surely
            # right then, as the server may take either value. It refuses the call without headers.
            arguments = {}
        wanted += [
            (f"{names.PARAM_HEADER}{name}", value_at(arguments, path)) for name, path in draft.header_paths.items()
        ]
    for header, value in wanted:
        encoded = _header_value(value)
        if encoded is not None:
            yield header, encoded


def _other_headers(host_headers: Mapping[str, str], header_paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The host's `Mcp-Param-*` headers that are not in `header_paths`, as the host sent them
    (H-MOD-6).

    The tool does not ask for them, but the server may know them. The keys of `host_headers` are in
    lower case.
    """
    known = {name.lower() for name in header_paths}
    for name, value in host_headers.items():
        if name not in known and is_plain(value):
            yield f"{names.PARAM_HEADER}{name}", value


def _header_value(value: Any) -> str | None:
    """A value as a header; None for a type that has no such form, and for invalid Unicode."""
    if isinstance(value, float) and value.is_integer():
        # 1.0 is an integer in JSON Schema.
        value = int(value)
    if not isinstance(value, str | int):
        return None
    try:
        return encode_value(value)
    except ValueError:
        return None


_REVISION: Final = REVISION.value
_FIRST: Final = re.compile(r'\{"(name|uri)": ?"([^"\\\x00-\x1f]*)"').match
"""Matches parameters whose first member is `name` or `uri`; groups are its key and its value.

The value has no escapes. A parsed text has lone surrogates only as escapes, so `encode_value` does
not fail.
"""
