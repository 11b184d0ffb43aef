"""The last lines of `make run` are those of the documents, and each of them can be used as it is."""

import json
import shlex
from itertools import pairwise

import pytest
from example.next_steps import PROGRAM, call_line, claude_code, task_request, vs_code
from mcp.types import Tool, ToolAnnotations

from house.documents import DOCS, fences
from house.test_documents import parse

URL = "http://127.0.0.1:8080/mcp"


def parts(request: str) -> tuple[set[str], object]:
    """The headers and the body of a curl command."""
    values = list(pairwise(shlex.split(request)))
    [body] = [value for flag, value in values if flag == "-d"]
    return {value for flag, value in values if flag == "-H"}, json.loads(body)


def tool(name: str, *, reads: bool | None, required: dict[str, dict[str, object]] | None = None) -> Tool:
    schema = {"type": "object", "properties": required or {}, "required": [*(required or {})]}
    return Tool(name=name, inputSchema=schema, annotations=ToolAnnotations(readOnlyHint=reads))


def test_the_request_is_that_of_the_quickstart_on_one_line() -> None:
    [block] = [each.text for each in fences(DOCS / "start" / "quickstart.md") if '"tools/call"' in each.text]
    request = task_request(URL, token=False)
    assert "\n" not in request
    assert parts(request) == parts(block.replace("\\\n", " "))


def test_the_lines_for_hosts_are_those_of_their_pages_but_for_the_name() -> None:
    [claude] = [each.text for each in fences(DOCS / "how-to" / "claude-code.md") if "mcp add" in each.text]
    assert claude_code(URL, token=False).replace("taskgate-example", "reports") == claude.strip()
    [code] = [each.text for each in fences(DOCS / "how-to" / "vscode.md") if each.language == "json"]
    assert json.loads(vs_code(URL, token=False).replace("taskgate-example", "reports")) == json.loads(code)


def test_with_tokens_each_line_sends_one() -> None:
    assert "Authorization: Bearer $TOKEN" in parts(task_request(URL, token=True))[0]
    assert '--header "Authorization: Bearer $TOKEN"' in claude_code(URL, token=True)
    shown = json.loads(vs_code(URL, token=True))
    assert [each["id"] for each in shown["inputs"]] == ["token"]
    assert shown["servers"]["taskgate-example"]["headers"] == {"Authorization": "Bearer ${input:token}"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, "n=1"),
        ({"type": "string"}, "n=hello"),
        ({"type": "string", "enum": ["a b", "c"]}, "n=a b"),
        ({"type": "number", "examples": [2.5]}, "n=2.5"),
        ({"type": "boolean", "default": False}, "n=false"),
        ({}, "n=hello"),
    ],
)
def test_the_call_is_of_a_tool_that_only_reads_with_arguments_that_its_schema_allows(
    schema: dict[str, object], value: str
) -> None:
    tools = [
        tool("deletes", reads=False),
        tool("silent", reads=None),
        tool("much", reads=True, required={"a": {}, "b": {}}),
        tool("reads it", reads=True, required={"n": schema}),
    ]
    line = call_line(URL, tools)
    assert line is not None
    program, *words = shlex.split(line)
    assert (program, words) == (PROGRAM, ["call", URL, "reads it", "--arg", value])
    parse(words)


def test_where_no_tool_says_that_it_only_reads_none_is_offered() -> None:
    assert call_line(URL, [tool("deletes", reads=False), Tool(name="silent", inputSchema={})]) is None
