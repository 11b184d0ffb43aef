"""The requests of gunicorn's parser tests, as raw bytes on the listener of taskgate.

Behind each one comes a request of ours on the same connection, so that it shows where taskgate sees the first one end.
A valid request passes if taskgate finds as many requests in it as gunicorn does. An invalid one passes if it has one
answer, a refusal, and the connection ends. taskgate may answer a request for a path that it does not serve, or for
another host, before it reads a body that is invalid.
"""

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from example import environments

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.waiting import bounded
from interop.peers import output_of
from suites.verdicts import REQUESTS, Outcomes

PARTS = {"valid": "valid requests", "invalid": "invalid requests"}
"""The folders of the suite, and what its parts are called."""
SCRIPT = Path(__file__).with_name("gunicorn_corpus.py")
TESTS = environments.source_of(REQUESTS.environment) / "tests"
HOSTS = ("a", "evil.example.com", "example.com", "localhost", "victim.com", "whatever", "x")
"""The hosts of the requests. taskgate answers any other at once, and does not read the body."""
HOSTS_WITH_PORTS = ("0.0.0.0:5000", "[::1]:443", "[::1]:8080", "example.com:443", "example.com:8080")
SYNTAX = {400, 414, 431, 501, 505}
"""Statuses that refuse a request for how it is written."""
_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_BODY = '{"jsonrpc":"2.0","id":"the next request","method":"tools/list"}'


@dataclass(frozen=True, slots=True)
class Answers:
    """The statuses of all answers on a connection, and whether the last answers the request that came behind."""

    statuses: list[int]
    has_next: bool


async def corpus() -> list[dict[str, Any]]:
    """What gunicorn makes of each request (see `gunicorn_corpus.py`)."""
    python = environments.python_of(REQUESTS.environment)
    status, output, errors = await output_of([python, SCRIPT, TESTS])
    assert status == 0, errors
    found: list[dict[str, Any]] = json.loads(output)
    return found


def directly(requests: list[dict[str, Any]]) -> Mapping[str, Outcomes]:
    """The outcomes by part in gunicorn itself."""
    found: dict[str, dict[str, str | None]] = {part: {} for part in PARTS.values()}
    for each in requests:
        is_right = (each["error"] is None) == (each["part"] == "valid")
        found[PARTS[each["part"]]][each["row"]] = None if is_right else each["error"] or "it is parsed"
    return found


async def through_taskgate(requests: list[dict[str, Any]], folder: Path) -> Mapping[str, Outcomes]:
    """The outcomes by part in taskgate."""
    server = json.dumps({"listen": "127.0.0.1:0", "allowed_hosts": [*HOSTS, *HOSTS_WITH_PORTS, "127.0.0.1"]})
    file = write_configuration(folder, "http://127.0.0.1:9/mcp", server=server)
    async with gateway_process(["--config", file], log=folder / "gateway.log") as gateway:
        answers = await asyncio.gather(*(_send(gateway.listen, base64.b64decode(each["bytes"])) for each in requests))
    found: dict[str, dict[str, str | None]] = {part: {} for part in PARTS.values()}
    for each, seen in zip(requests, answers, strict=True):
        wrong = problem_of_valid(each, seen) if each["part"] == "valid" else problem_of_invalid(each, seen)
        found[PARTS[each["part"]]][each["row"]] = wrong
    return found


def problem_of_valid(request: Mapping[str, Any], seen: Answers) -> str | None:
    """What is wrong with the answers to a valid request, or None."""
    own = seen.statuses[: -1 if seen.has_next else None]
    if SYNTAX.isdisjoint(own) and len(own) == request["heads"] and seen.has_next is not request["closes"]:
        return None
    return _description(seen)


def problem_of_invalid(request: Mapping[str, Any], seen: Answers) -> str | None:
    """What is wrong with the answers to an invalid request, or None."""
    is_refused = len(seen.statuses) == 1 and not seen.has_next
    # Where gunicorn accepts the head, it is the body that is invalid.
    if is_refused and (seen.statuses[0] in SYNTAX or (request["heads"] and seen.statuses[0] >= 400)):
        return None
    return _description(seen)


def _description(seen: Answers) -> str:
    statuses = ", ".join(map(str, seen.statuses)) or "no answer"
    return f"{statuses}, {'the last to the next request' if seen.has_next else 'then the connection ends'}"


async def _send(listen: str, data: bytes) -> Answers:
    host, _, port = listen.rpartition(":")
    head = (
        f"POST /reports/mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {len(_BODY)}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n"
    )
    async with bounded():
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data + f"{head}{_BODY}".encode())
        try:
            answered = await reader.read()
        finally:
            writer.close()
    statuses = [int(status) for status in _ANSWER.findall(answered)]
    return Answers(statuses, b'"the next request"' in answered)
