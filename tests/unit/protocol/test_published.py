"""The schemas that a released suite carries are the published ones."""

from typing import Any

import pytest

from helpers.published import RELEASED, SHARED, of_the_suite, published

pytestmark = [
    pytest.mark.program,
    pytest.mark.skipif(not SHARED.is_dir(), reason="there is nothing to compare the suite's schemas with"),
]

# What the suite was released before: a number where an integer was, and a definition of another name.
LATER = {
    "2025-03-26": set(),
    "2025-06-18": {"NumberSchema"},
    "2025-11-25": {"NumberSchema"},
    "2026-07-28": {
        "SubscriptionsListenResult",
        "SubscriptionsListenResultMeta",
        "SubscriptionsListenResultMetaObject",
        "SubscriptionsListenResultResponse",
    },
}


def definitions(schema: dict[str, Any] | None) -> dict[str, Any]:
    assert schema is not None
    found: dict[str, Any] = schema["$defs"] if "$defs" in schema else schema["definitions"]
    return found


@pytest.mark.parametrize("revision", sorted(RELEASED))
def test_a_schema_of_the_suite_is_the_published_one_but_for_what_was_changed_later(revision: str) -> None:
    if not of_the_suite():
        pytest.skip("the suite is not installed (make peers)")
    ours, theirs = definitions(published(revision)), definitions(of_the_suite()[revision])
    assert {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)} == LATER[revision]
