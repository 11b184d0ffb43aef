"""Which methods exist in this era, by name."""

from requirements import covers
from taskgate.protocol.modern.words import CACHEABLE, IN_ROUNDS, RELAYED, RESERVED

LISTS = {"tools/list", "prompts/list", "resources/list", "resources/templates/list"}


def test_what_servers_answer_is_what_the_era_has_less_what_the_gateway_answers() -> None:
    assert LISTS | {"prompts/get", "resources/read", "completion/complete"} == RELAYED


@covers("V-CACHE-1")
def test_lists_and_resources_say_how_long_they_may_be_kept() -> None:
    # But for server/discover, which no server is asked.
    assert LISTS | {"resources/read"} == CACHEABLE


@covers("M-MRTR-1")
def test_three_methods_may_be_answered_with_questions() -> None:
    assert {"tools/call", "prompts/get", "resources/read"} == IN_ROUNDS


def test_the_specification_keeps_eighty_codes() -> None:
    assert (min(RESERVED), max(RESERVED), len(RESERVED)) == (-32099, -32020, 80)
