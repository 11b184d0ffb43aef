"""The work of `doctor`: what is wrong with a gateway, and what to do, before the facts.

It reads the operators' listener, and runs `taskgate check` on a configuration. Its report has no
secrets, payloads or task ids, so it can be sent to others.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from prometheus_client.parser import text_string_to_metric_families

from taskgate.cli.exits import FAILED
from taskgate.cli.printing import json_text, one_line
from taskgate.cli.remote.client import AdminClient, AdminUrlInvalid, GatewayUnreachable
from taskgate.cli.remote.health import ask_readiness, upstream_words
from taskgate.cli.version import versions

MAX_REFUSALS: Final = 10
"""Rows of refusals that are shown, the most frequent first."""
_CHECK_SECONDS: Final = 60
_MAX_LINES: Final = 20

_ADVICE: Final[Mapping[str, str]] = {
    "started": "The start is not finished: recovery of earlier tasks may take long. Read the log.",
    "store": "The task store does not answer. See that it runs, and that store.* names it.",
    "store_writes": "The task store refuses to write; the log says why. Free space on its disk, raise "
    "store.sqlite.max_size, or put its file back.",
    "keys": "The keys of an issuer were never fetched. See that jwks_uri or discovery is reachable from here.",
}
"""What to do about a failed check of `/readyz`."""
_OTHER_ADVICE: Final = "Read the log of the gateway."

_REFUSALS: Final[Mapping[str, Mapping[str, str]]] = {
    "taskgate_http_rejections_total": {},
    "taskgate_concurrency_rejections_total": {},
    "taskgate_queue_rejections_total": {},
    "taskgate_access_refusals_total": {},
    "taskgate_auth_requests_total": {"result": "rejected"},
    "taskgate_rate_limit_decisions_total": {"decision": "rejected"},
}
"""The counters of refusals, and the labels that make a sample one."""


class Finding(NamedTuple):
    """A problem, and what to do about it."""

    problem: str
    action: str


class Refusal(NamedTuple):
    """A reason for refusals, and how many there were since the start of the gateway."""

    metric: str
    labels: Mapping[str, str]
    times: int


def print_report(admin: str, file: Path | None, timeout: float, as_json: bool) -> None:
    """Print the report, and end with 1 if there is a problem."""
    try:
        client = AdminClient(admin, timeout=timeout)
    except AdminUrlInvalid as wrong:
        raise click.UsageError(str(wrong)) from None
    health, findings = None, list[Finding]()
    refusals: list[Refusal] | None = None
    try:
        health = ask_readiness(client).document
        findings += health_findings(health)
        refusals = read_refusals(client)
    except GatewayUnreachable as error:
        findings.append(Finding("the gateway was not reached", str(error)))
    checked = None
    if file is not None:
        # A gateway that answers has its ports and files open.
        checked = check_configuration(file, is_running=health is not None)
        findings[:0] = _configuration_findings(checked)
    report = {
        "problems": [finding._asdict() for finding in findings],
        "versions": versions(),
        "configuration": checked,
        "health": health,
        "refusals": None if refusals is None else [refusal._asdict() for refusal in refusals],
    }
    click.echo(json_text(report) if as_json else "\n".join(_lines(findings, report, refusals)))
    if findings:
        sys.exit(FAILED)


def check_configuration(file: Path, *, is_running: bool) -> dict[str, Any]:
    """The outcome of `taskgate check`: the file, its exit status, and its errors and warnings.

    With `is_running` a gateway runs with this file.
    """
    running = ["--running"] if is_running else []
    command = [sys.executable, "-m", "taskgate", "check", "--config", str(file), *running]
    try:
        ended = subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_CHECK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"file": str(file), "status": None, "messages": [f"no result within {_CHECK_SECONDS} s"]}
    # The summary is on standard output if the check passes.
    said = ended.stderr if ended.returncode == 0 or ended.stderr.strip() else ended.stdout
    lines = said.decode(errors="replace").splitlines()
    messages = [one_line(line, 400) for line in lines[:_MAX_LINES]]
    return {"file": str(file), "status": ended.returncode, "messages": messages}


def _configuration_findings(checked: Mapping[str, Any]) -> Iterator[Finding]:
    if checked["status"] != 0:
        for message in checked["messages"] or ["the check failed"]:
            yield Finding(f"configuration: {message}", "Correct the file, then run `taskgate check` again.")


def health_findings(health: Mapping[str, Any]) -> Iterator[Finding]:
    """The problems in a document of `/readyz?verbose`."""
    if health.get("status") == "draining":
        yield Finding("the gateway is draining", "It ends after its running calls. Start another, or wait.")
    for check, passed in _mapping(health.get("checks")).items():
        if passed is not True:
            yield Finding(f"the check {one_line(check)} failed", _ADVICE.get(check, _OTHER_ADVICE))
    for name, state in _mapping(health.get("upstreams")).items():
        yield from _upstream_findings(one_line(name), _mapping(state))
    for name, state in _mapping(health.get("issuers")).items():
        yield from _issuer_findings(one_line(name), _mapping(state))
    for name, state in _mapping(health.get("audit")).items():
        cause, since, waiting = (one_line(str(_mapping(state).get(key))) for key in ("cause", "since", "waiting"))
        yield Finding(
            f"the audit log cannot be written to {one_line(name)}: {cause}, since {since}; {waiting} lines wait",
            "Free space, or correct audit.sinks. The lines that wait are written then.",
        )
    for name, since in _mapping(health.get("vanished")).items():
        yield Finding(
            f"replica {one_line(name)} vanished at {one_line(str(since))}",
            "Others take its tasks over. See whether it was killed or hangs. It is named for ten minutes.",
        )


def _why(state: Mapping[str, Any]) -> str:
    """The cause of a state, since when, and how many of the latest requests failed."""
    failed, ended = state.get("recent_failures"), state.get("recent_requests")
    since = f", since {one_line(str(state['since']))}" if state.get("since") else ""
    counts = f", {failed} of {ended} requests failed in 5 min" if isinstance(failed, int) and failed else ""
    return f"{one_line(str(state.get('cause') or state.get('circuit_reason') or 'unknown'))}{since}{counts}"


def _upstream_findings(name: str, state: Mapping[str, Any]) -> Iterator[Finding]:
    how = state.get("state")
    if how == "down":
        yield Finding(f"upstream {name} is down: {_why(state)}", _down_advice(name, str(state.get("cause"))))
    elif how == "refusing":
        yield Finding(
            f"upstream {name} refuses requests: {_why(state)}",
            _refusing_advice(name, str(state.get("cause"))),
        )
    elif state.get("circuit") == "open":
        yield Finding(
            f"the circuit of upstream {name} is open: {_why(state)}",
            f"Its calls failed repeatedly. Look at its log; upstreams.{name}.circuit_breaker has the limits.",
        )
    if state.get("held") is True:
        yield Finding(
            f"an operator holds upstream {name}: its new calls are refused",
            f"`taskgate upstreams release {name}` ends the hold at this replica.",
        )
    limit, queued = state.get("limit"), state.get("queued")
    if isinstance(queued, int) and queued > 0 and isinstance(limit, int) and state.get("in_use") == limit:
        yield Finding(
            f"upstream {name} has {limit} calls in use, its limit, and {queued} wait",
            f"If the server can take more, raise upstreams.{name}.concurrency.",
        )


def _down_advice(name: str, cause: str) -> str:
    if cause.startswith("HTTP ") or "in time" in cause:
        return "It takes connections and does not serve. See what it logs, and what it waits for."
    return f"See that the server runs and that upstreams.{name} names it."


def _refusing_advice(name: str, cause: str) -> str:
    if cause.startswith("HTTP 429"):
        return f"The server is asked too often. Lower upstreams.{name}.concurrency, or ask for a larger quota."
    if "time out" in cause:
        return f"Its calls take longer than upstreams.{name}.timeouts.call allows. See what it logs."
    return f"The server answers. See upstreams.{name}.url and credentials, and what the server logs."


def _issuer_findings(name: str, state: Mapping[str, Any]) -> Iterator[Finding]:
    if state.get("cause") is None:
        return
    place, cause, since = (one_line(str(state.get(key))) for key in ("place", "cause", "since"))
    keys, refused = state.get("keys"), state.get("refused")
    serves = f"{keys} earlier keys serve on" if keys else "no token of it is accepted"
    count = f"; {refused} requests were refused for lack of keys" if isinstance(refused, int) and refused else ""
    yield Finding(
        f"the keys of issuer {name} cannot be fetched from {place}: {cause}, since {since}; {serves}{count}",
        f"See that it is reachable from here, and that auth.issuers.{name} names it.",
    )


def read_refusals(client: AdminClient) -> list[Refusal] | None:
    """The most frequent refusals by the metrics; None if they are off or elsewhere.

    Raises GatewayUnreachable.
    """
    status, text = client.get_text("/metrics")
    if status != 200:
        return None
    found: list[Refusal] = []
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                expected = _REFUSALS.get(sample.name)
                if expected is not None and expected.items() <= sample.labels.items() and sample.value >= 1:
                    found.append(Refusal(sample.name, dict(sample.labels), int(sample.value)))
    except (ValueError, KeyError, IndexError):
        # What answers is no page of metrics.
        return None
    return sorted(found, key=lambda refusal: -refusal.times)[:MAX_REFUSALS]


def _lines(findings: list[Finding], report: Mapping[str, Any], refusals: list[Refusal] | None) -> Iterator[str]:
    count = len(findings)
    yield "no problem was found" if not count else f"{count} problem{'' if count == 1 else 's'}"
    for finding in findings:
        yield f"- {one_line(finding.problem, 400)}"
        yield f"  {one_line(finding.action, 400)}"
    about = report["versions"]
    yield ""
    yield f"versions       taskgate {about['taskgate']}, python {about['python']}, aiohttp {about['aiohttp']}"
    checked, health = report["configuration"], report["health"]
    if checked is None:
        yield "configuration  not checked: give --config FILE"
    else:
        how = "can be used" if checked["status"] == 0 else "has problems"
        yield f"configuration  {one_line(checked['file'])} {how}"
        if checked["status"] == 0:
            yield from (f"  {message}" for message in checked["messages"])
    if health is None:
        yield "health         unknown"
        return
    yield f"health         {one_line(str(health.get('status')))}"
    for name, state in _mapping(health.get("upstreams")).items():
        yield f"  {one_line(name)}: {', '.join(upstream_words(state))}"
    if refusals is None:
        yield "refusals       unknown: there are no metrics at /metrics"
        return
    yield f"refusals       {'since the start, most frequent first' if refusals else 'none'}"
    for refusal in refusals:
        labels = ", ".join(f"{one_line(name)} {one_line(value)}" for name, value in refusal.labels.items() if value)
        yield f"  {refusal.times:>8}  {refusal.metric}  {labels}"


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}
