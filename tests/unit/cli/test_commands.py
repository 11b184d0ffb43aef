"""The command line: what it prints, where, and with which status it ends."""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner
from example.processes import running

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import TASKGATE, GatewayProcess, gateway_process, serve_process
from helpers.secrets import noted
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate import __version__
from taskgate.cli import main
from taskgate.config import effective, load

URL = "http://127.0.0.1:9/mcp"


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command."""
    ended = CliRunner(env=environment).invoke(main, [str(each) for each in arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_version_is_told() -> None:
    assert run("--version") == (0, f"taskgate, version {__version__}\n", "")


@pytest.mark.program
def test_the_configuration_is_that_of_the_option_of_the_variable_or_of_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(name: str) -> Path:
        """A configuration in a folder of its own, whose upstream has that name."""
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "taskgate.yaml"
        file.write_text(f"version: 1\nauth: {{mode: none}}\nupstreams: {{{name}: {{path: /mcp, url: '{URL}'}}}}\n")
        return file

    option, variable, here = written("option"), written("variable"), written("here")
    monkeypatch.chdir(here.parent)
    for arguments, environment, name, said in (
        (("--config", option), {"TASKGATE_CONFIG": str(variable)}, "option", ""),
        ((), {"TASKGATE_CONFIG": str(variable)}, "variable", f"taskgate: the configuration is {variable}\n"),
        ((), {"TASKGATE_CONFIG": ""}, "here", "taskgate: the configuration is taskgate.yaml\n"),
    ):
        status, out, err = run("check", "--running", *arguments, **environment)
        assert (status, out.split()[1], err) == (0, name, said)
    asked = ("--upstream", "here", "--tool", "any", "--json")
    assert json.loads(run("explain", *asked)[1])["call"]["upstream"] == "here"
    assert run("metrics", TASKGATE_CONFIG=str(tmp_path / "none"))[0] == 2
    assert json.loads(run("doctor", "--admin", URL.removesuffix("/mcp"), "--json")[1])["configuration"] == {
        "file": "taskgate.yaml",
        "status": 0,
        "messages": [],
    }
    assert "cannot reach http://127.0.0.1:8080/mcp" in run("call", "here", "any")[2]


@pytest.mark.parametrize("command", ["check", "explain --upstream a --tool b", "token inspect --token t", "serve"])
def test_a_command_without_a_configuration_says_where_one_was_looked_for(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*command.split())
    assert status == 2
    assert "--config FILE" in err
    assert "TASKGATE_CONFIG is not set, and taskgate.yaml and /etc/taskgate/taskgate.yaml are missing." in err


def test_options_of_serve_win_over_a_configuration_in_its_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taskgate.yaml").write_text("version: wrong\n")
    assert "version" in run("serve")[2]
    assert "version" not in run("serve", "--upstream", "no URL")[2]


def test_check_prints_every_key_as_it_takes_effect_where_that_is_asked_for(tmp_path: Path) -> None:
    status, out, err = run("check", "--print", "--config", write_configuration(tmp_path, URL, limits="{}"))
    assert (status, err) == (0, "")
    assert "tasks_per_context: 10" in out
    assert f"url: {URL}" in out


def test_check_shows_no_secret(tmp_path: Path) -> None:
    file, secret = tmp_path / "taskgate.yaml", tmp_path / "secret"
    secret.write_text("s3cret-file\n")
    grant = "mode: client_credentials, token_url: 'https://idp.example.com/token', client_id: gw"
    file.write_text(
        "version: 1\nauth: {mode: required, issuers: {corp: {issuer: 'https://idp.example.com/'}}}\nupstreams:\n"
        "  a: {path: /a, url: 'https://a', credentials: {mode: header, header: X-Key, value: s3cret-text}}\n"
        f"  b: {{path: /b, url: 'https://b', credentials: {{{grant}, client_secret: '${{S}}'}}}}\n"
        f"  c: {{path: /c, url: 'https://c', credentials: {{{grant}, client_secret: '${{file:{secret}}}'}}}}\n"
    )
    status, out, err = run("check", "--running", "--print", "--config", file, S="s3cret-variable")
    assert (status, err) == (0, "")
    assert "s3cret" not in out
    assert out.count("********") == 3


def test_check_shows_no_value_of_a_query(tmp_path: Path) -> None:
    file = tmp_path / "taskgate.yaml"
    endpoint = "http://127.0.0.1:4318/v1/traces?plain-s3cret"
    file.write_text(
        "version: 1\nauth: {mode: none}\nupstreams:\n"
        "  a: {path: /a, url: 'https://a/mcp?api_key=s3cret-one&region=s3cret-two&empty='}\n"
        "  b: {path: /b, transport: stdio, command: [b, '--url=https://b/?key=s3cret-three']}\n"
        f"tracing: {{enabled: true, endpoint: '{endpoint}'}}\n"
    )
    status, out, err = run("check", "--running", "--print", "--config", file)
    assert status == 0, err
    assert "s3cret" not in out + err
    assert "https://a/mcp?api_key=********&region=********&empty=********" in out
    file.write_text(out)
    status, _, err = run("check", "--running", "--config", file)
    assert status == 2
    assert "upstreams.a.url: must not have ********, which stands for what is not shown" in err


@covers("T38")
def test_check_shows_nothing_that_came_from_a_reference(tmp_path: Path) -> None:
    upstreams = (
        "{reports: {path: /reports/mcp, url: 'http://127.0.0.1:9/s/${KEY}/mcp'},"
        " files: {path: /files/mcp, transport: stdio, command: ['${TOOL}', '--key=${KEY}'], cwd: '${PLACE}'}}"
    )
    audit = "{sinks: [{name: own, type: file, path: '${PLACE}/none/audit.jsonl'}]}"
    file = write_configuration(tmp_path, "", upstreams=upstreams, audit=audit)
    secrets = {"KEY": "s3cret-key", "TOOL": "s3cret-tool", "PLACE": "/s3cret-place"}
    printed = [run("check", *more, "--config", file, **secrets) for more in ((), ("--json",), ("--print",))]
    assert "s3cret" not in str(printed)
    [(status, _, told), *_] = printed
    assert status == 2
    assert "upstreams.files.cwd: ******** is no folder of this machine" in told
    assert "audit.sinks (own): cannot be written: there is no folder ********/none; create it" in told
    shown = effective(load(file, secrets))
    assert "url: http://127.0.0.1:9/s/********/mcp" in shown
    assert "- --key=********" in shown


@pytest.mark.parametrize("key", [os.urandom(32), b"c2hvcnQ=\n", b""], ids=["raw bytes", "too short", "empty"])
@pytest.mark.parametrize("named", ["hmac_key_file", "chain.sign_key_file"])
def test_check_refuses_a_key_of_the_audit_log_as_serve_does(tmp_path: Path, key: bytes, named: str) -> None:
    place = tmp_path / "audit.key"
    place.write_bytes(key)
    place.chmod(0o600)
    section = f"hmac_key_file: {place}" if named == "hmac_key_file" else f"chain: {{sign_key_file: {place}}}"
    file = write_configuration(tmp_path, URL, audit=f"{{{section}}}")
    checked, _, told = run("check", "--config", file)
    served, _, said = run("serve", "--config", file, TASKGATE_DATA_DIR=str(tmp_path / "data"))
    assert (checked, served) == (2, 1)
    assert f"audit.{named}: " in told
    assert told.splitlines()[-1] in said


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"auth": "{mode: none, context: {key_file: FILE}}"}, "auth.context.key_file: "),
        ({"admin": '{listen: "127.0.0.1:0", token_file: FILE}'}, "admin.token_file: "),
        ({"server": '{listen: "127.0.0.1:0", tls: {cert_file: FILE, key_file: FILE}}'}, "server.tls."),
        ({"admin": '{listen: "127.0.0.1:0", tls: {cert_file: FILE, key_file: FILE}}'}, "admin.tls."),
        (
            {"upstreams": '{a: {path: /a, url: "https://a", tls: {cert_file: FILE, key_file: FILE}}}'},
            "upstreams.a.tls.",
        ),
    ],
    ids=["contexts", "operators", "listener", "listener for operators", "server"],
)
@pytest.mark.parametrize(("content", "mode"), [(None, 0), (b"c2hvcnQ=", 0o600), (b"a" * 64, 0o604)])
def test_check_refuses_a_file_with_a_key_as_serve_does(
    tmp_path: Path, sections: dict[str, str], named: str, content: bytes | None, mode: int
) -> None:
    place = tmp_path / "key"
    if content is not None:
        place.write_bytes(content)
        place.chmod(mode)
    texts = {name: text.replace("FILE", str(place)) for name, text in sections.items()}
    file = write_configuration(tmp_path, URL, **texts)
    checked, _, told = run("check", "--config", file)
    served, _, said = run("serve", "--config", file, TASKGATE_DATA_DIR=str(tmp_path / "data"))
    assert (checked, served) == (2, 1)
    assert named in told
    assert told.splitlines()[-1] in said


def test_check_tells_all_problems_at_once_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nauth: {mode: none}\nupstreams: {}\nserver: {max_bodi: 1}\n")
    status, out, err = run("check", "--config", file)
    assert (status, out) == (2, "")
    assert f"{file}:3: upstreams" in err
    assert f"{file}:4: server.max_bodi" in err


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    status, out, err = run("serve", "--config", tmp_path / "none.yaml")
    assert (status, out) == (2, "")
    assert "none.yaml" in err


def test_the_schema_is_json() -> None:
    status, out, _ = run("schema")
    assert status == 0
    assert json.loads(out)["title" if "title" in json.loads(out) else "$schema"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("serve",), id="neither file nor server"),
        pytest.param(("serve", "--config", "x", "--upstream", URL), id="both"),
        pytest.param(("serve", "--config", "x", "--listen", "127.0.0.1:1"), id="listen with a file"),
        pytest.param(("serve", "--config", "x", "--admin", "127.0.0.1:1"), id="admin with a file"),
        pytest.param(("serve", "--config", "x", "--upstream-command", "a"), id="a file and a program"),
        pytest.param(("serve", "--upstream", URL, "--upstream-command", "true"), id="a URL and a program"),
        pytest.param(("serve", "--upstream-command", "'"), id="no command"),
        pytest.param(("serve", "--upstream-command", ""), id="an empty command"),
        pytest.param(("serve", "--upstream-command", "true", "--listen", "0.0.0.0:1"), id="a program for everybody"),
        pytest.param(("serve", "--upstream", "ftp://x/"), id="a URL of another scheme"),
        pytest.param(("serve", "--upstream", URL, "--listen", "0.0.0.0:1"), id="a listener for everybody"),
        pytest.param(("serve", "--upstream", URL, "--admin", "nowhere"), id="no address"),
    ],
)
def test_a_wrong_command_line_is_refused_with_2(arguments: tuple[str, ...]) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err
    assert "Traceback" not in err


@pytest.mark.parametrize("key", ["server", "admin"])
def test_a_port_that_is_taken_is_named_with_its_key_and_ends_with_1(tmp_path: Path, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = write_configuration(tmp_path, URL, **{key: f'{{listen: "{address}"}}'})
        status, out, err = run("serve", "--config", file)
    assert (status, out) == (1, "")
    assert f"taskgate: {key}.listen: cannot listen on {address}: address already in use" in err


@pytest.mark.program
async def test_a_second_process_on_the_same_store_refuses_to_start(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, URL)
    async with gateway_process(["--config", file], log=tmp_path / "first.log") as first:
        log = tmp_path / "second.log"
        async with running([TASKGATE, "serve", "--config", file], log=log) as second, bounded():
            assert await second.process.wait() == 1
    said = log.read_text()
    assert said.startswith("taskgate: /")
    why = f"The store's file is in use by another process, pid {first.child.process.pid}"
    assert said.endswith(f"/taskgate.db: {why}\n")


@pytest.mark.program
async def test_without_a_file_the_server_is_at_mcp_and_its_store_in_the_data_directory(tmp_path: Path) -> None:
    arguments = ["--upstream", URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    folder = tmp_path / "data"
    environment = {"TASKGATE_DATA_DIR": str(folder)}
    async with gateway_process(arguments, log=tmp_path / "log", environment=environment) as gateway, bounded():
        assert gateway.listen.startswith("127.0.0.1:")
        assert {"audit.jsonl", "audit.key", "taskgate.db"} <= set(os.listdir(folder))
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_loop_that_is_not_installed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    file = write_configuration(tmp_path, URL)
    status, _, told = run("serve", "--config", file, "--loop", "uvloop", TASKGATE_DATA_DIR=str(tmp_path / "data"))
    assert (status, told) == (2, "uvloop is not installed: pip install 'taskgate[uvloop]'\n")


@pytest.mark.parametrize(("loop", "taken"), [("auto", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")])
@pytest.mark.program
async def test_the_log_tells_which_loop_is_taken(tmp_path: Path, loop: str, taken: str) -> None:
    file = write_configuration(tmp_path, URL)
    async with gateway_process(["--config", file, "--loop", loop], log=tmp_path / "log") as gateway:
        assert [line["loop"] for line in gateway.log_lines() if line["event"] == "serving"] == [taken]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.program
async def test_a_signal_ends_it_with_0(tmp_path: Path, number: signal.Signals, loop: str) -> None:
    file = write_configuration(tmp_path, URL)
    async with gateway_process(["--config", file, "--loop", loop], log=tmp_path / "log") as gateway:
        gateway.ask(number)
        assert await gateway.exit_status() == 0
    warned, *events = [(line["level"], line["event"]) for line in gateway.log_lines()]
    assert warned == (
        "warning",
        "authentication is off (auth.mode: none): all hosts that reach the listener are one caller",
    )
    assert events == [
        ("info", "an upstream is mounted"),
        ("info", "the store and the audit log are open"),
        ("info", "operators have a token until the end"),
        ("info", "serving"),
        ("info", "draining"),
        ("info", "drained"),
        ("info", "stopped"),
    ]


@pytest.mark.program
async def test_an_idle_gateway_whose_readiness_nobody_asked_for_ends_within_a_second(tmp_path: Path) -> None:
    """No balancer looks at it, so none has to see that it drains."""
    server = '{listen: "127.0.0.1:0", drain: {delay: 1h, timeout: 1h}}'
    async with serve_process(tmp_path, URL, server=server) as gateway:
        assert (await asked(gateway, "GET", "/livez"))[0] == 200
        gateway.ask(signal.SIGTERM)
        async with bounded(1):
            assert await gateway.exit_status() == 0


@pytest.mark.program
async def test_a_second_signal_ends_the_drain(tmp_path: Path) -> None:
    server = '{listen: "127.0.0.1:0", drain: {delay: 1h, timeout: 1h}}'
    async with serve_process(tmp_path, URL, server=server) as gateway:
        assert (await asked(gateway, "GET", "/readyz"))[0] == 200
        gateway.ask(signal.SIGTERM)
        await gateway.child.said(rb"draining")
        gateway.ask(signal.SIGTERM)
        assert await gateway.exit_status() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.program
async def test_signals_after_the_end_change_no_exit_status(tmp_path: Path, number: signal.Signals) -> None:
    async with serve_process(tmp_path, URL) as gateway:
        gateway.ask(signal.SIGTERM)
        await gateway.child.said(rb"stopped")
        process = gateway.child.process

        def has_ended() -> bool:
            # Its own function to send signals would take its exit status from the loop.
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
            return process.returncode is not None

        async with bounded():
            await eventually(has_ended)
        assert process.returncode == 0


@pytest.mark.program
async def test_a_drain_tells_that_it_reads_no_file_again(tmp_path: Path) -> None:
    server = '{listen: "127.0.0.1:0", drain: {delay: 1h, timeout: 1h}}'
    async with serve_process(tmp_path, URL, server=server) as gateway:
        assert (await asked(gateway, "GET", "/readyz"))[0] == 200
        gateway.ask(signal.SIGTERM)
        await gateway.child.said(rb"draining")
        gateway.ask(signal.SIGHUP)
        await gateway.child.said(rb'"warning"[^\n]*configuration not reloaded')
        gateway.ask(signal.SIGTERM)
        assert await gateway.exit_status() == 0


@pytest.mark.program
async def test_whoever_has_the_operators_token_ends_it_and_the_usual_signal_cuts_nothing_short(tmp_path: Path) -> None:
    """An orchestrator asks before it sends its signal; only a second signal is from somebody in a hurry."""
    token = tmp_path / "token"
    token.write_text(noted("an-operators-token-of-some-length") + "\n")
    lines = {
        "admin": f'{{listen: "127.0.0.1:0", token_file: "{token}"}}',
        "server": '{listen: "127.0.0.1:0", drain: {delay: 1h, timeout: 1h}}',
    }
    file = write_configuration(tmp_path, URL, **lines)
    async with gateway_process(["--config", file], log=tmp_path / "log") as gateway:
        bearer = f"Bearer {token.read_text().strip()}"
        assert (await asked(gateway, "GET", "/readyz"))[0] == 200
        assert (await asked(gateway, "POST", "/-/drain", Authorization=bearer))[0] == 202
        await gateway.child.said(rb"draining")
        gateway.ask(signal.SIGTERM)
        for _ in range(50):
            # Nothing tells that it goes on; one that is in a hurry would be gone by the last of these.
            assert (await asked(gateway, "GET", "/readyz"))[1]["status"] == "draining"
        gateway.ask(signal.SIGTERM)
        assert await gateway.exit_status() == 0


# --- reading the file again ----------------------------------------------------------------------------------------

STAYS = rb'\{[^\n]*"event":"configuration not reloaded"[^\n]*\}'


def with_two(folder: Path, **lines: str) -> Path:
    """The file again, with a second server in it."""
    servers = ", ".join(f'{name}: {{path: /{name}, url: "{URL}", health: null}}' for name in ("reports", "books"))
    return write_configuration(folder, URL, upstreams=f"{{{servers}}}", **lines)


async def asked(gateway: GatewayProcess, verb: str, path: str, **headers: str) -> tuple[int, Any]:
    """Status and document of a request of an operator."""
    url = f"http://{gateway.admin}{path}"
    async with bounded(), aiohttp.ClientSession() as http, http.request(verb, url, headers=headers) as response:
        return response.status, await response.json()


async def served(gateway: GatewayProcess) -> list[str]:
    """The names of the servers."""
    return sorted((await asked(gateway, "GET", "/readyz?verbose"))[1]["upstreams"])


@pytest.mark.parametrize("option", [["--no-watch"], []], ids=["on SIGHUP", "of itself"])
@pytest.mark.program
async def test_a_file_that_was_changed_is_read_again(tmp_path: Path, option: list[str]) -> None:
    file = write_configuration(tmp_path, URL)
    async with gateway_process(["--config", file, *option], log=tmp_path / "log") as gateway:
        assert await served(gateway) == ["reports"]
        with_two(tmp_path, logging="{format: logfmt}")
        if option:
            gateway.ask(signal.SIGHUP)
        await gateway.child.said(rb"configuration reloaded[^\n]*success")
        assert await served(gateway) == ["books", "reports"]
    written = [line for line in gateway.log.read_text().splitlines() if "configuration reloaded" in line]
    assert "result=success" in written[0], "what is logged changes with the rest"
    assert "changed=upstreams.reports.path,upstreams.books,logging.format" in written[0]


@pytest.mark.program
async def test_a_secret_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    key, new = tmp_path / "key", tmp_path / "new"
    for path, secret in ((key, "the-first-key"), (new, "the-second-key")):
        path.touch(mode=0o600)
        path.write_text(secret)
    server = f"{{path: /a, url: '{URL}', health: null, headers: {{X-Api-Key: '${{file:{key}}}'}}}}"
    file = write_configuration(tmp_path, "", upstreams=f"{{a: {server}}}")
    async with gateway_process(["--config", file], log=tmp_path / "log") as gateway:
        new.replace(key)
        await gateway.child.said(rb"configuration reloaded[^\n]*success")
    (line,) = (line for line in gateway.log_lines() if line["event"] == "configuration reloaded")
    assert line["changed"] == ["upstreams.a.headers.X-Api-Key"]
    assert '-key"' not in gateway.log.read_text().replace("X-Api-Key", "")


@pytest.mark.program
async def test_a_file_that_cannot_be_used_is_told_as_check_tells_it_and_changes_nothing(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, URL)
    async with gateway_process(["--config", file, "--no-watch"], log=tmp_path / "log") as gateway:
        with_two(tmp_path, limits="{rate: [], concurency: {}}", tasks="{inline_grace: soon}")
        gateway.ask(signal.SIGHUP)
        await gateway.child.said(STAYS + rb"\n" + STAYS)
        assert await served(gateway) == ["reports"]
    told = [line for line in gateway.log_lines() if line["event"] == "configuration not reloaded"]
    problems = run("check", "--config", file)[2].splitlines()
    assert [(line["level"], line["problem"]) for line in told] == [("warning", problem) for problem in problems]
    assert len(problems) == 2


@pytest.mark.program
async def test_without_a_file_there_is_nothing_to_read_again(tmp_path: Path) -> None:
    arguments = ["--upstream", URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    environment = {"TASKGATE_DATA_DIR": str(tmp_path / "data")}
    async with gateway_process(arguments, log=tmp_path / "log", environment=environment) as gateway:
        gateway.ask(signal.SIGHUP)
        await gateway.child.said(rb"cannot reload: the gateway was started without a configuration file")
        assert await served(gateway) == ["default"]


@pytest.mark.program
async def test_whoever_has_the_operators_token_has_the_file_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(noted("an-operators-token-of-some-length") + "\n")
    admin = f'{{listen: "127.0.0.1:0", token_file: "{token}"}}'
    file = write_configuration(tmp_path, URL, admin=admin)
    async with gateway_process(["--config", file, "--no-watch"], log=tmp_path / "log") as gateway:
        with_two(tmp_path, admin=admin, store="{backend: memory}")
        assert (await asked(gateway, "POST", "/-/reload"))[0] == 401
        status, document = await asked(
            gateway, "POST", "/-/reload", Authorization=f"Bearer {token.read_text().strip()}"
        )
        assert (status, document["result"], document["problems"]) == (200, "needs_restart", [])
        assert "store.backend" in document["needs_restart"]
        assert await served(gateway) == ["books", "reports"]


TOKEN_FORM = (
    "must hold one token that can have 128 random bits: at least 22 visible characters, or 32 hexadecimal digits, "
    "and at most 4096; make one with: openssl rand -hex 32"
)
BAD_TOKENS: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot be read: No such file or directory"),
    "short": (b"too-short", TOKEN_FORM),
    "two": (b"planted-secret-one planted-secret-two", TOKEN_FORM),
    "long": (b"x" * 5000, TOKEN_FORM),
}


@pytest.mark.parametrize(("token", "told"), BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_an_operators_token_that_cannot_be_used_ends_it_with_1(tmp_path: Path, token: bytes | None, told: str) -> None:
    if token is not None:
        (tmp_path / "token").write_bytes(token)
    admin = f'{{listen: "127.0.0.1:0", token_file: "{tmp_path}/token"}}'
    status, out, err = run("serve", "--config", write_configuration(tmp_path, URL, admin=admin))
    assert (status, out, err) == (1, "", f"taskgate: admin.token_file: {told}\n")


BAD_KEYS: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "the key file cannot be read: No such file or directory"),
    "malformed": (b"planted secret that is no key", "a key must be base64url of at least 32 bytes"),
    "odd": (b"A" * 45, "a key must be base64url of at least 32 bytes"),
    "empty": (b"", "the key file must hold one key, or two of which the first is the present one"),
}


@pytest.mark.parametrize(("key", "told"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_key_that_cannot_be_used_ends_it_with_1_and_one_line_that_tells_nothing_of_it(
    tmp_path: Path, key: bytes | None, told: str
) -> None:
    if key is not None:
        (tmp_path / "key").write_bytes(key)
        (tmp_path / "key").chmod(0o600)
    issuers = '{corp: {issuer: "https://idp.example.com/", jwks_uri: "http://127.0.0.1:9/keys"}}'
    auth = f'{{mode: required, issuers: {issuers}, context: {{key_file: "{tmp_path}/key"}}}}'
    status, out, err = run("serve", "--config", write_configuration(tmp_path, URL, auth=auth))
    assert (status, out, err) == (1, "", f"taskgate: auth.context.key_file: {told}\n")


def test_a_key_that_cannot_be_made_ends_it_with_1_and_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "context.key").mkdir()
    issuers = '{corp: {issuer: "https://idp.example.com/", jwks_uri: "http://127.0.0.1:9/keys"}}'
    file = write_configuration(tmp_path, URL, auth=f"{{mode: required, issuers: {issuers}}}")
    status, out, err = run("serve", "--config", file, TASKGATE_DATA_DIR=str(folder))
    assert (status, out, err) == (
        1,
        "",
        "taskgate: context.key in the data directory: the key file cannot be read: Is a directory\n",
    )
