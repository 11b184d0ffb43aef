"""The published schemas of 2026-07-28 and of its tasks extension as judges of what the gateway says to hosts.

A check takes JSON as text or parsed, fails the test with the place of the fault, and skips it where there are no
schemas. It adds what they leave open: no object repeats a key, and no name of the other era stands in a task.
"""

import json
from functools import cache
from typing import Any, Final

import pytest

from helpers.published import absent, published
from helpers.schema_judge import SchemaJudge

CORE: Final = "2026-07-28"
EXTENSION: Final = "tasks-extension"
RELATED: Final = "io.modelcontextprotocol/related-task"
INFO: Final = '{"name":"taskgate","version":"0.1.0"}'
INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
TOLD: Final = {INFO_KEY: {"name": "taskgate", "version": "0.1.0"}}
"""The `_meta` of a result that says nothing else."""


def read(text: str) -> Any:
    """The value of a JSON text in which no object repeats a key."""
    return json.loads(text, object_pairs_hook=_once)


def check(value: Any, *names: str, schema: str = CORE) -> None:
    """Judge a value, or the text of one, against each of these definitions."""
    found = read(value) if isinstance(value, str) else value
    for name in names:
        fault = _judge(schema, name).fault(found)
        if fault is not None:
            place = "".join(f"[{step!r}]" for step in fault.absolute_path)
            pytest.fail(f"no {name}: {fault.message} at {place or 'the top'}\n{json.dumps(found)[:2_000]}")


def check_task(value: Any, *names: str) -> None:
    """Judge a message about a task by the extension, and by what it must not hold."""
    found = read(value) if isinstance(value, str) else value
    written = json.dumps(found)
    for name in ("ttl", "pollInterval", RELATED, "requestState"):
        assert f'"{name}":' not in written, f"{name} does not belong into a task of this era"
    check(found, *names, schema=EXTENSION)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a key stands twice: {pairs}"
    return dict(pairs)


@cache
def _judge(schema: str, name: str) -> SchemaJudge:
    found = published(schema)
    if found is None:
        pytest.skip(absent(schema))
    definitions = found["$defs"]
    assert name in definitions, name
    return SchemaJudge({"$ref": f"#/$defs/{name}", "$defs": definitions})
