"""A page of tools tells which of them can be tasks, and is otherwise the server's own text."""

import json
from collections.abc import Mapping

import pytest

from helpers.schema import check_definition
from requirements import covers
from taskgate.domain.policy import SupportOf, TaskSupport
from taskgate.protocol.legacy.results import MAX_CACHED, convert_tools, with_task_support


def always(word: TaskSupport) -> SupportOf:
    return lambda _tool, _hints: word


OPTIONAL = always(TaskSupport.OPTIONAL)


def page_of(*tools: str) -> str:
    return f'{{ "tools" : [{" , ".join(tools)}],"nextCursor":"\\u0063" }}'


ODD = (
    r'"x":{"a":1e999,"a":[ 123456789012345678901234567890 ],"execution":{"taskSupport":"required"}},"é":"\u00e9\ud800"'
)

# The tool as its server lists it, as a host with tasks sees it, as any other host sees it.
AMENDED: dict[str, tuple[str, str, str]] = {
    "no execution": (
        '{"name":"t"}',
        '{"execution":{"taskSupport":"optional"},"name":"t"}',
        '{"name":"t"}',
    ),
    "odd bytes": (
        f'{{\n "name" : "t" , {ODD} }}',
        f'{{"execution":{{"taskSupport":"optional"}},\n "name" : "t" , {ODD} }}',
        f'{{\n "name" : "t" , {ODD} }}',
    ),
    "a word of the server": (
        '{"name":"t","execution":{ "taskSupport" : "required" , "x":1}}',
        '{"name":"t","execution":{ "taskSupport" : "optional" , "x":1}}',
        '{"name":"t"}',
    ),
    "a word of nobody": (
        '{"execution":{"taskSupport":"perhaps"},"name":"t"}',
        '{"execution":{"taskSupport":"optional"},"name":"t"}',
        '{"name":"t"}',
    ),
    "a word that is none": (
        '{"execution":{"taskSupport":{"a":1}},"name":"t"}',
        '{"execution":{"taskSupport":"optional"},"name":"t"}',
        '{"name":"t"}',
    ),
    "an empty execution": (
        '{"name":"t", "execution":{ }, "z":0}',
        '{"name":"t", "execution":{"taskSupport":"optional" }, "z":0}',
        '{"name":"t", "z":0}',
    ),
    "an execution of other things": (
        '{"name":"t","execution":{"x" :1}}',
        '{"name":"t","execution":{"taskSupport":"optional","x" :1}}',
        '{"name":"t"}',
    ),
    "an execution that is null": (
        '{"name":"t","execution": null }',
        '{"name":"t","execution": {"taskSupport":"optional"} }',
        '{"name":"t" }',
    ),
    "an execution that is a list": (
        '{"execution":[1],"name":"t"}',
        '{"execution":{"taskSupport":"optional"},"name":"t"}',
        '{"name":"t"}',
    ),
}


@pytest.mark.parametrize(("listed", "seen", "_"), AMENDED.values(), ids=AMENDED)
def test_a_host_with_tasks_reads_of_every_tool_whether_it_can_be_one(listed: str, seen: str, _: str) -> None:
    assert with_task_support(page_of(listed), OPTIONAL) == page_of(seen)


def test_every_tool_of_a_page_is_amended_at_its_own_place() -> None:
    listed = [tool for tool, _, _ in AMENDED.values()]
    assert with_task_support(page_of(*listed), OPTIONAL) == page_of(*(seen for _, seen, _ in AMENDED.values()))
    assert with_task_support(page_of(*listed), None) == page_of(*(seen for _, _, seen in AMENDED.values()))


@covers("L-TOOL-1")
@pytest.mark.parametrize("word", TaskSupport)
@pytest.mark.parametrize("said", [None, *(f'"{word}"' for word in TaskSupport), '"perhaps"', "null", "1", "[]", "{}"])
def test_the_word_is_the_one_that_is_decided_whatever_the_servers_own(word: TaskSupport, said: str | None) -> None:
    asked: list[str] = []

    def decide(tool: str, _: Mapping[str, bool]) -> TaskSupport:
        asked.append(tool)
        return word

    execution = "" if said is None else f',"execution":{{"taskSupport":{said}}}'
    page = f'{{"tools":[{{"name":"r\\u00e9","inputSchema":{{"type":"object"}}{execution}}}]}}'
    amended = json.loads(with_task_support(page, decide))
    assert asked == ["ré"]
    assert amended["tools"][0]["execution"] == {"taskSupport": word.value}
    check_definition(amended, "ListToolsResult")


def test_a_decision_hears_what_the_server_hints_of_the_tool() -> None:
    heard: list[Mapping[str, bool]] = []

    def decide(_: str, hints: Mapping[str, bool]) -> TaskSupport:
        heard.append(hints)
        return TaskSupport.OPTIONAL

    with_task_support('{"tools":[{"annotations":{"readOnlyHint":true,"title":"T"},"name":"t"},{"name":"u"}]}', decide)
    assert heard == [{"readOnlyHint": True}, {}]


def test_a_tool_for_which_no_word_is_decided_stays_as_its_server_lists_it() -> None:
    page = page_of('{"name":"t","execution":{"taskSupport":"required"}}', '{"name":"u"}')
    assert with_task_support(page, lambda *_: None) == page


FOR_VIEWS = '"_meta":{"ui":{ "visibility":["app"]}}'


@pytest.mark.parametrize(
    ("word", "said", "seen"),
    [
        (TaskSupport.FORBIDDEN, "", ""),
        (TaskSupport.FORBIDDEN, '"execution":{"x":1},', '"execution":{"x":1},'),
        (TaskSupport.FORBIDDEN, '"execution":null,', '"execution":null,'),
        (TaskSupport.FORBIDDEN, '"execution":{"taskSupport":"required"},', '"execution":{"taskSupport":"forbidden"},'),
        (TaskSupport.OPTIONAL, "", '"execution":{"taskSupport":"optional"},'),
    ],
)
def test_a_tool_for_views_alone_gets_no_word_that_says_what_none_says(word: TaskSupport, said: str, seen: str) -> None:
    page = f'{{"tools":[{{%s"name":"t",{FOR_VIEWS}}}]}}'
    assert with_task_support(page % said, lambda *_: word) == page % seen


UNTOUCHED = {
    "no list": '{"nextCursor":"c"}',
    "a list that is an object": '{"tools":{"name":"t"}}',
    "a list that is null": '{"tools":null}',
    "an empty list": '{"tools":[ ]}',
    "no object": '[{"name":"t"}]',
    "a tool without a name": '{"tools":[{"execution":{"taskSupport":"required"}}]}',
    "a tool whose name is a number": '{"tools":[{"name":7,"execution":{}}]}',
    "a tool whose name is null": '{"tools":[{"name":null}]}',
    "tools that are no objects": '{"tools":[null, 1, "t", ["name"], {}]}',
    "a tool that repeats its name": '{"tools":[{"name":"t","name":"u","execution":{}}]}',
    "a tool that repeats a key": '{"tools":[{"name":"u"},{"name":"t","description":"a","description":"b"}]}',
    "a word that is told twice": '{"tools":[{"name":"t","execution":{"taskSupport":"required","taskSupport":"x"}}]}',
}


@pytest.mark.parametrize("support", [OPTIONAL, None], ids=["with tasks", "without"])
@pytest.mark.parametrize("page", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_cannot_be_amended_passes_as_it_came(page: str, support: SupportOf | None) -> None:
    assert with_task_support(page, support) == page


def test_a_tool_without_a_name_does_not_keep_the_others_from_being_amended() -> None:
    page = '{"tools":[{},null,{"name":"t"},{"execution":null}]}'
    assert with_task_support(page, OPTIONAL) == (
        '{"tools":[{},null,{"execution":{"taskSupport":"optional"},"name":"t"},{"execution":null}]}'
    )


def test_an_amended_page_amends_to_itself() -> None:
    once = with_task_support(page_of(*(tool for tool, _, _ in AMENDED.values())), OPTIONAL)
    assert with_task_support(once, OPTIONAL) == once


def test_the_same_page_is_amended_once_for_the_same_rules() -> None:
    calls: list[str] = []

    def decide(tool: str, _: Mapping[str, bool]) -> TaskSupport:
        calls.append(tool)
        return TaskSupport.OPTIONAL

    page = page_of('{"name":"remembered"}')
    assert with_task_support(page, decide) == with_task_support(page, decide)
    assert calls == ["remembered"]
    assert "forbidden" in with_task_support(page, always(TaskSupport.FORBIDDEN))


@pytest.mark.parametrize(("beyond", "times"), [(0, 1), (1, 2)])
def test_a_page_beyond_the_bound_is_not_remembered(beyond: int, times: int) -> None:
    calls: list[str] = []

    def decide(tool: str, _: Mapping[str, bool]) -> TaskSupport:
        calls.append(tool)
        return TaskSupport.REQUIRED

    bare = '{"tools":[{"name":"t"}]}'
    page = bare + " " * (MAX_CACHED + beyond - len(bare))
    assert json.loads(with_task_support(page, decide)) == json.loads(with_task_support(page, decide))
    assert len(calls) == times


# --- pages of servers of the modern era -------------------------------------------------------------------------

ARRAY, OBJECT = '{"type":"array","items":{}}', '{"type":"object"}'


@pytest.mark.parametrize(("length", "is_kept"), [(MAX_CACHED, True), (MAX_CACHED + 1, False)])
def test_a_mended_page_is_kept_up_to_a_length(length: int, is_kept: bool) -> None:
    bare = f'{{"tools":[{{"name":"t","outputSchema":{ARRAY}}}]}}'
    page = bare + " " * (length - len(bare))
    assert convert_tools(page) == page.replace(f',"outputSchema":{ARRAY}', "")
    assert (convert_tools(page) is convert_tools(page)) is is_kept
