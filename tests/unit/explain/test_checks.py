"""Which programs of a configuration are not there."""

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from taskgate.cli import main
from taskgate.config import GatewayConfig
from taskgate.explain.checks import missing_programs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the programs `here` and `below/there`, and the file `text`, which is none."""
    for name in ("here", "below/there"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch(mode=0o755)
    (tmp_path / "text").touch(mode=0o644)
    return tmp_path


def missing(program: str, path: str, **keys: object) -> list[tuple[str, str]]:
    server = {"path": "/a", "transport": "stdio", "command": [program], **keys}
    config = GatewayConfig.model_validate({"version": 1, "auth": {"mode": "none"}, "upstreams": {"a": server}})
    return list(missing_programs(config, {"PATH": path}))


def test_a_program_is_looked_for_where_the_gateway_finds_programs(folder: Path) -> None:
    assert missing("here", str(folder)) == []
    assert missing("there", f"{folder}:{folder / 'below'}") == []
    assert missing("there", str(folder)) == [("upstreams.a.command", "there is no program there on this machine")]


def test_a_file_that_may_not_be_executed_is_told_from_none(folder: Path) -> None:
    for program, path in (("text", str(folder)), ("./text", "/nowhere")):
        words = f"the program {program} is there, but may not be executed"
        assert missing(program, path, cwd=str(folder)) == [("upstreams.a.command", words)]
    assert missing("below", str(folder)) == [("upstreams.a.command", "there is no program below on this machine")]


def test_a_program_is_looked_for_where_its_own_environment_says(folder: Path) -> None:
    assert missing("here", "/nowhere", env={"PATH": str(folder)}) == []
    assert missing("here", str(folder), env={"PATH": "/nowhere"}) != []


def test_a_path_counts_from_where_the_program_runs(folder: Path) -> None:
    assert missing("below/there", "/nowhere", cwd=str(folder)) == []
    assert missing(str(folder / "here"), "/nowhere", cwd="/") == []
    assert missing("below/there", str(folder), cwd="/") != []


def test_a_folder_that_is_not_there_is_told_in_place_of_the_program(folder: Path) -> None:
    for cwd in ("gone", "text"):
        where = str(folder / cwd)
        assert missing("gone", "", cwd=where) == [("upstreams.a.cwd", f"{where} is no folder of this machine")]


@pytest.mark.parametrize(("program", "brought_by"), [("npx", "Node.js"), ("node", "Node.js"), ("uvx", "uv")])
def test_what_brings_a_well_known_program_is_named(program: str, brought_by: str) -> None:
    words = f"there is no program {program} on this machine, which {brought_by} brings"
    assert missing(program, "/nowhere") == [("upstreams.a.command", words)]


def test_a_server_with_a_url_needs_none() -> None:
    server = {"path": "/a", "url": "http://a"}
    config = GatewayConfig.model_validate({"version": 1, "auth": {"mode": "none"}, "upstreams": {"a": server}})
    assert list(missing_programs(config, {})) == []


def test_check_warns_of_them_and_ends_well(tmp_path: Path) -> None:
    file = tmp_path / "taskgate.yaml"
    server = "{path: /a, transport: stdio, command: [no-such-program]}"
    listen = "server: {listen: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0'}"
    file.write_text(f"version: 1\nauth: {{mode: none}}\n{listen}\nupstreams: {{a: {server}}}\n")
    checked = CliRunner().invoke(main, ["check", "--config", str(file)])
    assert checked.exit_code == 0
    words = "there is no program no-such-program on this machine"
    assert checked.stderr == f"taskgate: warning: upstreams.a.command: {words}\n"


@pytest.mark.parametrize(
    ("way", "key"),
    [("private_key_jwt", "key_file"), ("federated", "assertion_file")],
)
def test_check_reads_the_file_by_which_the_gateway_authenticates_at_a_token_endpoint(
    tmp_path: Path, way: str, key: str
) -> None:
    file = tmp_path / "taskgate.yaml"
    client = f"token_url: 'https://idp.example.com/token', client_id: gw, client_auth: {way}, {key}: none"
    server = f"{{path: /a, url: 'http://127.0.0.1:3000/mcp', credentials: {{mode: client_credentials, {client}}}}}"
    listen = "server: {listen: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0'}"
    file.write_text(f"version: 1\nauth: {{mode: none}}\n{listen}\nupstreams: {{a: {server}}}\n")
    checked = CliRunner().invoke(main, ["check", "--config", str(file)])
    assert checked.exit_code == 2
    told = f"upstreams.a.credentials.{key}: cannot be read: No such file or directory"
    assert told in checked.stderr


ISSUER = "{{mode: required, issuers: {{corp: {{issuer: 'https://idp.example.com', ca_file: {}}}}}}}"
CLIENT = "token_url: 'https://idp.example.com/token', client_id: gw, client_secret: s"
GRANT = f"{{{{mode: client_credentials, {CLIENT}, ca_file: {{}}}}}}"


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("none", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("keys.pem", "holds no certificate in PEM form"),
    ],
)
@pytest.mark.parametrize("key", ["auth.issuers.corp.ca_file", "upstreams.a.credentials.ca_file"])
def test_check_reads_the_authorities_of_issuers_and_token_endpoints(
    tmp_path: Path, key: str, file: str, problem: str
) -> None:
    (tmp_path / "keys.pem").write_text("none\n")
    auth = ISSUER.format(file if key.startswith("auth") else "null")
    grant = GRANT.format("null" if key.startswith("auth") else file)
    listen = "server: {listen: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0'}"
    server = f"{{path: /a, url: 'http://127.0.0.1:3000/mcp', credentials: {grant}}}"
    written = tmp_path / "taskgate.yaml"
    written.write_text(f"version: 1\nauth: {auth}\n{listen}\nupstreams: {{a: {server}}}\n")
    checked = CliRunner(env={"TASKGATE_DATA_DIR": str(tmp_path)}).invoke(main, ["check", "--config", str(written)])
    assert (checked.exit_code, f"{key}: {problem}\n" in checked.stderr) == (2, True)


@pytest.mark.program
async def test_a_gateway_warns_of_them_when_it_starts_and_when_it_reads_its_file_again(tmp_path: Path) -> None:
    server = "{{path: /a, transport: stdio, command: [{}]}}"
    file = write_configuration(tmp_path, "", upstreams=f"{{a: {server.format('no-such-program')}}}")
    async with gateway_process(["--config", file, "--no-watch"], log=tmp_path / "log") as gateway:
        write_configuration(tmp_path, "", upstreams=f"{{a: {server.format('no-other-program')}}}")
        gateway.ask(signal.SIGHUP)
        await gateway.child.said(rb"configuration reloaded[^\n]*success")
    told = [line for line in gateway.log_lines() if line["event"] == "the program of a stdio server cannot be started"]
    assert [(line["level"], line["key"], line["problem"]) for line in told] == [
        ("warning", "upstreams.a.command", f"there is no program {name} on this machine")
        for name in ("no-such-program", "no-other-program")
    ]


def test_a_gateway_for_one_program_that_is_not_there_does_not_start() -> None:
    served = CliRunner(env=dict(os.environ)).invoke(main, ["serve", "--upstream-command", "no-such-program --x"])
    assert (served.exit_code, served.stdout) == (2, "")
    assert served.stderr == "--upstream-command: there is no program no-such-program on this machine\n"
