"""What `serve` says at its start: lines in a pipe, a banner on a terminal."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command_line import run
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import TASKGATE, gateway_process, serve_process, taskgate
from helpers.waiting import PATIENCE
from requirements import covers
from taskgate import __version__
from taskgate.wiring.startup import MountReport, StartupReport

UPSTREAMS = (
    '{reports: {path: /reports/mcp, url: "http://127.0.0.1:9/mcp?key=s3cret", health: null},'
    " files: {path: /files/mcp, transport: stdio, command: [cat, s3cret]}}"
)


def on_terminal(file: Path, data: Path, *, prints_there: bool = False) -> str:
    """Standard error of a gateway whose standard error is a terminal, until it serves and has ended.

    With `prints_there` its standard output is that terminal, too.
    """
    ours, its = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        command = [TASKGATE, "serve", "--config", file]
        environment = {**os.environ, "TASKGATE_DATA_DIR": str(data)}
        try:
            output = its if prints_there else subprocess.DEVNULL
            child = subprocess.Popen(command, stdout=output, stderr=its, env=environment)
        finally:
            os.close(its)
        shown = b""
        try:
            while b"serving" not in shown:
                # Ends with OSError when the program does.
                shown += screen.read(65536)
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=PATIENCE) == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.program
async def test_each_mount_is_told_with_the_url_for_hosts_and_its_server(tmp_path: Path) -> None:
    async with serve_process(tmp_path, "", upstreams=UPSTREAMS) as gateway:
        lines = [line for line in gateway.log_lines() if line["event"] == "an upstream is mounted"]
    assert [(line["upstream"], line["url"], line["server"]) for line in lines] == [
        ("reports", f"http://{gateway.listen}/reports/mcp", "http://127.0.0.1:9"),
        ("files", f"http://{gateway.listen}/files/mcp", "cat"),
    ]


@covers("T38")
@pytest.mark.program
async def test_no_log_line_has_what_came_from_a_reference(tmp_path: Path) -> None:
    upstreams = (
        '{reports: {path: /reports/mcp, url: "http://127.0.0.1:9/s/${KEY}/mcp"},'
        ' files: {path: /files/mcp, transport: stdio, command: ["${TOOL}", "${KEY}"]}}'
    )
    store, secrets = '{sqlite: {path: "${PLACE}/taskgate.db"}}', {"KEY": "s3cret-key", "TOOL": "s3cret-tool"}
    secrets["PLACE"] = str(tmp_path / "s3cret-place")
    (tmp_path / "s3cret-place").mkdir(mode=0o700)
    file = write_configuration(tmp_path, "", upstreams=upstreams, store=store)
    async with gateway_process(["--config", file], log=tmp_path / "log", environment=secrets) as gateway:
        lines = gateway.log_lines()
    told = {line["event"]: line for line in lines}
    assert told["the store and the audit log are open"]["store_place"] == "********/taskgate.db"
    problem = told["the program of a stdio server cannot be started"]["problem"]
    assert problem == "there is no program ******** on this machine"
    mounted = [line["server"] for line in lines if line["event"] == "an upstream is mounted"]
    assert mounted == ["http://127.0.0.1:9", "********"]
    assert "s3cret" not in (tmp_path / "log").read_text()


@covers("T38")
@pytest.mark.program
def test_the_error_of_a_start_has_nothing_that_came_from_a_reference(tmp_path: Path) -> None:
    (tmp_path / "s3cret-place").mkdir()
    (tmp_path / "s3cret-place" / "notes").write_text("no audit log\n")
    audit = "{sinks: [{name: own, type: file, path: '${PLACE}/notes'}]}"
    file = write_configuration(tmp_path, "http://127.0.0.1:9", audit=audit)
    ended = taskgate("serve", "--config", file, folder=tmp_path, PLACE=str(tmp_path / "s3cret-place"))
    assert ended.returncode == 1
    assert "audit.sinks (own): ********/notes is no audit log of taskgate" in ended.stderr
    assert "s3cret" not in ended.stderr


@covers("T38")
@pytest.mark.skipif(sys.platform != "linux", reason="the limits of a process are in /proc on Linux alone")
@pytest.mark.program
async def test_the_memory_of_a_gateway_is_in_no_core_dump(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, "", upstreams=UPSTREAMS)
    async with gateway_process(["--config", file], log=tmp_path / "log") as gateway:
        limits = Path(f"/proc/{gateway.child.process.pid}/limits").read_text()
    [line] = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]


@pytest.mark.program
async def test_the_version_and_the_places_of_files_are_told(tmp_path: Path) -> None:
    file, data = write_configuration(tmp_path, "", upstreams=UPSTREAMS), tmp_path / "log-data"
    async with gateway_process(["--config", file], log=tmp_path / "log") as gateway:
        lines = {line["event"]: line for line in gateway.log_lines()}
    assert lines["serving"]["version"] == __version__
    told = lines["the store and the audit log are open"]
    assert (told["store"], told["store_place"], told["data_directory"], told["audit"]) == (
        "sqlite",
        f"{tmp_path}/taskgate.db",
        str(data),
        [f"{data}/audit.jsonl", "stdout"],
    )


@pytest.mark.program
def test_a_terminal_gets_a_banner_and_lines_of_text(tmp_path: Path) -> None:
    shown = on_terminal(write_configuration(tmp_path, "", upstreams=UPSTREAMS), tmp_path / "data")
    assert f"taskgate {__version__}\n\n  http://127.0.0.1:" in shown
    assert "/reports/mcp  reports: http://127.0.0.1:9\n" in shown
    assert f"\n  audit log       {tmp_path}/data/audit.jsonl, stdout\n" in shown
    assert "info     taskgate.cli: serving listen=127.0.0.1:" in shown
    assert "an upstream is mounted" not in shown
    assert "s3cret" not in shown


@pytest.mark.program
def test_a_terminal_gets_no_line_of_the_audit_log_unless_it_is_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shown = on_terminal(write_configuration(tmp_path, "", upstreams=UPSTREAMS), data, prints_there=True)
    assert f"\n  audit log       {data}/audit.jsonl\n" in shown
    assert '"event":' not in shown
    audit = "{sinks: [{name: here, type: stdout}]}"
    file = write_configuration(tmp_path, "", upstreams=UPSTREAMS, audit=audit)
    assert '"event":"audit.chain_started"' in on_terminal(file, data, prints_there=True)


@pytest.mark.program
def test_a_terminal_gets_the_address_of_the_console_with_its_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shown = on_terminal(write_configuration(tmp_path, "", upstreams=UPSTREAMS), data)
    assert re.search(r"\n  console         http://127\.0\.0\.1:\d+/ui#token=[A-Za-z0-9_-]{32}\n", shown)
    assert re.search(rf"\n  its token       {data}/operator-\d+\.token\n", shown)
    logged = write_configuration(tmp_path, "", upstreams=UPSTREAMS, logging="{format: console}")
    assert "#token=" not in on_terminal(logged, data)


@pytest.mark.program
async def test_without_tokens_a_gateway_of_this_machine_has_one_until_its_end(tmp_path: Path) -> None:
    async with serve_process(tmp_path, "", upstreams=UPSTREAMS) as gateway:
        [line] = [line for line in gateway.log_lines() if line["event"] == "operators have a token until the end"]
        file = Path(str(line["file"]))
        token = file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
        admin = f"http://{gateway.admin}"
        status, out, err = await asyncio.to_thread(run, "tasks", "ls", "--token", file, "--admin", admin)
        assert (status, err, out.split("\t")[0]) == (0, "", "REFERENCE")
    assert not file.exists()
    assert token not in gateway.log.read_text()


@pytest.mark.program
async def test_a_gateway_with_tokens_makes_none(tmp_path: Path) -> None:
    token = tmp_path / "mine"
    token.write_text("a-token-of-an-operator-0123")
    token.chmod(0o600)
    admin = f'{{listen: "127.0.0.1:0", token_file: {token}}}'
    async with serve_process(tmp_path, "", upstreams=UPSTREAMS, admin=admin) as gateway:
        assert [line for line in gateway.log_lines() if "token" in str(line["event"])] == []
        assert list((tmp_path / "gateway.log-data").glob("operator*")) == []


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.program
def test_a_format_that_is_chosen_has_no_banner(tmp_path: Path, format: str) -> None:
    logging = f"{{format: {format}}}"
    shown = on_terminal(write_configuration(tmp_path, "", upstreams=UPSTREAMS, logging=logging), tmp_path / "data")
    assert shown.count("an upstream is mounted") == 2
    assert "\ntaskgate " not in shown
    first = shown.splitlines()[0]
    assert json.loads(first)["level"] == "warning" if format == "json" else " warning  taskgate" in first


def test_a_banner_aligns_urls_and_says_what_is_not_there() -> None:
    mounts = MountReport("a", "http://h/a", "npx"), MountReport("bb", "http://h/longer", "http://s/mcp")
    report = StartupReport("1.2", "h:1", "[::1]:2", "http://[::1]:2", mounts, "memory", None, None, ())
    assert list(report.lines()) == [
        "taskgate 1.2",
        "",
        "  http://h/a       a: npx",
        "  http://h/longer  bb: http://s/mcp",
        "",
        "  operators       http://[::1]:2",
        "  store           memory",
        "  data directory  none",
        "  audit log       none",
    ]
    with_console = report._replace(has_console=True)
    assert "  console         http://[::1]:2/ui" in list(with_console.lines())
    assert list(with_console.lines("a-token", "/data/operator.token"))[6:8] == [
        "  console         http://[::1]:2/ui#token=a-token",
        "  its token       /data/operator.token",
    ]
    proxied = report._replace(proxies=("http://p:1 for http", "http://q:2 for https"))
    assert list(proxied.lines())[-1] == "  proxy           http://p:1 for http, http://q:2 for https"
