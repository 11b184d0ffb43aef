"""Requests to servers of this era: what each says about the gateway and its host, and the headers that repeat it.

A request in the words of the legacy era gets the `_meta` that every one has here (V-META-8); its parameters stay to
the byte otherwise. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.versions import MODERN
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import RawJson, members, skip_space
from taskgate.protocol import vocabulary as words
from taskgate.protocol.extensions import dump_capabilities
from taskgate.protocol.headers import NAME_PARAMS, encode_value, header_arguments, is_plain, value_at
from taskgate.protocol.jsonrpc import request_text
from taskgate.protocol.messages import value_of
from taskgate.protocol.meta import ObjectEdit, edit_object, members_text
from taskgate.protocol.server_messages import EncodedRequest, RequestDraft, ServerSubscription

SPOKEN: Final = MODERN[-1]
"""The revision in which servers of this era are spoken to."""


def request(id: int, saying: RequestDraft, capabilities: RawJson, info: RawJson) -> EncodedRequest:
    """The request as it leaves; `capabilities` are what its host is said to have, `info` is the gateway's own.

    What a header cannot carry, or is of a type that has no header, is left out of them: its server refuses the request,
    which is for the host to hear.
    """
    text = "" if saying.params is None else saying.params.with_token(id)
    text = text if text.startswith("{") else "{}"
    amended = _amended(text, saying, _told(capabilities, info), _more(id, saying))
    return EncodedRequest(request_text(id, saying.method, amended), _headers(text, saying))


def _headers(params: RawJson, saying: RequestDraft) -> Mapping[str, str]:
    """The headers that repeat parts of the request."""
    method = saying.method
    first = _FIRST(params) if method in NAME_PARAMS and not saying.header_paths and not saying.host_headers else None
    if first is not None and first[1] == NAME_PARAMS[method]:
        # As nearly always: the name alone, and where it is looked for.
        return {words.VERSION_HEADER: _SPOKEN, words.METHOD_HEADER: method, words.NAME_HEADER: encode_value(first[2])}
    headers = {words.VERSION_HEADER: _SPOKEN, words.METHOD_HEADER: method}
    if saying.host_headers:
        headers.update(_passed_on(saying.host_headers, saying.header_paths))
    if method in NAME_PARAMS or saying.header_paths:
        headers.update(_repeated(params, saying))
    return headers


def listening(wants: ServerSubscription) -> RawJson:
    """The parameters of `subscriptions/listen`."""
    flags = {
        "toolsListChanged": wants.tools,
        "promptsListChanged": wants.prompts,
        "resourcesListChanged": wants.resources,
    }
    told: dict[str, Any] = {name: True for name, wanted in flags.items() if wanted}
    if wants.uris:
        told["resourceSubscriptions"] = list(wants.uris)
    told.update(dict.fromkeys(wants.filters, True))
    if wants.tasks:
        told["taskIds"] = list(wants.tasks)
    return dump({"notifications": told})


def capabilities(asked: Mapping[str, Any], carried: Mapping[str, Any], *, follows_tasks: bool) -> RawJson:
    """What a server is told of a host: what it can be asked, what else crosses, and tasks where they are followed."""
    told = {**asked, **carried}
    if follows_tasks:
        told["extensions"] = {**carried.get("extensions", {}), words.TASKS_EXTENSION: {}}
    return dump_capabilities(told)


class _Told(NamedTuple):
    """What every request for a host says in its `_meta`, and that written."""

    meta: Mapping[str, RawJson]
    text: RawJson


@lru_cache(maxsize=256)
def _told(capabilities: RawJson, info: RawJson) -> _Told:
    meta = {words.PROTOCOL_VERSION: f'"{_SPOKEN}"', words.CLIENT_CAPABILITIES: capabilities, words.CLIENT_INFO: info}
    return _Told(MappingProxyType(meta), members_text(meta))


def _more(id: int, saying: RequestDraft) -> dict[str, RawJson]:
    """What else this one says there."""
    more: dict[str, RawJson] = {}
    if saying.log_level is not None:
        more[words.LOG_LEVEL] = dump(saying.log_level)
    if saying.wants_progress:
        more["progressToken"] = dump(id)
    return more


def _amended(text: RawJson, saying: RequestDraft, told: _Told, more: Mapping[str, RawJson]) -> RawJson:
    """The parameters with all that goes with them."""
    if saying.answers is None and saying.state is None and '"_meta"' not in text and "\\u" not in text:
        # However a key of it is written, none is `_meta`: it has not to be walked.
        comma = "" if text[skip_space(text, 1)] == "}" else ","
        meta = f"{told.text},{members_text(more)}" if more else told.text
        return f'{{"_meta":{{{meta}}}{comma}{text[1:]}'
    again = {"inputResponses": saying.answers, "requestState": saying.state}
    put = {name: value for name, value in again.items() if value is not None}
    return edit_object(text, ObjectEdit(put=put, drop=tuple(again) if put else (), meta_put={**told.meta, **more}))


def _repeated(params: RawJson, saying: RequestDraft) -> Iterator[tuple[str, str]]:
    """The headers for the name and the arguments that are there (H-MOD-1, H-MOD-5)."""
    found = members(params)
    wanted = [(words.NAME_HEADER, value_of(found, NAME_PARAMS.get(saying.method, "")))]
    if saying.header_paths:
        try:
            arguments = header_arguments(params, saying.header_paths.values())
        except MalformedMessage:
            # Which of two the server takes is not known, so no header says one; the server refuses the call for that.
            arguments = {}
        wanted += [
            (f"{words.PARAM_HEADER}{name}", value_at(arguments, path)) for name, path in saying.header_paths.items()
        ]
    for header, value in wanted:
        encoded = _written(value)
        if encoded is not None:
            yield header, encoded


def _passed_on(repeated: Mapping[str, str], mirrored: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What the host's headers say of arguments that nobody is known to want repeated: the server may know (H-MOD-6)."""
    known = {name.lower() for name in mirrored}
    for name, value in repeated.items():
        if name not in known and is_plain(value):
            yield f"{words.PARAM_HEADER}{name}", value


def _written(value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        # A whole number is one however it is written.
        value = int(value)
    if not isinstance(value, str | int):
        return None
    try:
        return encode_value(value)
    except ValueError:
        return None


_SPOKEN: Final = SPOKEN.value
_FIRST: Final = re.compile(r'\{"(name|uri)": ?"([^"\\\x00-\x1f]*)"').match
"""A name without escapes where nearly all requests have it, in front; no text that was read holds a lone surrogate."""
