"""Requests that a program makes up from the OpenAPI document: each answer is one that the document has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from helpers.scripted_upstream import Hold, ScriptedServer
from helpers.whole_gateway import WholeGateway, configuration, running
from interaction.operating import OPS, VIEWER, tokens

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
EXAMPLES = 60

TEXTS = st.one_of(
    st.text(max_size=40), st.sampled_from(["working", "failed", "reports", "t_", "c_anonymous", "5", "-1", "true", ""])
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each operation but those that end the gateway, read files, or have no end themselves."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if path not in ("/api/v1/drain", "/api/v1/reload", "/api/v1/events"):
                yield path, method.upper(), operation


def judge(schema: dict[str, Any]) -> Draft202012Validator:
    """The judge of a document by a schema of the document."""
    return Draft202012Validator({**schema, "components": {"schemas": SCHEMAS}})


@st.composite
def made_up(draw: Any, operation: dict[str, Any], path: str) -> tuple[str, bytes | None]:
    """A path with its query, and a body: of known parameters with any values, and of others."""
    for part in ("reference", "name"):
        if f"{{{part}}}" in path:
            known = "t_" + "A" * 22 if part == "reference" else "reports"
            path = path.replace(f"{{{part}}}", quote(draw(st.just(known) | TEXTS.filter(bool)), safe=""))
    names = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    chosen = st.sampled_from(names) | TEXTS if names else TEXTS
    pairs = draw(st.lists(st.tuples(chosen, TEXTS), max_size=4))
    body = None
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        known_members = sorted(SCHEMAS[reference.rpartition("/")[2]]["properties"])
        members = st.dictionaries(st.sampled_from(known_members) | TEXTS, VALUES, max_size=5)
        body = json.dumps(draw(members | VALUES)).encode()
    return f"{path}?{urlencode(pairs, errors='surrogatepass')}", body


@pytest.mark.parametrize(
    ("path", "method", "operation"), list(operations()), ids=lambda each: each if isinstance(each, str) else ""
)
async def test_every_answer_is_one_that_the_document_has(
    server: ScriptedServer, tmp_path: Path, path: str, method: str, operation: dict[str, Any]
) -> None:
    server.script["report"] = Hold()
    found: list[tuple[str, bytes | None]] = []

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(request=made_up(operation, path))
    def make_up(request: tuple[str, bytes | None]) -> None:
        found.append(request)

    make_up()
    async with running(configuration({"reports": server.url}, admin=tokens(tmp_path))) as gateway:
        await (await gateway.greeted()).start("report")
        for target, body in found:
            for bearer in (OPS, VIEWER):
                await answered_as_documented(gateway, operation, (target, method, body), bearer)


async def answered_as_documented(
    gateway: WholeGateway, operation: dict[str, Any], request: tuple[str, str, bytes | None], bearer: str
) -> None:
    """Send a request, and hold its answer against the document."""
    target, method, body = request
    headers = {"Authorization": bearer, "Content-Type": "application/json"}
    status, answered, text = await gateway.operators_answer(target, method, body, **headers)
    # A made-up path may be none of the API.
    assert str(status) in {*operation["responses"], "404", "405"}, (request, text)
    assert answered["Content-Type"].startswith("application/json")
    document = operation["responses"].get(str(status), operation["responses"]["400"])
    schema = document["content"]["application/json"]["schema"]
    assert [each.message for each in judge(schema).iter_errors(json.loads(text))] == [], request
