"""The API of operators: `OperatorsApi` answers one request, whatever carries it."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.operators.access import ApiError, Operator, OperatorAccess
from taskgate.operators.openapi import document_of
from taskgate.operators.routes import BASE, Answer, ApiCall, EventStream, Route, RouteTable, read_body, read_query

_OPENAPI: Final = f"{BASE}/openapi.json"
_log = logging.getLogger("taskgate.operators")


class ApiReply(NamedTuple):
    """An answer. `audited` is the path for the audit log; None if it has no line there.

    With a `stream` its parts of `media_type` follow in place of the body, until it ends or the reader is
    gone. `details` are further members of that line, and `task` is the one whose payload is shown.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    operator: Operator | None = None
    audited: str | None = None
    details: Mapping[str, int] = MappingProxyType({})
    task: TaskRecord | None = None
    stream: EventStream | None = None
    media_type: str = "application/json"


class OperatorsApi:
    """The routes, and who may use them. `close` ends what they have begun, when no request comes any more."""

    def __init__(
        self, access: OperatorAccess, routes: Iterable[Route], *, close: Callable[[], Awaitable[None]]
    ) -> None:
        self._access = access
        self.close = close
        self._table = RouteTable(routes)
        self._document = orjson.dumps(document_of(self._table.routes))

    async def answer(
        self,
        *,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: Mapping[str, str],
        authorizations: list[str],
        address: str,
        read: Callable[[], Awaitable[bytes]],
    ) -> ApiReply:
        """Answer a request. Never raises.

        `headers` finds a name in any case; `authorizations` has all headers of that name. `read` returns
        the body. It is called once the token may use the route, and may raise ApiError.
        """
        operator: Operator | None = None
        audited: str | None = None
        details: dict[str, int] = {}
        shown: list[TaskRecord] = []
        try:
            operator = self._access.identify(headers, authorizations, address, method)
            if path == _OPENAPI and method == "GET":
                return ApiReply(200, self._document, {}, operator)
            route, parameters = self._table.find(method, path)
            audited = path if route.has_line else None
            if not operator.may(route.role):
                audited = path
                raise ApiError(403, "not_allowed", f"the token has the role {operator.role}; {route.role} is needed")
            body = await read()
            call = ApiCall(
                operator=operator,
                last_event=headers.get("Last-Event-ID"),
                is_allowed=partial(self._is_allowed, route, headers, authorizations),
                parameters=parameters,
                query=read_query(route.query, query),
                body=read_body(route.body, headers.get("Content-Type", ""), body, is_needed=route.needs_body),
                details=details,
                shown=shown,
            )
            answer = await route.handler(call)
            if not isinstance(answer, Answer):
                task = shown[0] if shown else None
                return ApiReply(
                    route.status, b"", {}, operator, audited, details, task, stream=answer, media_type=route.media_type
                )
            return ApiReply(route.status, answer.model_dump_json().encode(), {}, operator, audited, details)
        except ApiError as error:
            refusal = error
        except StoreUnavailable:
            refusal = ApiError(503, "store_unavailable", "the task store does not answer: try again", **_RETRY)
        except Exception as error:
            _log.error("a request of an operator failed", extra={"error": type(error).__name__})
            refusal = ApiError(500, "internal", "internal error")
        if operator is None and refusal.status in (401, 403):
            # Before the token is known, the path is any text of a stranger.
            audited = BASE
        task, document = (shown[0] if shown else None), orjson.dumps(refusal.document())
        return ApiReply(refusal.status, document, refusal.headers, operator, audited, details, task)

    def _is_allowed(self, route: Route, headers: Mapping[str, str], authorizations: list[str]) -> bool:
        """Whether the token or the session of a request may use the route now."""
        operator = self._access.find(headers, authorizations)
        return operator is not None and operator.may(route.role)


_RETRY: Final = {"Retry-After": "1"}
