"""What `check`, `explain` and `token inspect` say of API keys."""

import json
from pathlib import Path

import pytest

from helpers.command_line import run
from helpers.secrets import noted
from taskgate.auth.api_keys import key_digest, new_key
from taskgate.clock import SystemEntropy


@pytest.fixture
def keys() -> dict[str, str]:
    return {name: noted(new_key(SystemEntropy())) for name in ("ci", "late", "none")}


@pytest.fixture
def file(tmp_path: Path, keys: dict[str, str]) -> Path:
    """A file with two API keys, of which one is over."""
    entries = {
        "ci": {"hash": f"sha256:{key_digest(keys['ci'])}", "subject": "robot", "scopes": ["a.read"]},
        "late": {"hash": f"sha256:{key_digest(keys['late'])}", "subject": "robot", "expires": "2020-01-01T00:00:00Z"},
    }
    file = tmp_path / "taskgate.yaml"
    file.write_text(
        f"version: 1\nauth: {{mode: required, api_keys: {json.dumps(entries)}}}\nstore: {{backend: memory}}\n"
        "server: {listen: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0'}\n"
        "upstreams: {reports: {path: /reports/mcp, url: 'http://127.0.0.1:9/mcp'}}\n"
    )
    return file


def key_file(folder: Path, key: str) -> Path:
    place = folder / "key"
    place.write_text(f"{key}\n")
    place.chmod(0o600)
    return place


def test_check_names_the_keys_and_warns_of_one_that_is_over(file: Path, tmp_path: Path) -> None:
    status, printed, warned = run("check", "--config", file, TASKGATE_DATA_DIR=str(tmp_path / "data"))
    assert status == 0, warned
    assert "callers: API keys ci (robot), late (robot)\n" in printed
    assert "auth.api_keys.late.expires: is in the past: the key is refused; remove the entry" in warned
    report = json.loads(run("check", "--config", file, "--json", TASKGATE_DATA_DIR=str(tmp_path / "data"))[1])
    assert (report["issuers"], report["api_keys"]) == ([], ["ci", "late"])


def test_a_call_is_explained_for_the_caller_of_a_key(file: Path, tmp_path: Path, keys: dict[str, str]) -> None:
    place = key_file(tmp_path, keys["ci"])
    asked = ("explain", "--config", file, "--upstream", "reports", "--tool", "a", "--token", place)
    status, printed, errors = run(*asked)
    assert (status, errors) == (0, "")
    assert "robot of the API keys, scopes a.read" in printed


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none", "an API key is refused (api_key): it is none of auth.api_keys"),
        ("late", "an API key is refused (expired): it has expired"),
    ],
)
def test_a_key_that_is_refused_is_not_explained(
    file: Path, tmp_path: Path, keys: dict[str, str], name: str, told: str
) -> None:
    place = key_file(tmp_path, keys[name])
    status, printed, errors = run("explain", "--config", file, "--upstream", "reports", "--tool", "a", "--token", place)
    assert (status, printed) == (1, "")
    assert told in errors
    assert keys[name] not in errors


@pytest.mark.parametrize(
    ("name", "status", "lines"),
    [
        (
            "ci",
            0,
            ["api key    ok       expected one of ci, late; found ci: robot of _API_KEYS, scopes a.read", "accepted"],
        ),
        ("late", 1, ["api key    REFUSED  expected one of ci, late; found expired", "refused (expired)"]),
        ("none", 1, ["api key    REFUSED  expected one of ci, late; found api_key", "refused (api_key)"]),
    ],
)
def test_an_inspected_key_has_one_check(
    file: Path, tmp_path: Path, keys: dict[str, str], name: str, status: int, lines: list[str]
) -> None:
    place = key_file(tmp_path, keys[name])
    found, printed, _ = run("token", "inspect", "--config", file, "--token", place)
    assert (found, printed.splitlines()) == (status, [lines[0], f"verdict    {lines[1]}"])
