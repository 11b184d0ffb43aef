"""The OpenAPI 3.1 document of the API: `document_of` makes it from the routes. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from taskgate.operators.routes import BASE, FORBIDDEN, PARAMETERS, UNAVAILABLE, Answer, Query, Route

_ERRORS: Final = {
    400: "The query or the body is not valid.",
    401: "The request has no right token.",
    403: FORBIDDEN,
    408: "The body is too slow.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header is neither an address nor localhost.",
    429: "Too many wrong tokens came from this address; see `Retry-After`.",
    500: "A fault of taskgate.",
    503: UNAVAILABLE,
}
"""The refusals that each operation may have, by status."""
_HEADERS: Final = {
    "WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}},
    "Retry-After": {"required": True, "description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
}
_HEADER_OF: Final = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}
"""The header of a refusal, by status."""
_REF: Final = "#/components/schemas/{model}"


def document_of(routes: Iterable[Route]) -> dict[str, Any]:
    """The document, as JSON values."""
    routes = tuple(routes)
    inputs = [(route.body, "validation") for route in routes if route.body is not None]
    answers = [answer for route in routes for answer in (route.answer, *route.events.values()) if answer is not None]
    outputs = [(answer, "serialization") for answer in answers]
    _, definitions = models_json_schema([*inputs, *outputs], ref_template=_REF)  # type: ignore[list-item]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(BASE + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "taskgate API for operators",
            "version": "1",
            "description": "Look at the tasks of all callers, and act on them. docs/api.md tells how to use it.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**definitions["$defs"], "Error": _ERROR},
            "headers": _HEADERS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_ERROR: Final = {
    "title": "Error",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "For programs; it stays the same."},
                "message": {"type": "string", "description": "For people."},
            },
        }
    },
}


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _id_of(route),
        "summary": route.summary,
        "description": f"{route.description} Role: {route.role}.",
        "parameters": [*map(_in_path, route.parameters), *_in_query(route.query)],
        "responses": {
            str(route.status): _success(route),
            **{str(status): _refusal(status, text) for status, text in sorted({**_ERRORS, **route.refusals}.items())},
        },
    }
    if route.body is not None:
        found["requestBody"] = {"required": route.needs_body, "content": _json(_reference(route.body))}
    return found


def _refusal(status: int, text: str) -> dict[str, Any]:
    found = {"description": text, "content": _json({"$ref": _REF.format(model="Error")})}
    header = _HEADER_OF.get(status)
    return found if header is None else {**found, "headers": {header: {"$ref": f"#/components/headers/{header}"}}}


def _success(route: Route) -> dict[str, Any]:
    if route.answer is not None:
        return {"description": "Done.", "content": _json(_reference(route.answer))}
    names = ", ".join(f"`{name}` ({answer.__name__})" for name, answer in route.events.items())
    text = f"Events with JSON data: {names}."
    return {"description": text, "content": {"text/event-stream": {"schema": {"type": "string"}}}}


def _id_of(route: Route) -> str:
    parts = [part.strip("{}") for part in route.path.split("/") if part]
    return "_".join([route.method.lower(), *parts])


def _in_path(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": f"^{PARAMETERS[name]}$"},
    }


def _in_query(model: type[Query]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(ref_template=_REF)
    definitions = schema.get("$defs", {})
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": described.get("description", ""),
            "schema": _in_text(_inlined(described, definitions)),
            **({"explode": True} if described.get("type") == "array" else {}),
        }
        for name, described in schema.get("properties", {}).items()
    ]


def _in_text(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value in a query, which cannot be null."""
    found = next((each for each in schema.get("anyOf", ()) if each != {"type": "null"}), schema)
    return {key: value for key, value in found.items() if key not in ("description", "title", "default")}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with the definitions of a query in the place of references to them."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in schema.items()}
    return [_inlined(each, definitions) for each in schema] if isinstance(schema, list) else schema


def _reference(model: type[Answer] | type[Query]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
