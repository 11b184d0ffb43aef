"""The judge that the other tests trust lets good values pass and fails bad ones."""

from typing import Any

import pytest

from taskgate.domain.versions import Revision
from unit.protocol.legacy.judge import EVERY_HOST, check, read


@EVERY_HOST
def test_a_good_value_passes_as_text_and_as_a_value(host: Revision) -> None:
    check('{"content":[{"type":"text","text":"a"}]}', "CallToolResult", host)
    check({"content": []}, "CallToolResult", host)


@EVERY_HOST
@pytest.mark.parametrize("value", [{}, {"content": 1}, {"content": [{"type": "other"}]}])
def test_a_value_of_another_shape_fails(host: Revision, value: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception):
        check(value, "CallToolResult", host)


@pytest.mark.parametrize("more", [{"ttlMs": 1}, {"_meta": {"x": {"resultType": 1}}}])
def test_a_word_of_the_other_era_fails(more: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check({"content": [], **more}, "CallToolResult", Revision.R2025_11_25)


def test_a_repeated_key_fails() -> None:
    with pytest.raises(AssertionError):
        read('{"a":{"b":1,"b":1}}')


def test_a_definition_that_is_not_there_is_no_judge() -> None:
    with pytest.raises(AssertionError):
        check({}, "NoSuchResult", Revision.R2025_11_25)
