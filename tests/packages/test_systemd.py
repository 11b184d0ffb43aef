"""The unit for systemd: it is valid, hardened, and fits what the program does."""

import asyncio
import json
import re
import shutil
import signal
import socket
import string
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest
from example.processes import running

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import TASKGATE, gateway_process, serving
from helpers.waiting import bounded
from provider.install import nothing_may_be_missing
from requirements import covers
from taskgate import config as settings
from taskgate.cli import main
from taskgate.wiring.shutdown import GRACE

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "taskgate.service"
MOST_EXPOSED = 2.0


def unit_value(key: str, section: str = "Service") -> str:
    """The last value of a key in the unit."""
    parser = RawConfigParser(strict=False, allow_no_value=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser[section][key]


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        if nothing_may_be_missing():
            pytest.fail("nothing may be missing here, but systemd-analyze is", pytrace=False)
        pytest.skip("there is no systemd-analyze here (Debian: apt-get install systemd)")
    command = (program, "--no-pager", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.program
def test_the_unit_exposes_little() -> None:
    ended = analyzed("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", UNIT)
    found = re.search(r"Overall exposure level for taskgate.service: ([\d.]+)", ended.stdout)
    assert found is not None, ended.stderr
    assert float(found[1]) <= MOST_EXPOSED
    assert ended.returncode == 0


@covers("T38")
def test_the_unit_allows_no_core_dump() -> None:
    assert unit_value("LimitCORE") == "0"


@pytest.mark.program
def test_the_unit_is_valid(tmp_path: Path) -> None:
    """But for the program, which is not installed where the unit names it."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/taskgate/bin/taskgate", "/bin/true"))
    ended = analyzed("verify", unit)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_the_unit_starts_a_command_that_there_is() -> None:
    program, command, *options = unit_value("ExecStart").split()
    assert program.endswith("/taskgate")
    found = main.commands[command]
    context = found.make_context(command, options)
    assert (command, str(context.params["file"])) == ("serve", "${CONFIGURATION_DIRECTORY}/taskgate.yaml")


@pytest.mark.program
async def test_what_the_unit_starts_finds_its_configuration_its_secrets_and_its_state(tmp_path: Path) -> None:
    """In the folders that systemd names to it; no other variable is there, and no home."""
    folders = {name: tmp_path / name.lower() for name in ("CONFIGURATION", "STATE", "LOGS", "CREDENTIALS")}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    credential = unit_value("LoadCredential").partition(":")[0]
    for name in ("context.key", "audit.key"):
        secret = folders["CREDENTIALS"] / f"{credential}_{name}"
        secret.write_text(f"{'A' * 43}\n")
        secret.chmod(0o400)
    keys = {name: f"${{CREDENTIALS_DIRECTORY}}/taskgate_{name}.key" for name in ("context", "audit")}
    sink = "{name: file, type: file, path: '${LOGS_DIRECTORY}/audit.jsonl'}"
    (folders["CONFIGURATION"] / "taskgate.yaml").write_text(
        "version: 1\nserver: {listen: '127.0.0.1:0', drain: {delay: 0s}}\nadmin: {listen: '127.0.0.1:0'}\n"
        "upstreams: {reports: {path: /mcp, url: 'http://127.0.0.1:1/mcp'}}\n"
        f"auth: {{mode: none, context: {{key_file: '{keys['context']}'}}}}\n"
        f"audit: {{hmac_key_file: '{keys['audit']}', sinks: [{sink}]}}\n"
    )
    variables = {f"{name}_DIRECTORY": str(folder) for name, folder in folders.items()}
    _, *arguments = string.Template(unit_value("ExecStart")).substitute(variables).split()
    clean = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    async with running([*clean, TASKGATE, *arguments], log=tmp_path / "log", polite=signal.SIGTERM) as child:
        gateway = await serving(child)
        assert {each.name for each in folders["STATE"].iterdir()} >= {"taskgate.db"}
        assert (folders["LOGS"] / "audit.jsonl").exists()
        gateway.ask(signal.SIGTERM)
        assert await gateway.exit_status() == 0


def test_the_gateway_has_ended_before_the_unit_has_it_killed(tmp_path: Path) -> None:
    drain = settings.load(write_configuration(tmp_path, "http://127.0.0.1:1/mcp", server={}), {}).server.drain
    longest = drain.delay + drain.timeout + GRACE
    assert int(unit_value("TimeoutStopSec").removesuffix("s")) > longest.total_seconds()


@pytest.mark.program
async def test_a_gateway_tells_its_service_manager_of_start_reload_and_stop(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, "http://127.0.0.1:1/mcp")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{tmp_path}/notify")
        manager.setblocking(False)

        async def heard(*, but: str = "WATCHDOG=1") -> str:
            async with bounded():
                while (said := (await asyncio.get_running_loop().sock_recv(manager, 4096)).decode()) == but:
                    pass
            return said

        environment = {"NOTIFY_SOCKET": f"{tmp_path}/notify", "WATCHDOG_USEC": "100000"}
        log = tmp_path / "log"
        async with gateway_process(["--config", file], log=log, environment=environment) as gateway:
            assert await heard() == "READY=1"
            assert await heard(but="") == "WATCHDOG=1"
            gateway.ask(signal.SIGHUP)
            assert (await heard()).startswith("RELOADING=1\nMONOTONIC_USEC=")
            assert await heard() == "READY=1"
            gateway.ask(signal.SIGTERM)
            assert await heard() == "STOPPING=1"
            assert await gateway.exit_status() == 0
            assert json.dumps(gateway.log_lines()).count("could not be notified") == 0
