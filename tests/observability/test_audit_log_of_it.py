"""The audit log of a gateway to which everything has happened: a line for each request, none false, none lost."""

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.process import TASKGATE
from helpers.schema_judge import SchemaJudge
from observability.drive import Run
from observability.reading import REQUESTS, audit_of, files_of, lines_of, of
from taskgate.telemetry.auditlog.catalogue import EVENTS
from taskgate.telemetry.auditlog.formats.schema import schema
from taskgate.telemetry.metrics import labels

pytestmark = [pytest.mark.alone, pytest.mark.timeout(480)]

JUDGE = SchemaJudge(schema())


def verified(*arguments: str | Path) -> tuple[int, str]:
    """What `taskgate audit verify` says."""
    done = subprocess.run(
        [TASKGATE, "audit", "verify", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def shown(page: str, sink: str) -> int:
    """The number of a sink's last line, as a scrape has it."""
    found = re.search(rf'^taskgate_audit_chain_sequence{{sink="{sink}"}} (\S+)$', page, re.MULTILINE)
    assert found, sink
    return int(float(found[1]))


def by_request(run: Run) -> dict[str, list[dict[str, Any]]]:
    """The lines of requests, by the gateway's own number of the request."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in of(audit_of(run), *REQUESTS):
        found.setdefault(line["http"]["request_id"], []).append(line)
    return found


def test_every_request_has_one_line_and_every_line_a_request(run: Run) -> None:
    """What was no HTTP has no user agent to be known by. A request of several messages has lines for those besides.

    A line of requests without a known caller has their number, and shows the last of them.
    """
    told = Counter(lines[-1]["http"]["user_agent"] for lines in by_request(run).values())
    requests = Counter([*run.sent, *[None] * run.nameless])
    counted = [line["data"]["count"] for line in of(audit_of(run), *REQUESTS) if "count" in line["data"]]
    assert told <= requests
    assert (requests - told).total() == sum(counted) - len(counted)
    several = [lines for lines in by_request(run).values() if len(lines) > 1]
    assert [lines[-1]["data"].get("messages") for lines in several] == [len(lines) - 1 for lines in several]
    assert len(several) == run.batches


def test_a_line_says_what_the_host_saw(run: Run) -> None:
    """Where the host did not stay for the answer it saw nothing."""
    for lines in by_request(run).values():
        http = lines[-1]["http"]
        if http["user_agent"] is not None:
            sent = run.sent[http["user_agent"]]
            assert (http["verb"], http["status"]) == (sent.verb, sent.status or http["status"])


def test_every_kind_of_end_is_there(run: Run) -> None:
    assert {line["event"] for line in of(audit_of(run), *REQUESTS)} == set(REQUESTS)


@pytest.mark.parametrize("sink", ["file", "spare", "stdout"])
def test_every_line_is_as_the_schema_has_it(run: Run, sink: str) -> None:
    written = [line for path in files_of(run, sink) for line in lines_of(path)]
    assert written
    assert [(line["event"], fault.message) for line in written if (fault := JUDGE.fault(line)) is not None] == []


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_every_event_has_happened(run: Run, event: str) -> None:
    files = [path for sink in ("file", "spare", "stdout") for path in files_of(run, sink)]
    found = [line for path in files for line in of(lines_of(path), event)]
    assert found
    assert {line["outcome"] for line in found} <= set(EVENTS[event].severities)


@pytest.mark.parametrize("kind", sorted(labels.SUSPICION.values or ()))
def test_every_suspicion_names_who_or_from_where(run: Run, kind: str) -> None:
    for line in of(audit_of(run), f"security.{kind}"):
        assert line["actor"] is not None or line["http"]["peer"].startswith("203.0.113.")


def test_the_log_is_proved_to_be_whole(run: Run) -> None:
    """By its key, by the checkpoints that went to standard output, and by the number that Prometheus saw last."""
    expected = shown(run.scrapes[-1], "file")
    witnesses = [word for path in run.sinks["stdout"] for word in ("--checkpoint", path)]
    status, said = verified(run.audit, "--key", run.key, *witnesses, "--expect-seq", str(expected))
    assert status == 0, said
    assert "not checked" not in said


def test_a_log_that_was_cut_off_is_found_out_by_what_prometheus_saw(run: Run, tmp_path: Path) -> None:
    cut = tmp_path / "audit.jsonl"
    cut.write_bytes(b"".join(run.audit.read_bytes().splitlines(keepends=True)[:-20]))
    assert verified(cut, "--key", run.key)[0] == 0
    status, said = verified(cut, "--key", run.key, "--expect-seq", str(shown(run.scrapes[-1], "file")))
    assert status == 1, said


def test_half_a_line_that_a_lost_machine_left_is_told(run: Run) -> None:
    [path] = run.sinks["spare"]
    [gap] = of(lines_of(path), "audit.gap")
    assert gap["data"]["cause"] == "torn"
    assert verified(path, "--key", run.key)[0] == 0


def test_lines_that_standard_output_had_no_room_for_are_told_and_counted(run: Run) -> None:
    [gap] = [line for path in run.sinks["stdout"] for line in of(lines_of(path), "audit.gap")]
    assert gap["data"]["cause"] == "queue_full"
    [lost] = re.findall(
        r'^taskgate_audit_dropped_total{reason="queue_full",sink="stdout"} (\S+)$', run.scrapes[-1], re.M
    )
    assert gap["data"]["lines"] == float(lost)


def test_it_ended_as_it_was_asked_to(run: Run) -> None:
    """The first process was killed; the second was sent SIGTERM, and its last line says that it stopped."""
    assert run.statuses == (-9, 0)
    lines = lines_of(run.audit)
    *_, stopped = [line for line in lines if line["event"] != "audit.checkpoint"]
    assert (stopped["event"], lines[-1]["event"]) == ("gateway.stopped", "audit.checkpoint")


# --- of replicas -------------------------------------------------------------------------------------------------


def test_each_replica_has_a_log_of_its_own_which_is_proved_to_be_whole(run: Run) -> None:
    assert [left.status for left in run.replicas] == [-9, 0]
    for left in run.replicas:
        witness, expected = left.sinks["stdout"], shown(left.scrapes[-1], "file")
        status, said = verified(
            left.sinks["file"], "--key", run.key, "--checkpoint", witness, "--expect-seq", str(expected)
        )
        assert status == 0, said


def test_a_task_has_one_reference_in_the_logs_of_all_replicas(run: Run) -> None:
    """So that what became of a task can be followed from who made it to who took it over."""
    killed, last = (lines_of(left.sinks["file"]) for left in run.replicas)
    made = {line["task"]["ref"]: line["actor"]["ctx"] for line in of(killed, "task.created")}
    taken = {line["task"]["ref"]: line["reason"] for line in of(last, "task.recovered")}
    assert made.keys() == taken.keys()
    assert sorted(taken.values()) == ["failed", "failed", "retried"]


def test_what_replicas_were_told_by_hosts_they_tell_of_one_caller(run: Run) -> None:
    """One key for all: the same caller is the same in every log, those of whoever was alone included."""
    alice = {line["actor"]["ctx"] for line in of(audit_of(run), "rpc.call") if line["actor"]["sub"] == "alice"}
    assert len(alice) == 1


def test_each_replica_tells_that_rates_were_judged_without_their_store(run: Run) -> None:
    for left in run.replicas:
        [line] = of(lines_of(left.sinks["file"]), "limit.store_fallback")
        assert line["data"] == {"rule": "local"}
