"""The benchmark runs from start to end and says what it is asked for; its page names every load. No time is judged."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from bench import eras
from bench.caller import Expectation
from bench.issuer import Issuer
from bench.load_driver import Barrage, body
from bench.measure import Outcome, Sample, started_load
from bench.report import FIGURES, findings
from bench.scenarios import LARGE, PARTS, SCENARIOS, Ratio, Scenario
from bench.start import GOALS

from house.bench_runs import BOUND, PAGE, figures, run, times

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(BOUND + 10)]


def named(scenario: Scenario, ratio: Ratio) -> str:
    """What a report calls it."""
    if ratio.absolute:
        return f"{scenario.name}: CPU µs, {ratio.of} - {ratio.to} (depends on the machine)"
    return f"{scenario.name}: {FIGURES[ratio.figure]}, {ratio.of} / {ratio.to}"


RATIOS = [named(scenario, ratio) for scenario in (*SCENARIOS, eras.RELAY, eras.LOOKS) for ratio in scenario.ratios] + [
    "memory per held call: taskgate / bare",
    "memory per held task: taskgate / least",
    "memory per held task: taskgate, KiB",
    *(f"taskgate: {name}" for name in GOALS),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the smallest possible run of every part printed, and what it wrote for programs."""
    small = ("--scale", "0.001", "--held", "10", "--warm-up", "64")
    return figures(tmp_path_factory.mktemp("bench"), "bench", *small)


def test_a_run_prints_every_ratio_once(ran: tuple[str, dict[str, Any]]) -> None:
    printed, _ = ran

    assert times(printed, RATIOS) == dict.fromkeys(RATIOS, 1)


def test_a_run_writes_the_same_ratios_for_programs(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    assert [found["what"] for found in written["ratios"]] == RATIOS
    # Memory that is given back, or a difference of CPU over 64 requests, may be below nothing.
    always_more = [found for found in written["ratios"] if not found["what"].startswith(("memory", "tokens"))]
    assert all(found["value"] > 0 for found in always_more)


def test_a_difference_is_taken_within_each_round_and_says_that_it_depends_on_the_machine() -> None:
    (fresh,) = [scenario for scenario in SCENARIOS if scenario.name == "tokens"]
    figures = {"taskgate": (200.0, 300.0, 100.0), "fresh": (270.0, 360.0, 270.0)}
    samples = {name: [Sample(cpu=cpu, rate=1, p50=1, p99=1, load_cpu=1) for cpu in figures[name]] for name in figures}

    (found,) = findings([Outcome(scenario=fresh, count=1, samples=samples)], [])

    assert (found.value, found.low, found.high) == (70.0, 60.0, 170.0)
    assert found.what == "tokens: CPU µs, fresh - taskgate (depends on the machine)"
    assert found.verdict == "met"


def test_an_issuer_never_gives_a_token_twice() -> None:
    issuer = Issuer("http://127.0.0.1/mcp")

    assert len({*issuer.tokens(50), *issuer.tokens(50)}) == 100


class Listening(ThreadingHTTPServer):
    """Answers every request, and keeps which Authorization each one brought."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.brought: list[list[str] | None] = []
        self.messages: list[dict[str, Any]] = []


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listening

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.brought.append(self.headers.get_all("Authorization"))
        self.server.messages.append(message)
        result = {"tools/call": {"taskId": "t1"}, "tasks/get": {"taskId": "t1"}}.get(message["method"], "fox")
        answer = json.dumps({"id": message["id"], "result": result}, separators=(",", ":")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def listening() -> Iterator[Listening]:
    """A server that tells what the load sends."""
    with Listening() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(
    ("tokens", "brought"),
    [
        ([], [["Bearer own"]] * 9),
        ([f"t{number}" for number in range(9)], [[f"Bearer t{number}"] for number in range(9)]),
        (["t0"], [["Bearer t0"], *[None] * 8]),
    ],
    ids=["none", "one each", "too few"],
)
def test_each_request_brings_a_token_that_no_other_brings(
    listening: Listening, tokens: list[str], brought: list[list[str] | None]
) -> None:
    sessions = [{"Authorization": "Bearer own"}]
    with started_load() as load:
        load.open(
            Barrage(
                port=listening.server_port,
                connections=4,
                sessions=sessions,
                bodies=[body("ping", {})],
                marker="fox",
                tokens=tokens,
            )
        )
        load.run(4)
        load.run(5)
        load.close()

    assert sorted(listening.brought, key=str) == sorted(brought, key=str)


def test_a_task_is_created_looked_at_and_its_result_waited_for_as_one_request(listening: Listening) -> None:
    with started_load() as load:
        load.open(
            Barrage(
                port=listening.server_port,
                connections=1,
                sessions=[{}],
                bodies=[body("tools/call", {})],
                marker="fox",
                to_results=True,
            )
        )
        ran = load.run(2)
        load.close()

    assert ran.count == 2
    assert [message["method"] for message in listening.messages] == ["tools/call", "tasks/get", "tasks/result"] * 2
    assert [message["params"].get("taskId") for message in listening.messages] == [None, "t1", "t1"] * 2
    assert len({message["id"] for message in listening.messages}) == 6


def test_a_run_measures_every_target_of_every_load(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    measured = {name: tuple(found["samples"]) for name, found in written["scenarios"].items()}

    assert measured == {scenario.name: scenario.targets for scenario in (*SCENARIOS, eras.RELAY, eras.LOOKS)}


def test_the_parts_that_run_when_named_run_from_start_to_end() -> None:
    sizes = ("--stored", "200", "--waiters", "10", "--listed", "300")
    done = run("bench", "--only", ",".join(LARGE), *sizes, "--rounds", "1", "--scale", "0.001")

    assert done.returncode == 0, done.stderr
    assert "among 200 / among 100" in done.stdout
    assert "10 running tasks" in done.stdout
    assert "completed ones / tasks/get" in done.stdout


@pytest.mark.parametrize("module", ["bench", "bench.observing", "bench.shared"])
def test_a_part_that_does_not_exist_is_refused(module: str) -> None:
    done = run(module, "--only", "relay,nothing")

    assert done.returncode == 2
    assert "unknown: nothing" in done.stderr


@pytest.mark.parametrize(
    ("head", "body", "complaint"),
    [
        (b"HTTP/1.1 200 OK", b'{"id":123456789,"result":"fox"}', ""),
        (b"HTTP/1.1 503 No", b'{"id":123456789,"result":"fox"}', "HTTP/1.1 503 No"),
        (b"HTTP/1.1 200 OK", b'{"id":123456780,"result":"fox"}', "another id"),
        (b"HTTP/1.1 200 OK", b'{"id":123456789,"error":{}}', "0 times fox"),
        (b"HTTP/1.1 200 OK", b'{"id":123456789,"result":"fox fox"}', "2 times fox"),
    ],
    ids=["right", "status", "id", "error", "twice"],
)
def test_a_wrong_answer_never_counts_as_fast(head: bytes, body: bytes, complaint: str) -> None:
    told = Expectation(b"fox", 1).complaint(head, body, b"123456789")

    assert told.partition(":")[0] == complaint


@pytest.mark.parametrize("name", [*PARTS, *LARGE, *(scenario.name for scenario in SCENARIOS)])
def test_the_page_names_every_load(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text()


@pytest.mark.parametrize("command", ["make bench", ".venv/bin/python -m bench", "--quick", "--only"])
def test_the_page_names_the_command(command: str) -> None:
    assert command in PAGE.read_text()
