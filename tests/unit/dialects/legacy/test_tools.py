"""A page of tools tells which of them can be tasks, and is otherwise the server's own text."""

import json

import pytest

from helpers.schema import check_definition
from taskgate.dialects.base import SupportOf
from taskgate.dialects.legacy.tools import MAX_REMEMBERED, amend_tools, without_hidden
from taskgate.tasks.policy import TaskSupport


def always(word: TaskSupport) -> SupportOf:
    return lambda _tool, _native: word


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
    assert amend_tools(page_of(listed), OPTIONAL) == page_of(seen)


@pytest.mark.parametrize(("listed", "_", "seen"), AMENDED.values(), ids=AMENDED)
def test_a_host_without_tasks_reads_nothing_of_them(listed: str, _: str, seen: str) -> None:
    assert amend_tools(page_of(listed), None) == page_of(seen)


def test_every_tool_of_a_page_is_amended_at_its_own_place() -> None:
    listed = [tool for tool, _, _ in AMENDED.values()]
    assert amend_tools(page_of(*listed), OPTIONAL) == page_of(*(seen for _, seen, _ in AMENDED.values()))
    assert amend_tools(page_of(*listed), None) == page_of(*(seen for _, _, seen in AMENDED.values()))


@pytest.mark.parametrize("word", TaskSupport)
@pytest.mark.parametrize("native", [None, *TaskSupport])
def test_the_word_is_the_one_that_is_decided_from_name_and_native_word(
    word: TaskSupport, native: TaskSupport | None
) -> None:
    asked: list[tuple[str, TaskSupport | None]] = []

    def decide(tool: str, said: TaskSupport | None) -> TaskSupport:
        asked.append((tool, said))
        return word

    execution = "" if native is None else f',"execution":{{"taskSupport":"{native}"}}'
    page = f'{{"tools":[{{"name":"r\\u00e9","inputSchema":{{"type":"object"}}{execution}}}]}}'
    amended = json.loads(amend_tools(page, decide))
    assert asked == [("ré", native)]
    assert amended["tools"][0]["execution"] == {"taskSupport": word.value}
    check_definition(amended, "ListToolsResult")


@pytest.mark.parametrize("said", ['"perhaps"', "null", "1", "[]", "{}", '"Required"'])
def test_a_word_that_the_era_does_not_know_counts_as_none(said: str) -> None:
    natives: list[TaskSupport | None] = []

    def decide(_: str, native: TaskSupport | None) -> TaskSupport:
        natives.append(native)
        return TaskSupport.FORBIDDEN

    amend_tools(f'{{"tools":[{{"name":"t","execution":{{"taskSupport":{said}}}}}]}}', decide)
    assert natives == [None]


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
    assert amend_tools(page, support) == page


def test_a_tool_without_a_name_does_not_keep_the_others_from_being_amended() -> None:
    page = '{"tools":[{},null,{"name":"t"},{"execution":null}]}'
    assert amend_tools(page, OPTIONAL) == (
        '{"tools":[{},null,{"execution":{"taskSupport":"optional"},"name":"t"},{"execution":null}]}'
    )


def test_an_amended_page_amends_to_itself() -> None:
    once = amend_tools(page_of(*(tool for tool, _, _ in AMENDED.values())), OPTIONAL)
    assert amend_tools(once, OPTIONAL) == once


def test_the_same_page_is_amended_once_for_the_same_rules() -> None:
    calls: list[str] = []

    def decide(tool: str, _: TaskSupport | None) -> TaskSupport:
        calls.append(tool)
        return TaskSupport.OPTIONAL

    page = page_of('{"name":"remembered"}')
    assert amend_tools(page, decide) == amend_tools(page, decide)
    assert calls == ["remembered"]
    assert "forbidden" in amend_tools(page, always(TaskSupport.FORBIDDEN))


@pytest.mark.parametrize(("beyond", "times"), [(0, 1), (1, 2)])
def test_a_page_beyond_the_bound_is_not_remembered(beyond: int, times: int) -> None:
    calls: list[str] = []

    def decide(tool: str, _: TaskSupport | None) -> TaskSupport:
        calls.append(tool)
        return TaskSupport.REQUIRED

    bare = '{"tools":[{"name":"t"}]}'
    page = bare + " " * (MAX_REMEMBERED + beyond - len(bare))
    assert json.loads(amend_tools(page, decide)) == json.loads(amend_tools(page, decide))
    assert len(calls) == times


# --- what is not shown ---------------------------------------------------------------------------------------------

SHOWN = '{ "name" : "t", "x":{"a":1e999,"a":2} , "\\u00e9":"\\ud800" }'
HIDDEN = '{"name":"h","inputSchema":{}}'

# The page as its server sent it, and without `h`.
HIDDEN_FROM: dict[str, tuple[str, str]] = {
    "first": (f'{{ "tools" : [ {HIDDEN} , {SHOWN} ],"n":1}}', f'{{ "tools" : [{SHOWN}],"n":1}}'),
    "last": (f'{{"n":1,"tools":[{SHOWN},\n{HIDDEN}]}}', f'{{"n":1,"tools":[{SHOWN}]}}'),
    "between": (f'{{"tools":[{SHOWN},{HIDDEN}, {SHOWN}]}}', f'{{"tools":[{SHOWN},{SHOWN}]}}'),
    "all of them": (f'{{"tools":[{HIDDEN},{HIDDEN}],"nextCursor":"c"}}', '{"tools":[],"nextCursor":"c"}'),
    "by another spelling": (f'{{"to\\u006fls":[{{"n\\u0061me":"\\u0068"}},{SHOWN}]}}', f'{{"to\\u006fls":[{SHOWN}]}}'),
    "none of them": (f'{{"tools":[{SHOWN}]}}', f'{{"tools":[{SHOWN}]}}'),
    "an empty list": ('{"tools":[ ]}', '{"tools":[]}'),
    "no list": ('{"nextCursor":"c"}', '{"nextCursor":"c"}'),
    "a list that is an object": ('{"tools":{"name":"t"}}', '{"tools":{"name":"t"}}'),
    "a list that is null": ('{"tools":null}', '{"tools":null}'),
    "no object": ('[{"name":"t"}]', '[{"name":"t"}]'),
    "tools without a name": (f'{{"tools":[{{}},{{"title":"t"}},{SHOWN}]}}', f'{{"tools":[{SHOWN}]}}'),
    "tools whose name is no text": (
        f'{{"tools":[{{"name":7}},{{"name":null}},{{"name":["t"]}},{SHOWN}]}}',
        f'{{"tools":[{SHOWN}]}}',
    ),
    "tools that are no objects": (f'{{"tools":[null,1,"t",["t"],{SHOWN}]}}', f'{{"tools":[{SHOWN}]}}'),
    "a name that stands twice": (f'{{"tools":[{SHOWN},{{"name":"h","name":"t"}}],"n":1}}', '{"tools":[],"n":1}'),
}


@pytest.mark.parametrize(("page", "seen"), HIDDEN_FROM.values(), ids=HIDDEN_FROM)
def test_tools_that_are_not_for_a_host_are_left_out_and_the_others_keep_every_byte(page: str, seen: str) -> None:
    assert without_hidden(page, lambda tool: tool != "h") == seen


def test_a_large_page_is_left_out_of_as_a_small_one_is() -> None:
    schema = '{"type":"object","properties":{' + ",".join(f'"p{n}":{{"const":"h"}}' for n in range(500)) + "}}"
    tools = [f'{{"name":"t{number}","inputSchema":{schema}}}' for number in range(20)]
    seen = without_hidden(f'{{"tools":[{",".join(tools)}],"n":1}}', lambda tool: tool == "t7")
    assert seen == f'{{"tools":[{tools[7]}],"n":1}}'


def test_each_tool_is_asked_for_once_by_its_name_as_it_is_read() -> None:
    asked: list[str] = []
    without_hidden('{"tools":[{"name":"r\\u00e9"},{"name":""}]}', lambda tool: bool(asked.append(tool)))
    assert asked == ["ré", ""]
