"""What every test tells is judged: each kind of leak fails its own test, and nothing innocent does."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[2]

LEVELS = "tests/unit/telemetry/test_logs.py::test_nothing_below_the_level_is_written"
UNHEARD = {LEVELS: "the level of our loggers is what it is about"}
"""The tests that are not judged, each with its reason."""

KINDS = ("id", "jwt", "opaque", "signature")

BEGINNING = '''
import json, logging, sys
import pytest
from aiohttp import ClientSession, web
from helpers import event_ears, secrets
from helpers.gateway import process
from helpers.leaks import no_task_left_behind, nothing_left_behind
from helpers.host.host import Host
from helpers.records import new_record
from helpers.told import MARKER, now, told
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, Chain
from helpers.emitting_metrics import EmittingMetrics
from taskgate.telemetry.metrics.settings import MetricsConfig

ID = "q7Zr0_XbV3mKtY9-hLwPs5Dc8NfGj2Ae"
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
OPAQUE = "correct horse"
log = logging.getLogger("taskgate.somewhere")
KINDS = {"id": ID, "jwt": JWT, "opaque": OPAQUE, "signature": JWT.rpartition(".")[2]}
SECRETS = pytest.mark.parametrize("secret", KINDS.values(), ids=KINDS)

@pytest.fixture(autouse=True)
def opaque_ones_are_known(told):
    secrets.noted(OPAQUE)
    secrets.noted(JWT)

async def asked(text, *, status=200, **headers):
    async def answer(_):
        return web.Response(status=status, text=text, headers=headers, content_type="application/json")
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with ClientSession() as http:
            await Host(http, f"http://127.0.0.1:{runner.addresses[0][1]}/").ask("ping")
    finally:
        await runner.cleanup()

def error(words):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": words}})

PROGRAM = """
import json, os, signal
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'some_total{{tool="{LABEL}"}} 1'.encode())
    def log_message(self, *_): pass
server = TCPServer(("127.0.0.1", 0), Page)
address = "127.0.0.1:%d" % server.server_address[1]
said = {"event": "serving", "listen": address, "admin": address, "words": LOG}
print(json.dumps(said, separators=(",", ":")), flush=True)
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
server.serve_forever()
"""

async def a_gateway_runs(folder, monkeypatch, *, log="", label=""):
    program = folder / "gateway"
    program.write_text(f"#!{sys.executable}\\nLOG, LABEL = {log!r}, {label!r}\\n{PROGRAM}")
    program.chmod(0o755)
    monkeypatch.setattr(process, "TASKGATE", program)
    async with process.gateway_process([], log=folder / "log"):
        pass
'''

LEAKING = """
@SECRETS
def test_leaks_by_a_log_line(secret):
    log.info("asked by %s", secret)

@SECRETS
def test_leaks_by_a_line_that_nobody_would_write(secret):
    log.debug("asked by %s", secret)

@SECRETS
def test_leaks_by_an_extra(secret):
    log.info("asked", extra={"by": {"whom": secret}})

@SECRETS
def test_leaks_by_the_text_of_an_exception(secret):
    try:
        raise ValueError(secret)
    except ValueError:
        log.exception("failed")

@SECRETS
def test_leaks_by_the_cause_of_an_exception(secret):
    try:
        try:
            raise ExceptionGroup("several", [OSError(secret)])
        except ExceptionGroup as error:
            raise ValueError from error
    except ValueError:
        log.exception("failed")

@SECRETS
def test_leaks_by_an_event(secret):
    EmittingMetrics(MetricsConfig(backend="memory")).emit(events.HttpRefused(secret))

@SECRETS
def test_leaks_by_a_line_of_an_audit_log(secret):
    Chain(EMPTY_CHAIN, None).add({"v": 1, "event": "task.created", "data": {"said": secret}})

@SECRETS
def test_leaks_by_a_label(secret, monkeypatch):
    counter = EmittingMetrics(MetricsConfig(backend="memory", upstreams={secret: secret}))
    counter.emit(events.SessionLost(secret))
    now().emitted.clear()

@SECRETS
def test_leaks_before_a_test_forgets_what_was_told(secret):
    log.warning("asked with %s", secret)
    now().forget()

@SECRETS
async def test_leaks_by_the_body_of_an_error_of_http(secret):
    await asked(error(secret), status=404)

@SECRETS
async def test_leaks_by_the_body_of_an_error_of_json_rpc(secret):
    await asked(error(secret))

@SECRETS
async def test_leaks_by_a_challenge(secret):
    await asked(error("no"), status=401, **{"WWW-Authenticate": f'Bearer error="{secret}"'})

@SECRETS
async def test_leaks_by_the_log_of_a_process(secret, tmp_path, monkeypatch):
    await a_gateway_runs(tmp_path, monkeypatch, log=secret)

@SECRETS
async def test_leaks_by_the_metrics_of_a_process(secret, tmp_path, monkeypatch):
    await a_gateway_runs(tmp_path, monkeypatch, label=secret)
"""

DISCREET = """
def test_a_fixture_hears_the_test_itself(told):
    assert now() is told

def test_lines_without_secrets_are_told():
    log.info("asked by %s", "alice", extra={"count": 3})

def test_a_library_is_not_ours():
    logging.getLogger("library").warning(JWT)

def test_an_event_holds_the_record_that_it_is_about():
    EmittingMetrics(MetricsConfig(backend="memory")).emit(events.TaskPurged(new_record(id=ID)))

def test_ids_of_traces_are_told():
    log.info("asked", extra={"trace_id": "0af7651916cd43dd8448eb211c80319c"})
    Chain(EMPTY_CHAIN, None).add({"v": 1, "event": "e", "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c"}})

async def test_a_result_may_hold_whatever_a_server_said():
    await asked(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"token": JWT, "error": ID}}))

async def test_a_gateway_tells_nothing(tmp_path, monkeypatch):
    await a_gateway_runs(tmp_path, monkeypatch, log="ready", label="echo")

def test_a_word_that_begins_as_a_token_by_chance_is_none():
    log.info("key=eyJ4rg0Cp1wQm3v0aT7n1Q")

def test_what_is_longer_or_shorter_than_an_id_is_none():
    log.info("%s %s", ID[1:], ID + "x")

@pytest.mark.unheard("shows that it is not")
def test_one_that_is_unheard_may_tell():
    log.warning(JWT)
    assert log.getEffectiveLevel() == logging.WARNING

def test_a_secret_is_forgotten_with_its_test_1():
    secrets.noted("once a secret")

def test_a_secret_is_forgotten_with_its_test_2():
    log.info("once a secret")

def test_a_secret_that_is_no_secret_is_refused():
    with pytest.raises(ValueError):
        secrets.noted("of")
"""


@pytest.mark.timeout(300)
def test_every_kind_of_leak_fails_its_own_test_and_discreet_tests_pass(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from helpers.told import MARKER\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', MARKER)\n"
    )
    (tmp_path / "test_leaking.py").write_text(BEGINNING + LEAKING)
    (tmp_path / "test_discreet.py").write_text(BEGINNING + DISCREET)
    options = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "-q", "-rA", "--tb=no"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=CHECKOUT,
        env={**os.environ, "COLUMNS": "1000"},  # a reason is cut off at the edge
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    leaking, discreet = (re.findall(r"def (test_\w+)", source) for source in (LEAKING, DISCREET))
    expected = {(name, n): "red" for name in leaking for n in range(len(KINDS))} | {
        (name, 0): "green" for name in discreet
    }
    verdicts: dict[tuple[str, int], str] = {}
    lines = re.findall(r"^(PASSED|ERROR|FAILED) \S+::(test_\w+)(\[[^\n]*?\])?(?: - (.*))?$", run.stdout, re.MULTILINE)
    assert lines, run.stdout + run.stderr
    for verdict, name, parameter, why in lines:
        number = KINDS.index(parameter[1:-1]) if parameter else 0
        if verdict != "PASSED":
            assert verdict == "ERROR", f"{name} fails by itself: {why}"
            assert "secrets were told" in why, f"{name} is red for another reason: {why}"
        verdicts[name, number] = "red" if verdict == "ERROR" else verdicts.get((name, number), "green")
    assert verdicts == expected, run.stdout + run.stderr


def unheard(source: str) -> dict[str, str]:
    """The tests of a file that are not judged, and why; * is whatever is marked otherwise than by a decorator."""
    if "unheard" not in source:
        return {}
    tree = ast.parse(source)
    marks = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "unheard"]
    found: dict[str, str] = {}
    for test in ast.walk(tree):
        for mark in test.decorator_list if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) else ():
            if isinstance(mark, ast.Call) and mark.func in marks:
                reason = mark.args[0] if mark.args else None
                found[test.name] = reason.value if isinstance(reason, ast.Constant) else ""  # type: ignore[union-attr]
                marks.remove(mark.func)  # type: ignore[arg-type]
    return found | ({"*": ""} if marks else {})


def test_the_tests_that_are_not_judged_are_these() -> None:
    found = {
        f"{file.relative_to(CHECKOUT)}::{name}": reason
        for file in (CHECKOUT / "tests").rglob("*.py")
        if "node_modules" not in file.parts
        for name, reason in unheard(file.read_text()).items()
    }
    assert found == UNHEARD


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@mark.unheard('why')\ndef test_a(): ...", {"test_a": "why"}),
        ("class A:\n    @pytest.mark.unheard('why')\n    async def test_a(self): ...", {"test_a": "why"}),
        ("@pytest.mark.unheard()\ndef test_a(): ...", {"test_a": ""}),
        ("pytestmark = pytest.mark.unheard('why')", {"*": ""}),
        ("@pytest.mark.unheard\ndef test_a(): ...", {"*": ""}),
        ("@pytest.mark.unheard('why')\nclass A: ...", {"*": ""}),
        ("def test_a(): ...", {}),
    ],
)
def test_a_test_that_is_not_judged_is_seen(source: str, expected: dict[str, str]) -> None:
    assert unheard(source) == expected
