"""The section of the audit log: what may be written, and what keys say against each other."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.sections.audit import RotateSection, audit_conflicts, with_sink_defaults

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

FILE = "{name: a, type: file, path: /var/log/a}"


@pytest.fixture
def with_audit(minimal: str) -> Callable[[str], str]:
    """The text of a file with these keys of `audit`, on its fifth line."""
    return lambda keys: f"{minimal}audit: {{{keys}}}\n"


Writes = Callable[[str], str]


def test_two_sinks_are_as_usual(loads: Loads, minimal: str) -> None:
    file, stdout = loads(minimal).audit.sinks
    assert (file.name, file.type, file.path, file.events) == ("file", "file", None, ("*",))
    assert (file.rotate, file.fsync) == (RotateSection(), "interval")
    assert (stdout.name, stdout.type, stdout.events) == ("stdout", "stdout", ("audit.checkpoint",))
    assert (stdout.path, stdout.rotate, stdout.fsync) == (None, None, None)


def test_a_file_is_put_aside_and_waited_for_unless_otherwise_written(loads: Loads, with_audit: Writes) -> None:
    found = loads(with_audit(f"sinks: [{FILE}]")).audit.sinks[0]
    assert (found.rotate, found.fsync) == (RotateSection(), "interval")
    found = loads(with_audit("sinks: [{name: a, type: file, rotate: null, fsync: always}]")).audit.sinks[0]
    assert (found.path, found.rotate, found.fsync) == (None, None, "always")
    found = loads(with_audit("sinks: [{name: a, type: file, rotate: {size: 1MiB}}]")).audit.sinks[0]
    assert found.rotate == RotateSection.model_construct(size=2**20, keep=30)


def test_every_key_can_be_written(loads: Loads, with_audit: Writes) -> None:
    config = loads(
        with_audit(
            "enabled: true, format: ocsf, events: ['task.*', auth.rejected], identity: pseudonymous, arguments: full, "
            "results: none, redact: ['$.a', '$..b'], hmac_key_file: /k, chain: {enabled: true, checkpoint_events: 5, "
            f"checkpoint_interval: 5s, sign_key_file: /s}}, sinks: [{FILE}, {{name: b, type: stdout}}], queue: 16, "
            "on_full: deny, block_timeout: 2s"
        )
    ).audit
    assert (config.format, config.events, config.redact) == ("ocsf", ("task.*", "auth.rejected"), ("$.a", "$..b"))
    assert (config.hmac_key_file, config.chain.sign_key_file) == (Path("/k"), Path("/s"))
    assert (config.chain.checkpoint_events, config.chain.checkpoint_interval) == (5, timedelta(seconds=5))
    assert (config.queue, config.on_full, config.block_timeout) == (16, "deny", timedelta(seconds=2))


def test_what_is_shown_of_it_loads_again(loads: Loads, with_audit: Writes) -> None:
    config = loads(with_audit(f"sinks: [{FILE}, {{name: b, type: stdout}}], redact: ['$..x']"))
    assert loads(effective(config)).audit == config.audit


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("events: [tasks.*]", "events[0]: must match an event of the log, such as task.* or auth.rejected"),
        ("events: []", "events: must not be empty"),
        ("redact: ['$..[']", "redact[0]: must be a JSONPath, such as $..password"),
        ("redact: ['$.a', '$.a']", "redact: must not hold the same twice"),
        ("sinks: []", "sinks: must not be empty"),
        ("queue: 15", "queue: must be at least 16"),
        ("on_full: wait", "on_full: must be 'block', 'drop' or 'deny'"),
        ("block_timeout: 2m", "block_timeout: must be at most 1m"),
        ("chain: {checkpoint_interval: 500ms}", "chain.checkpoint_interval: must be at least 1s"),
        ("chain: {checkpoint_events: 0}", "chain.checkpoint_events: must be at least 1"),
        (
            "sinks: [{name: a, type: file, rotate: {size: 1KiB}}]",
            "sinks[0].rotate.size: must be between 64KiB and 1TiB",
        ),
        ("sinks: [{name: a, type: file, rotate: {keep: 0}}]", "sinks[0].rotate.keep: must be at least 1"),
        ("sinks: [{name: a, type: syslog}]", "sinks[0].type: must be 'file' or 'stdout'"),
        ("sinks: [{type: stdout}]", "sinks[0].name: is required"),
        ("sinks: [{name: a, type: file, fsnyc: never}]", "sinks[0].fsnyc: unknown key (did you mean fsync?)"),
    ],
)
def test_what_a_key_does_not_allow_is_told(tells: Tells, with_audit: Writes, keys: str, told: str) -> None:
    assert tells(with_audit(keys)) == [f"f:5: audit.{told}"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (f"sinks: [{FILE}, {{name: a, type: stdout}}]", "sinks[1].name: must not be the name of another sink"),
        ("sinks: [{name: a, type: stdout}, {name: b, type: stdout}]",
         "sinks[1].type: must not be that of another sink: their lines would be mixed"),
        (f"sinks: [{FILE}, {{name: b, type: file, path: /var/log/a}}]",
         "sinks[1].path: must not be that of another sink: their lines would be mixed"),
        ("sinks: [{name: a, type: file}, {name: b, type: file}]",
         "sinks[1].path: must not be that of another sink: their lines would be mixed"),
        ("sinks: [{name: a, type: stdout, path: /a}]",
         "sinks[0].path: must be null with type stdout, which is no file"),
        ("sinks: [{name: a, type: stdout, rotate: {}}]",
         "sinks[0].rotate: must be null with type stdout, which is no file"),
        ("sinks: [{name: a, type: stdout, fsync: never}]",
         "sinks[0].fsync: must be null with type stdout, which is no file"),
        ("sinks: [{name: a, type: file, fsync: null}]", "sinks[0].fsync: must not be null with type file"),
        ("chain: {enabled: false, sign_key_file: /k}",
         "chain.sign_key_file: must be null with audit.chain.enabled false, which signs nothing"),
    ],
)  # fmt: skip
def test_what_keys_say_against_each_other_is_told(tells: Tells, with_audit: Writes, keys: str, told: str) -> None:
    assert tells(with_audit(keys)) == [f"f:5: audit.{told}"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("enabled: false", "with audit.enabled false: each look is a line of the audit log"),
        ("events: ['task.*']", "unless audit.events and a sink of audit.sinks have admin.request"),
        ("sinks: [{name: a, type: stdout, events: [audit.checkpoint]}]",
         "unless audit.events and a sink of audit.sinks have admin.request"),
    ],
)  # fmt: skip
def test_payloads_are_shown_only_with_a_line_for_each_look(
    tells: Tells, with_audit: Writes, keys: str, told: str
) -> None:
    shows = "admin: {payloads: true}\n"
    assert tells(with_audit(keys) + shows) == [f"f:6: admin.payloads: must not be true {told}"]
    assert tells(with_audit(keys) + "admin: {payloads: false}\n") == []


def test_payloads_need_one_sink_that_has_looks(loads: Loads, with_audit: Writes) -> None:
    keys = "events: ['admin.*'], sinks: [{name: a, type: stdout, events: [audit.checkpoint]}, {name: b, type: file}]"
    assert loads(with_audit(keys) + "admin: {payloads: true}\n").admin.payloads
    assert not loads(with_audit(keys)).admin.payloads


@pytest.mark.parametrize(
    "audit",
    [None, [], {"sinks": None}, {"sinks": {}}, {"sinks": [None, 1, [], {}]}, {"sinks": [{"name": 1, "type": []}]},
     {"sinks": [{"type": "file", "path": []}], "chain": 7}],
    ids=str,
)  # fmt: skip
def test_malformed_parts_contradict_nothing(audit: Any) -> None:
    written = {"admin": {"payloads": True}, "audit": audit}
    assert list(audit_conflicts(written)) == []
    assert isinstance(with_sink_defaults(written), dict)


def test_what_is_no_mapping_stays_as_it_is() -> None:
    assert with_sink_defaults([]) == []
