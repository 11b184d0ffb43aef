"""Tools that are not for a host are left out of its pages, and so is what nobody can judge."""

import pytest

from taskgate.protocol.hiding import without_hidden

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
