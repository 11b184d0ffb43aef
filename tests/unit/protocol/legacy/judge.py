"""The published schema of each revision of the legacy era as a judge of what its hosts are shown.

A check takes JSON as text or parsed, fails the test with the place of the fault, and skips it where there are no
schemas. It adds that nothing of the modern era is left, and that no object repeats a key.
"""

import json
from functools import cache
from typing import Any, Final

import pytest

from helpers.published import absent, published
from helpers.schema_judge import SchemaJudge
from taskgate.domain.versions import LEGACY, Revision

OTHER_ERA: Final = ("resultType", "ttlMs", "cacheScope", "io.modelcontextprotocol/serverInfo")
EVERY_HOST: Final = pytest.mark.parametrize("host", LEGACY)


def read(text: str) -> Any:
    """The value of a JSON text in which no object repeats a key."""
    return json.loads(text, object_pairs_hook=_once)


def check(value: Any, name: str, revision: Revision) -> None:
    """Judge a value, or the text of one, by a definition of that revision."""
    found = read(value) if isinstance(value, str) else value
    written = json.dumps(found)
    for word in OTHER_ERA:
        assert f'"{word}":' not in written, f"{word} does not belong into this era"
    fault = _judge(revision, name).fault(found)
    if fault is not None:
        place = "".join(f"[{step!r}]" for step in fault.absolute_path)
        pytest.fail(f"no {name} of {revision}: {fault.message} at {place or 'the top'}\n{written[:2_000]}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a key stands twice: {pairs}"
    return dict(pairs)


@cache
def _judge(revision: Revision, name: str) -> SchemaJudge:
    schema = published(revision)
    if schema is None:
        pytest.skip(absent(revision))
    under = "$defs" if "$defs" in schema else "definitions"
    assert name in schema[under], name
    return SchemaJudge({"$ref": f"#/{under}/{name}", under: schema[under]}, is_draft_7=under != "$defs")
