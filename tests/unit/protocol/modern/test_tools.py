"""A page of tools says nothing of tasks, and is otherwise the server's own text."""

import pytest

from requirements import covers
from taskgate.protocol.modern.tools import modern_tools, without_execution

ODD = r'"x":{"a":1e999,"a":[ 1234567890123456789012 ],"execution":{"taskSupport":"required"}},"é":"\u00e9\ud800"'
AMENDED: dict[str, tuple[str, str]] = {
    "no execution": ('{"name":"t"}', '{"name":"t"}'),
    "an execution": ('{"name":"t","execution":{"taskSupport":"required"}}', '{"name":"t"}'),
    "a first one": ('{"execution":{},"name":"t"}', '{"name":"t"}'),
    "one alone": ('{"execution":null}', "{}"),
    "odd bytes": (f'{{\n "name" : "t","execution":[] , {ODD} }}', f'{{\n "name" : "t" , {ODD} }}'),
    "no object": ("7", "7"),
}


def page_of(*tools: str) -> str:
    return f'{{ "tools" : [{" , ".join(tools)}],"nextCursor":"\\u0063" }}'


@covers("B-CONV-2")
@pytest.mark.parametrize(("listed", "told"), AMENDED.values(), ids=AMENDED)
def test_execution_goes_and_nothing_else(listed: str, told: str) -> None:
    neighbour = '{"name":"n","execution":{"a":1}, "z":0}'
    page = page_of(listed, neighbour, listed)
    assert modern_tools(page) == without_execution(page) == page_of(told, '{"name":"n", "z":0}', told)


@pytest.mark.parametrize(("length", "is_kept"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_a_page_is_kept_amended_up_to_a_length(length: int, is_kept: bool) -> None:
    start = '{"tools":[{"execution":{},"name":"'
    page = f'{start}{"x" * (length - len(start) - 4)}"}}]}}'
    assert len(page) == length
    assert modern_tools(page) == page.replace('"execution":{},', "")
    assert (modern_tools(page) is modern_tools(page)) is is_kept


@pytest.mark.parametrize(
    "page",
    ["{}", '{"tools":null}', '{"tools":{"execution":1}}', '{"tools":[]}', page_of('{"a":1,"a":2,"execution":1}')],
)
def test_any_other_page_stays_as_it_is(page: str) -> None:
    assert modern_tools(page) == page
