"""The words between a session with a server of the modern era and its dialect."""

import pytest

from taskgate.protocol.modern_server import CataloguePage, Listened, Saying, Subscribed, ToolPage


@pytest.mark.parametrize(
    ("wants", "nothing"),
    [
        (Listened(), True),
        (Listened(tools=True), False),
        (Listened(prompts=True), False),
        (Listened(resources=True), False),
        (Listened(uris=("a:b",)), False),
        (Listened(tasks=("n1",)), False),
    ],
)
def test_nothing_is_wanted_where_neither_lists_nor_resources_nor_tasks_are(wants: Listened, nothing: bool) -> None:
    assert wants.is_nothing is nothing


def test_a_request_says_no_more_than_it_is_given() -> None:
    saying = Saying(method="tools/list")
    assert (saying.params, saying.log_level, saying.answers, saying.state) == (None, None, None, None)
    assert not saying.wants_progress
    assert not saying.follows_tasks
    assert (saying.mirrored, saying.repeated) == ({}, None)


def test_a_page_leaves_no_tool_out_unless_it_says_so() -> None:
    assert CataloguePage(page=ToolPage(tools={}, cursor=None)).refused == ()


def test_a_stream_tells_of_no_task_unless_it_says_so() -> None:
    assert Subscribed(frozenset()).tasks == frozenset()
