"""The requests that the quickstart shows do what that page says, before a server on an old SDK."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.process import serve_process
from interop.servers import legacy_server

QUICKSTART = (Path(__file__).resolve().parents[2] / "docs" / "start" / "quickstart.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.interop


def shown() -> list[tuple[str, dict[str, str], str]]:
    """The URL, the headers and the body of each curl command."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", QUICKSTART, re.MULTILINE | re.DOTALL)
    return [_request(block) for block in blocks if " -d " in block]


def _request(block: str) -> tuple[str, dict[str, str], str]:
    words = shlex.split(block)
    values = list(pairwise(words))
    headers = dict(value.split(": ", 1) for flag, value in values if flag == "-H")
    (body,) = [value for flag, value in values if flag == "-d"]
    return words[2], headers, body


async def test_the_first_request_makes_a_task_and_the_second_asks_for_it(tmp_path: Path) -> None:
    (url, headers, body), (other_url, asking, question) = shown()
    assert url == other_url == "http://127.0.0.1:8080/mcp"
    # What takes longer than that becomes a task; by default it would be five seconds.
    tasks = {"inline_grace": "100ms"}
    async with (
        legacy_server("1.12.4", tmp_path) as server,
        aiohttp.ClientSession() as http,
        serve_process(tmp_path, server.url, tasks=tasks) as gateway,
    ):
        patience = aiohttp.ClientTimeout(total=30)
        async with http.post(gateway.url(), headers=headers, data=body, timeout=patience) as response:
            answer = await response.json()
        assert answer["result"]["resultType"] == "task"
        id = answer["result"]["taskId"]
        asking = {name: value.replace("TASK_ID", id) for name, value in asking.items()}
        data = question.replace("TASK_ID", id)
        async with http.post(gateway.url(), headers=asking, data=data, timeout=patience) as response:
            found = (await response.json())["result"]
        gateway.kill()
    assert (found["taskId"], found["status"]) == (id, "working")
    assert json.loads(body)["params"]["arguments"]["seconds"] > 5
