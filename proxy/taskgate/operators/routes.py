"""The form of a route of the API: `Route`, with what its handler gets (`ApiCall`) and returns.

Queries, bodies and answers are pydantic models, from which `openapi` makes the document.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from taskgate.auth.claims import MAX_NAME
from taskgate.domain.record import CallerNames, TaskRecord
from taskgate.operators.access import ApiError, Operator, Role

BASE: Final = "/api/v1"
CALLER_PREFIX: Final = "c_"
"""The beginning of the reference of a caller."""
CALLER_FILTER: Final = "The reference of the caller, `c_…`, or its subject."
"""What a filter by caller takes."""
FORBIDDEN: Final = "The role of the token does not allow it, or the request comes from a web page of another origin."
UNAVAILABLE: Final = "The gateway starts, or its task store does not answer; see `Retry-After`."
"""The refusals 403 and 503 of all operations."""
MAX_QUERY: Final = 32
"""The most parameters of a query."""
_PARAMETER: Final = re.compile(r"\{(\w+)\}")

PARAMETERS: Final = {
    "reference": r"t_[A-Za-z0-9_-]{22}",
    "name": r"[a-z0-9][a-z0-9_-]{0,63}",
    "session": r"s_[A-Za-z0-9_-]{22}",
}
"""The form of each parameter of a path."""


class Query(BaseModel):
    """Base of the parameters of a query, and of bodies. An unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True)


class NoQuery(Query):
    """No parameters."""


class NamedAnswer(Answer):
    """Base of answers about a caller. Its names are null without authentication, and if operators see no names."""

    issuer: Annotated[str | None, Field(description="The name of its issuer in the configuration.")] = None
    subject: Annotated[str | None, Field(description="The subject of its token or API key.")] = None
    client: Annotated[str | None, Field(description="The client id of its token.")] = None
    tenant: Annotated[str | None, Field(description="Its tenant. Of a task without names it is a reference.")] = None


def caller_reference(key: str) -> str:
    """The reference of the caller with that key, as the audit log shows it."""
    return CALLER_PREFIX + key


def names_of(names: CallerNames | None) -> dict[str, Any]:
    """The names of a caller as members of a `NamedAnswer`."""
    return {} if names is None else names._asdict()


def is_caller(asked: str, key: str, names: CallerNames | None) -> bool:
    """Whether a filter means the caller with that key: by its reference or its subject."""
    return caller_reference(key) == asked or (names is not None and asked == names.subject)


Text = Annotated[str, StringConstraints(min_length=1, max_length=256)]
CallerName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]
"""A name of a caller, or its reference."""

_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _whole(value: object) -> object:
    if isinstance(value, str) and _WHOLE.fullmatch(value) is None:
        raise PydanticCustomError("whole", "Input should be a whole number, such as 50")
    # JSON has one kind of numbers, so 3.0 is a whole one.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: object) -> object:
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
        raise PydanticCustomError("number", "Input should be a number as in JSON, such as 1.5")
    return value


WHOLE: Final = BeforeValidator(_whole)
"""For a whole number: in a query it consists of digits. It stands after the bounds, which it would hide."""
NUMBER: Final = BeforeValidator(_number)
"""For a number: in a query it has the form of JSON. It stands after the bounds, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request whose token may use the route: the parameters of the path, the query, the body.

    A handler adds to `details` what the line of the request in the audit log has of its own. To `shown`
    it adds the head of the task whose payload it shows.
    `last_event` is the `Last-Event-ID` of a reader that comes back. `is_allowed` tells later on
    whether the token may still use the route.
    """

    operator: Operator
    parameters: dict[str, str]
    query: Any
    body: Any
    last_event: str | None = None
    is_allowed: Callable[[], bool] = lambda: True
    details: dict[str, int] = field(default_factory=dict)
    shown: list[TaskRecord] = field(default_factory=list)


EventStream = AsyncGenerator[bytes]
"""The parts of an event stream or of a large document.

An empty part only asks whether the reader is still there.
"""

Handler = Callable[[ApiCall], Awaitable[Answer | EventStream]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation. `path` is below BASE; `refusals` are its own codes of errors by status.

    A request without a `body` is refused if it `needs_body`.

    An operation that is no GET is an action, so it is written to the audit log; a GET is if it
    `is_audited`. Without an `answer` it is an event stream, with these `events` by name.
    """

    method: str
    path: str
    summary: str
    description: str
    role: Role
    answer: type[Answer] | None
    handler: Handler
    query: type[Query] = NoQuery
    body: type[Query] | None = None
    needs_body: bool = True
    status: int = 200
    refusals: dict[int, str] = field(default_factory=dict)
    events: dict[str, type[Answer]] = field(default_factory=dict)
    is_audited: bool = False

    @property
    def has_line(self) -> bool:
        """Whether a request that is not refused is a line of the audit log."""
        return self.is_audited or self.method != "GET"

    @property
    def media_type(self) -> str:
        """The type of an answer that is sent in parts."""
        return "text/event-stream" if self.answer is None else "application/json"

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters of the path."""
        return _PARAMETER.findall(self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression that the whole path matches."""
        return re.compile(BASE + _PARAMETER.sub(lambda found: f"(?P<{found[1]}>{PARAMETERS[found[1]]})", self.path))


class RouteTable:
    """The routes by path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes: Sequence[Route] = tuple(routes)
        self._paths: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in self.routes:
            self._paths.setdefault(route.path, (route.pattern, {}))[1][route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route of a request and the parameters of its path. Raises ApiError: 404 or 405."""
        for pattern, methods in self._paths.values():
            match = pattern.fullmatch(path)
            if match is not None:
                if method not in methods:
                    allowed = ", ".join(methods)
                    raise ApiError(405, "method_not_allowed", f"use {allowed}", Allow=allowed)
                return methods[method], match.groupdict()
        raise ApiError(404, "not_found", "the API has no such path")


def read_query(model: type[Query], pairs: Sequence[tuple[str, str]]) -> Query:
    """The parameters of a query. Raises ApiError (400).

    A list is a parameter that is repeated, or values with commas between them.
    """
    if len(pairs) > MAX_QUERY:
        raise ApiError(400, "invalid_query", f"at most {MAX_QUERY} parameters are allowed")
    values: dict[str, Any] = {}
    for name, value in pairs:
        field_ = model.model_fields.get(name)
        if field_ is not None and get_origin(field_.annotation) is tuple:
            values.setdefault(name, []).extend(value.split(","))
        elif name in values:
            raise ApiError(400, "invalid_query", f"{_shown(name)}: must be given once")
        else:
            values[name] = value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, "invalid_query") from None


def read_body(model: type[Query] | None, content_type: str, body: bytes, *, is_needed: bool = True) -> Query | None:
    """The body of a request. Raises ApiError: 400, or 415 for one that is no JSON.

    No value is converted: a text is no number, and `true` no 1.
    """
    if model is not None and not body and not is_needed:
        return model()
    if model is None:
        if body:
            raise ApiError(400, "invalid_body", "the operation takes no body")
        return None
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "unsupported_media_type", "the body must be application/json")
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise _invalid(error, "invalid_body") from None


def _invalid(error: ValidationError, code: str) -> ApiError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, code, "the body must be JSON")
    place = ".".join(_shown(str(part)) for part in first["loc"])
    return ApiError(400, code, f"{place}: {first['msg']}" if place else first["msg"])


def _shown(name: str) -> str:
    """A name of the caller for a message: short and without special characters."""
    return re.sub(r"[^\w-]", "?", name[:64])
