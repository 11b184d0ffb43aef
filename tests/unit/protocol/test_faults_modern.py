"""What a host of the modern era sees of an error: as its rules have it, and as the other era where they are silent."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from taskgate import errors
from taskgate.domain.versions import Era
from taskgate.protocol.faults import TASKS_NEEDED, Fault, fault, modern_status

PLACE = Path(__file__).parents[4] / "shared" / "spec" / "schema" / "2026-07-28.json"
NO_TASKS = "The request does not declare a capability that it needs"

TABLE: dict[str, tuple[Exception, Fault]] = {
    "HeaderMismatchError": (errors.HeaderMismatch("no"), Fault(status=400, code=-32020, text="no")),
    "MissingRequiredClientCapabilityError": (
        errors.MissingCapability(TASKS_NEEDED),
        Fault(
            status=400,
            code=-32021,
            text=NO_TASKS,
            data={"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}},
        ),
    ),
    "UnsupportedProtocolVersionError": (
        errors.UnsupportedVersion("no", requested="2031-01-01"),
        Fault(
            status=400,
            code=-32022,
            text="no",
            data={
                "supported": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
                "requested": "2031-01-01",
            },
        ),
    ),
    "MethodNotFoundError": (errors.UnknownMethod("no"), Fault(status=404, code=-32601, text="no")),
}

THE_SAME: list[Exception] = [
    errors.UnparsableMessage("no"),
    errors.MalformedMessage("no"),
    errors.IncompleteMeta("no"),
    errors.InvalidParams("no"),
    errors.TaskNotFound(),
    errors.Forbidden("no"),
    errors.TooManyTasks(3),
    errors.StoreUnavailable("no"),
    errors.Unauthenticated(errors.AuthReason.MISSING),
    errors.InsufficientScope(frozenset({"a"})),
    errors.VerbNotServed("POST"),
    errors.UpstreamFailed(errors.UpstreamReason.CLOSED, "no", dispatched=True),
    ZeroDivisionError("secret"),
]


@pytest.mark.parametrize(("error", "face"), TABLE.values(), ids=TABLE)
def test_what_this_era_has_a_code_or_a_status_for_is_told_by_it(error: Exception, face: Fault) -> None:
    assert fault(error, Era.MODERN) == face


@pytest.mark.parametrize("error", THE_SAME, ids=lambda error: type(error).__name__)
def test_everything_else_looks_as_it_does_to_any_host(error: Exception) -> None:
    # AMB-9: a bare 400 might have a host of both eras fall back.
    assert fault(error, Era.MODERN) == fault(error) == fault(error, Era.LEGACY)


def test_a_tool_that_runs_only_as_a_task_is_a_matter_of_what_the_host_declares() -> None:
    # M-NEG-3: no host of this era asks for a task.
    refused = fault(errors.TaskSupportMismatch("This tool runs only as a task"), Era.MODERN)
    assert refused == fault(errors.MissingCapability(TASKS_NEEDED), Era.MODERN)


def test_a_host_of_the_other_era_is_told_only_of_its_own_revisions() -> None:
    seen = fault(errors.UnsupportedVersion("no", requested="2026-07-28"))
    assert seen.data == {"supported": ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]}


@pytest.mark.parametrize(
    ("code", "status"),
    [(-32601, 404), (-32020, 400), (-32021, 400), (-32022, 400), (-32602, 200), (-32603, 200), (-1, 200), (429, 200)],
)
def test_an_error_of_a_server_has_a_status_where_its_code_has_one(code: int, status: int) -> None:
    assert modern_status(code) == status


@pytest.mark.skipif(not PLACE.is_file(), reason="the published schema of 2026-07-28 is not here")
@pytest.mark.parametrize("name", TABLE)
def test_an_error_of_this_era_is_one_by_its_schema(name: str) -> None:
    error, _ = TABLE[name]
    message = json.loads(fault(error, Era.MODERN).message("g8"))
    assert message["id"] == "g8"
    judge("JSONRPCErrorResponse").validate(message)
    judge(name).validate(message["error"] if name == "MethodNotFoundError" else message)


@cache
def judge(name: str) -> Draft202012Validator:
    definitions: dict[str, Any] = json.loads(PLACE.read_bytes())["$defs"]
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})
