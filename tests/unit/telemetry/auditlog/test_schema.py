"""The published schema and the lines that there are say the same."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import KINDS
from taskgate.telemetry.auditlog.events import internal_event, without_payload
from taskgate.telemetry.auditlog.formats.renderer import Renderer, native_part
from taskgate.telemetry.auditlog.formats.schema import schema, schema_text
from taskgate.telemetry.auditlog.settings import LineOptions
from unit.telemetry.auditlog.audit_cases import ANSWERED, KEY, NOW, SetSpan, events_of, line_of, lines, new_context

PUBLISHED = Path(__file__).parents[4] / "config" / "audit-schema.json"
JUDGE = Draft202012Validator(schema())


def faults(line: Any) -> list[str]:
    return faults_of(json.dumps(line))


@cache
def faults_of(text: str) -> list[str]:
    """Many lines of many settings are the same."""
    line = json.loads(text)
    return [f"{fault.json_path}: {fault.message}" for fault in JUDGE.iter_errors(line)]


def test_it_is_published() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text()
    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("format", ["native", "ocsf", "ecs"])
@pytest.mark.parametrize("arguments", ["none", "keys", "hash", "full"])
@pytest.mark.parametrize("results", ["none", "hash"])
def test_every_line_of_every_format_keeps_to_it(format: str, arguments: str, results: str) -> None:
    for line in lines(format=format, arguments=arguments, results=results):
        own = native_part(line)
        assert own is not None
        assert faults(own) == []


def test_lines_keep_to_it_whatever_else_they_have() -> None:
    render = Renderer(LineOptions(), key=KEY, node="gw-1")
    [event] = events_of(ANSWERED, new_context(span=SetSpan(), parts=2))
    assert faults(render(without_payload(event))) == []
    assert faults({**render(event), "seq": 1, "prev": None}) == []
    assert faults({**render(event), "seq": 2, "prev": "0f" * 32}) == []
    assert faults(render(internal_event("rpc.call", NOW, outcome="failure", data={"unrendered": "ValueError"}))) == []


@pytest.mark.parametrize(
    ("name", "outcome", "told"),
    [
        ("audit.chain_started", "success", {"sink": "file", "seq": 0, "head": None}),
        ("audit.checkpoint", "success",
         {"sink": "file", "seq": 9, "head": "ab" * 32, "algorithm": "ed25519", "key": "k", "signature": "s"}),
        ("audit.gap", "failure",
         {"sink": "file", "cause": "torn", "lines": None, "bytes": 12, "seq": 9, "head": "ab" * 32}),
    ],
)  # fmt: skip
def test_what_the_log_says_of_itself_keeps_to_it(name: str, outcome: str, told: dict[str, Any]) -> None:
    line = Renderer(LineOptions(), key=KEY, node="gw-1")(internal_event(name, NOW, outcome=outcome, data=told))
    assert faults(line) == []
    assert line["data"] == told


def test_data_is_told_of_its_event_alone() -> None:
    for kind in KINDS:
        outcome = next(iter(kind.severities))
        bare = Renderer(LineOptions(), key=KEY, node="gw-1")(internal_event(kind.name, NOW, outcome=outcome))
        assert faults(bare) == []
        assert faults({**bare, "data": {"unheard_of": 1}}) != []


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"event": "rpc.other"}, {"outcome": "denied"}, {"severity": "fatal"}, {"time": "2026-11-21"},
        {"seq": 0}, {"prev": "00"}, {"other": 1}, {"task": {"ref": "plain"}}, {"actor": {}}, {"args": {"hmac": "x"}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_line_does_not(change: dict[str, Any]) -> None:
    line = line_of(ANSWERED, new_context())
    assert faults(line) == []
    assert faults({**line, **change}) != []


@pytest.mark.parametrize("part", ["v", "time", "node", "event", "actor", "data"])
def test_every_part_is_there(part: str) -> None:
    line = line_of(events.SessionLost("reports"), None)
    del line[part]
    assert faults(line) != []
