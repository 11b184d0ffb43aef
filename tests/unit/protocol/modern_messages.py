"""Messages of the modern era and the headers that go with them."""

import json
from dataclasses import is_dataclass, replace
from typing import Any

from taskgate.protocol.classify import Route, classify
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.headers import NAME_PARAMS, RequestHeaders
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Message

MODERN = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LEGACY_TASKS = {"tasks": {"list": {}}}


def message(method: str, params: Any = None, **members: Any) -> Message:
    """A message of any era; no `params` where there are none, and no member that is `...`."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params}), **members}
    return parse(json.dumps({name: value for name, value in body.items() if value is not ...}).encode(), max_depth=64)


def meta(capabilities: Any = None, version: Any = MODERN, **more: Any) -> dict[str, Any]:
    """A complete `_meta`, less what is `...`."""
    said = {VERSION: version, CAPABILITIES: {} if capabilities is None else capabilities, **more}
    return {name: value for name, value in said.items() if value is not ...}


def asked(method: str, capabilities: Any = None, *, params: dict[str, Any] | None = None, **more: Any) -> Message:
    """A request of the modern era that says all it has to, named "n"."""
    return message(
        method, {"name": "n", "uri": "n", "taskId": "n", **(params or {}), "_meta": meta(capabilities, **more)}
    )


def said(method: str | None = None, version: str | None = MODERN) -> RequestHeaders:
    """The headers of such a request."""
    return RequestHeaders(version=version, method=method, name="n" if method in NAME_PARAMS else None)


def classified(
    body: Message,
    headers: RequestHeaders,
    *,
    offers_tasks: bool = True,
    strict_names: bool = False,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> Route:
    """The era of a message with these headers."""
    return classify(
        body,
        headers.version,
        lambda: headers,
        offers_tasks=offers_tasks,
        strict_names=strict_names,
        extensions=extensions,
    )


def routed(method: str, capabilities: Any = None, **more: Any) -> RequestMeta:
    """What such a request says about itself."""
    route = classified(asked(method, capabilities, **more), said(method))
    assert isinstance(route, RequestMeta)
    return route


def changed(value: Any, **changes: Any) -> Any:
    """A named tuple, or an object of a dataclass, with some fields changed."""
    if is_dataclass(value):
        return replace(value, **changes)  # type: ignore[type-var]
    return type(value)(**{**dict(zip(type(value).__annotations__, value, strict=True)), **changes})
