"""`taskgate init`: what it asks, what it writes, and what it refuses."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.command_line import run
from helpers.gateway.process import TASKGATE
from helpers.waiting import PATIENCE
from requirements import covers
from taskgate.cli.init import Answers, configuration_text
from taskgate.config import GatewayConfig, load

URL = "http://127.0.0.1:3000/mcp"
ISSUER = "https://idp.example.com/"


def loaded(file: Path) -> GatewayConfig:
    return load(file, {})


def test_with_yes_the_least_that_is_needed_is_the_server(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    status, out, err = run("init", file, "--upstream", URL, "--yes")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"wrote {file}",
        f"token {tmp_path / 'operator.token'}",
        f"check taskgate check --config {file}",
        f"start taskgate serve --config {file}",
        "hosts http://127.0.0.1:8080/mcp",
        f"tasks taskgate tasks ls --token {tmp_path / 'operator.token'}",
        "pages http://127.0.0.1:9464/ui (sign in with that token)",
    ]
    config = loaded(file)
    assert (config.auth.mode, config.store.backend, config.upstreams["default"].url) == ("none", "sqlite", URL)
    assert run("check", "--running", "--config", file)[0] == 0
    assert "    # The path that hosts use.\n    path: /mcp\n" in file.read_text()


def test_every_option_is_in_the_file_and_keys_are_created_beside_it(tmp_path: Path) -> None:
    file, command = tmp_path / "new.yaml", "sh -c 'echo $HOME \"${X}\" é'"
    options = ("--upstream-command", command, "--auth", f"issuer={ISSUER}", "--store", "redis://127.0.0.1:6379/1")
    status, out, err = run("init", file, *options, "--public-url", "https://mcp.example.com")
    assert (status, err) == (0, "")
    assert "\nhosts https://mcp.example.com/mcp\n" in out
    config = loaded(file)
    assert config.upstreams["default"].command == ("sh", "-c", 'echo $HOME "${X}" é')
    assert (config.auth.mode, config.auth.issuers["default"].issuer) == ("required", ISSUER)
    assert (config.server.public_url, config.store.redis.url) == (
        "https://mcp.example.com",
        "redis://127.0.0.1:6379/1",
    )
    keys = [config.auth.context.key_file, config.audit.hmac_key_file]
    assert [key and key.stat().st_mode & 0o777 for key in keys] == [0o600, 0o600]
    assert len({key and key.read_bytes() for key in keys}) == 2


def test_keys_that_are_there_stay(tmp_path: Path) -> None:
    options = ("--upstream", URL, "--store", "redis://127.0.0.1:6379/1", "--yes", "--force")
    file, key = tmp_path / "new.yaml", tmp_path / "taskgate-audit.key"
    assert run("init", file, *options)[0] == 0
    before = key.read_bytes()
    assert run("init", file, *options)[0] == 0
    assert key.read_bytes() == before


def test_a_file_that_exists_is_replaced_with_force_alone(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text("mine")
    status, _, err = run("init", file, "--upstream", URL, "--yes")
    assert status == 2
    assert "exists already" in err
    assert file.read_text() == "mine"
    assert run("init", file, "--upstream", URL, "--yes", "--force")[0] == 0
    assert loaded(file).upstreams["default"].url == URL
    assert sorted(os.listdir(tmp_path)) == ["new.yaml", "operator.token"]


def test_the_token_of_operators_is_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    file, token = tmp_path / "new.yaml", tmp_path / "operator.token"
    for force in ((), ("--force",)):
        status, out, _ = run("init", file, "--upstream", URL, "--yes", *force)
        assert (status, "it was there, and stays" in out) == (0, bool(force))
        assert loaded(file).admin.token_file == token
        assert token.stat().st_mode & 0o777 == 0o600
        before = token.read_text()
        assert len(before) == 32
    assert token.read_text() == before


@covers("T25")
@pytest.mark.parametrize("force", [(), ("--force",)], ids=["new", "replaced"])
def test_the_file_is_for_its_owner_alone(tmp_path: Path, force: tuple[str, ...]) -> None:
    file = tmp_path / "new.yaml"
    if force:
        file.write_text("mine")
        file.chmod(0o644)
    before = os.umask(0)
    try:
        assert run("init", file, "--upstream", f"{URL}?api_key=s3cret", "--yes", *force)[0] == 0
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600


@covers("T25")
def test_no_link_of_another_user_is_followed(tmp_path: Path) -> None:
    file, foreign = tmp_path / "new.yaml", tmp_path / "foreign"
    for place in (file, tmp_path / ".new.yaml.new"):
        place.symlink_to(foreign)
    options = ("--upstream", URL, "--yes")
    assert run("init", file, *options)[0] == 2
    assert run("init", file, *options, "--force")[0] == 0
    assert not foreign.exists()
    assert not file.is_symlink()
    assert loaded(file).upstreams["default"].url == URL


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            (),
            "--upstream-command COMMAND or --from FILE; --auth none or --auth issuer=URL; --store sqlite",
        ),
        (("--upstream", URL), "Give --auth none or --auth issuer=URL; --store sqlite"),
        (("--upstream", URL, "--store", "sqlite", "--auth", "issuer=https://a"), "Give --public-url URL;"),
    ],
)
def test_without_a_terminal_the_options_that_are_missing_are_named(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    file = tmp_path / "new.yaml"
    status, out, err = run("init", file, *options)
    assert (status, out) == (2, "")
    assert "Standard input is no terminal" in err
    assert told in " ".join(err.split())
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--upstream", "ftp://x"), "--upstream: must be an absolute http or https URL"),
        (("--upstream", URL, "--upstream-command", "x"), "Give one of --upstream URL, --upstream-command"),
        (("--upstream-command", "'"), "quotation mark"),
        (("--upstream-command", ""), "must begin with the name of a program"),
        (("--upstream", URL, "--auth", "tokens"), "--auth must be none, or issuer=URL."),
        (("--upstream", URL, "--auth", "issuer=http://a"), "--auth: must be https"),
        (("--upstream", URL, "--store", "mysql://"), "--store must be sqlite, redis://"),
        (("--upstream", URL, "--store", "redis://u:p@a"), "--store: must not hold a user name or password"),
        (("--upstream", URL, "--public-url", "x"), "--public-url: must be an absolute http or https URL"),
        ((), "Give --upstream URL, --upstream-command COMMAND or --from FILE."),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_option_and_nothing_is_written(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    status, out, err = run("init", tmp_path / "new.yaml", *options, "--yes")
    assert (status, out) == (2, "")
    assert told in err
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    status, _, err = run("init", tmp_path / "none" / "new.yaml", "--upstream", URL, "--yes")
    assert status == 1
    assert "cannot be written: No such file or directory" in err


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\ufeff\ufffe\uffff")), min_size=1
    )
)
def test_any_command_is_in_the_file_as_it_was_given(words: list[str]) -> None:
    command = ["program", *words]
    answers = Answers(url=None, command=tuple(command), issuer=None, redis=None, public_url=None)
    line = next(line for line in configuration_text(answers, Path("/x")).splitlines() if "command: [" in line)
    written = json.loads(line.partition(":")[2])
    assert [each.replace("$$", "$") for each in written] == command


@pytest.mark.program
def test_on_a_terminal_at_most_six_questions_are_asked(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard:
        try:
            child = subprocess.Popen(
                [TASKGATE, "init", "new.yaml"], cwd=tmp_path, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        finally:
            os.close(its)
        keyboard.write(f"{URL}\nissuer={ISSUER}\n\nhttps://mcp.example.com\n".encode())
        out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out.decode().splitlines()[0]) == (0, "wrote new.yaml"), err
    assert err.decode().count("it: ") + err.decode().count("]: ") == 4
    config = loaded(tmp_path / "new.yaml")
    assert (config.auth.mode, config.store.backend) == ("required", "sqlite")
    assert config.server.public_url == "https://mcp.example.com"


# --- servers of a host


def write_list(folder: Path, text: str) -> Path:
    file = folder / ".mcp.json"
    file.write_text(text)
    return file


CLAUDE = """{ // Claude Code takes no comment, but VS Code does.
  "mcpServers": {
    "GitHub": {"command": "npx", "args": ["-y", "gh//mcp", "--cost=$5"], "env": {"TOKEN": "ghp_a", "MODE": "${M:-x}"}},
    "git hub": {"command": "gh", "env": {"TOKEN": "ghp_b", "DEPTH": 3}},
    "remote": {"type": "http", "url": "https://mcp.example.com/mcp",
               "headers": {"Authorization": "Bearer abc", "X-Key": "${KEY}"}},
    "old": {"type": "sse", "url": "http://127.0.0.1:9/sse",},
  },
}"""


def test_the_servers_of_a_host_become_upstreams_and_their_secrets_variables(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    status, out, err = run("init", file, "--from", write_list(tmp_path, CLAUDE), "--yes")
    assert (status, err) == (0, "")
    variables = {name: name.lower() for name in ("TOKEN", "GIT_HUB_TOKEN", "DEPTH", "REMOTE_AUTHORIZATION", "KEY")}
    assert f"needs {' '.join(variables)} (variables of the gateway's environment)\n" in out
    config = load(file, variables)
    one, two, remote, old = (config.upstreams[name] for name in ("github", "git-hub", "remote", "old"))
    assert (one.transport, one.command) == ("stdio", ("npx", "-y", "gh//mcp", "--cost=$5"))
    assert (one.env, two.env) == ({"TOKEN": "token", "MODE": "x"}, {"TOKEN": "git_hub_token", "DEPTH": "depth"})
    assert (remote.url, remote.transport, remote.path) == ("https://mcp.example.com/mcp", "http", "/remote/mcp")
    assert remote.headers == {"Authorization": "Bearer remote_authorization", "X-Key": "key"}
    assert (old.url, old.transport) == ("http://127.0.0.1:9/sse", "sse")
    assert not {"ghp_a", "ghp_b", "abc"} & {*file.read_text().split('"')}
    replacement = json.loads(out.partition("hosts read this file from now on:\n")[2])
    assert replacement["mcpServers"]["git hub"] == {"type": "http", "url": "http://127.0.0.1:8080/git-hub/mcp"}
    assert [*replacement["mcpServers"]] == ["GitHub", "git hub", "remote", "old"]


def test_the_list_of_vs_code_has_its_own_form_and_references(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    server = {
        "type": "stdio",
        "command": "${workspaceFolder}/run",
        "args": ["${input:api-key}", "${env:LEVEL}", "${command:x}"],
        "cwd": "${workspaceFolder}",
    }
    (tmp_path / ".vscode" / "mcp.json").write_text(json.dumps({"inputs": [], "servers": {"own": server}}))
    file = tmp_path / "new.yaml"
    status, out, _ = run("init", file, "--from", tmp_path / ".vscode" / "mcp.json", "--yes")
    assert (status, "needs API_KEY LEVEL " in out, '"servers": {' in out) == (0, True, True)
    found = load(file, {"API_KEY": "k", "LEVEL": "l"}).upstreams["own"]
    assert found.command == (f"{tmp_path}/run", "k", "l", "${command:x}")
    assert found.cwd == tmp_path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "has no servers"),
        ('{"mcpServers": {}}', "has no servers"),
        ('{"mcpServers": {"a": {}}}', "'a' must have one of url and command"),
        ('{"mcpServers": {"a": {"url": "http://a", "command": "b"}}}', "'a' must have one of url and command"),
        ('{"mcpServers": {"a": {"command": "b", "args": [1]}}}', "args of 'a' must be a list of texts"),
        ('{"mcpServers": {"a": {"command": "b", "env": [1]}}}', "env of 'a' must have names and texts"),
        (" " * 2**20 + "{}", "is larger than 1 MiB"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_and_nothing_is_written(tmp_path: Path, text: str, told: str) -> None:
    status, _, err = run("init", tmp_path / "new.yaml", "--from", write_list(tmp_path, text), "--yes")
    assert (status, os.listdir(tmp_path)) == (2, [".mcp.json"])
    assert told in err


def test_a_list_that_is_not_there_and_one_beside_a_server_are_refused(tmp_path: Path) -> None:
    file, missing = tmp_path / "new.yaml", tmp_path / "none.json"
    assert "none.json cannot be read: No such file or directory" in run("init", file, "--from", missing, "--yes")[2]
    assert "Give one of --upstream URL" in run("init", file, "--from", missing, "--upstream", URL, "--yes")[2]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("localhost:3000/mcp", "http://localhost:3000/mcp"),
        ("127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("[::1]:3000/mcp", "http://[::1]:3000/mcp"),
        ("localhost/mcp", "http://localhost/mcp"),
        (URL, URL),
    ],
)
def test_an_address_without_a_scheme_is_a_url(tmp_path: Path, given: str, url: str) -> None:
    file = tmp_path / "new.yaml"
    assert run("init", file, "--upstream", given, "--yes")[0] == 0
    assert loaded(file).upstreams["default"].url == url
