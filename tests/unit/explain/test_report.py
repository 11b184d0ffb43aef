"""What `check` finds: each thing by itself, and the same errors that a start ends with."""

import json
import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from helpers.certificates import Authority
from helpers.waiting import bounded
from taskgate.cli import main
from taskgate.config import load
from taskgate.explain.report import check_configuration
from taskgate.wiring.app import Service

UPSTREAMS = "{reports: {path: /reports/mcp, url: 'http://127.0.0.1:9/mcp', health: null}}"
WITH_TOKENS = (
    "{mode: required, issuers: {corp: {issuer: 'https://idp.example.com/', jwks_uri: 'http://127.0.0.1:9/k'}}}"
)
TWO = "{reports: {path: /a, url: 'http://127.0.0.1:9/a'}, books: {path: /b, url: 'http://127.0.0.1:9/b'}}"
JUDGED = " (rules judge tools, resources, prompts and tasks; handshake, discovery, ping and notifications pass)"
PRIVATE = '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA", "d": "AA"}]}'
NO_KEY = "has no usable key: it must be a JWK set with a public key for one of ES256, EdDSA, PS256, RS256"


def written(folder: Path, **sections: str) -> Path:
    """A file whose store and data directory are in the folder."""
    file = folder / "taskgate.yaml"
    usual = {
        "version": "1",
        "auth": "{mode: none}",
        "server": '{listen: "127.0.0.1:0", drain: {delay: 0s, timeout: 1s}}',
        "admin": '{listen: "127.0.0.1:0"}',
        "upstreams": UPSTREAMS,
    }
    texts = {name: text.replace("FOLDER", str(folder)) for name, text in (usual | sections).items()}
    file.write_text("".join(f"{name}: {text}\n" for name, text in texts.items()))
    return file


def run(command: str, file: Path, *options: str) -> tuple[int, str, list[str]]:
    """Status, output and lines on standard error of a command, with a data directory beside the file."""
    environment = {"TASKGATE_DATA_DIR": str(file.parent / "data")}
    ended = CliRunner(env=environment).invoke(main, [command, "--config", str(file), *options])
    return ended.exit_code, ended.stdout, ended.stderr.splitlines()


# --- what a start would not survive ---------------------------------------------------------------------------------


def other_program(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "other.db")) as connection:
        connection.execute("PRAGMA application_id = 7")
        connection.execute("CREATE TABLE a (b)")


def newer_version(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "newer.db")) as connection:
        connection.execute(f"PRAGMA application_id = {0x7461736B}")
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE a (b)")


def file_in_the_way(folder: Path) -> None:
    (folder / "data").write_text("")


def bad_audit_key(folder: Path) -> None:
    (folder / "data").mkdir(mode=0o700)
    (folder / "data" / "audit.key").write_text("short")


def folder_as_log(folder: Path) -> None:
    (folder / "log").mkdir()


def text_as_log(folder: Path) -> None:
    (folder / "notes.txt").write_text("notes\nof somebody else")


def full_head(folder: Path) -> None:
    (folder / "a.jsonl.head").write_text("x" * 200)


def text_as_store(folder: Path) -> None:
    (folder / "text.db").write_text("this is no database, although it is longer than its header of a hundred bytes" * 2)


def nothing(folder: Path) -> None:
    """Prepare nothing."""


BROKEN: dict[str, tuple[Callable[[Path], None], dict[str, str], str]] = {
    "a file in place of the data directory": (file_in_the_way, {}, "TASKGATE_DATA_DIR: the data directory "),
    "a bad key in the data directory": (bad_audit_key, {}, "audit.key in the data directory: "),
    "no folder for the audit log": (
        nothing,
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/none/a.jsonl}]}"},
        "audit.sinks (file): cannot be written: ",
    ),
    "a folder in place of the audit log": (
        folder_as_log,
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/log}]}"},
        "audit.sinks (file): ",
    ),
    "one file for two sinks": (
        nothing,
        {"audit": "{sinks: [{name: a, type: file, path: FOLDER/a}, {name: b, type: file, path: FOLDER/../SAME/a}]}"},
        "audit.sinks (b): ",
    ),
    "the configuration in place of the audit log": (
        nothing,
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/taskgate.yaml}]}"},
        "audit.sinks (file): FOLDER/taskgate.yaml is no audit log of taskgate",
    ),
    "a text in place of the audit log": (
        text_as_log,
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/notes.txt}]}"},
        "audit.sinks (file): FOLDER/notes.txt is no audit log of taskgate",
    ),
    "a file in place of the head of the audit log": (
        full_head,
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/a.jsonl}]}"},
        "audit.sinks (file): FOLDER/a.jsonl.head is no file of an audit log",
    ),
    "the store's file as audit log": (
        nothing,
        {
            "audit": "{sinks: [{name: file, type: file, path: FOLDER/bb.db}]}",
            "store": "{sqlite: {path: FOLDER/bb.db}}",
        },
        "audit.sinks (file): FOLDER/bb.db is a file of the task store",
    ),
    "the lock of the store as audit log": (
        nothing,
        {
            "audit": "{sinks: [{name: file, type: file, path: FOLDER/bb.db.lock}]}",
            "store": "{sqlite: {path: FOLDER/bb.db}}",
        },
        "audit.sinks (file): FOLDER/bb.db.lock is a file of the task store",
    ),
    "the store's file in the data directory as audit log": (
        lambda folder: (folder / "data").mkdir(mode=0o700),
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/data/taskgate.db}]}"},
        "audit.sinks (file): FOLDER/data/taskgate.db is a file of the task store",
    ),
    "the key of the audit log as audit log": (
        lambda folder: (folder / "data").mkdir(mode=0o700),
        {"audit": "{sinks: [{name: file, type: file, path: FOLDER/data/audit.key}]}"},
        "audit.sinks (file): FOLDER/data/audit.key is a key file of the gateway",
    ),
    "the head of a sink as another sink": (
        nothing,
        {"audit": "{sinks: [{name: a, type: file, path: FOLDER/a}, {name: b, type: file, path: FOLDER/a.head}]}"},
        "audit.sinks (b): FOLDER/a.head meets a file that another sink has beside its own",
    ),
    "a store of another program": (
        other_program,
        {"store": "{sqlite: {path: FOLDER/other.db}}"},
        "The store's file belongs to another program",
    ),
    "a store of a newer version": (
        newer_version,
        {"store": "{sqlite: {path: FOLDER/newer.db}}"},
        "The store's file was written by a newer version of the gateway",
    ),
    "a text in place of the store": (
        text_as_store,
        {"store": "{sqlite: {path: FOLDER/text.db}}"},
        "The store's file is damaged or not a SQLite file; it was not changed",
    ),
    "a file in place of the store's folder": (
        text_as_store,
        {"store": "{sqlite: {path: FOLDER/text.db/tasks.db}}"},
        "The store's file cannot be opened",
    ),
    "no such address": (
        nothing,
        {"server": '{listen: "192.0.2.1:0", public_url: "https://a"}', "auth": WITH_TOKENS},
        "server.listen: ",
    ),
}


@pytest.mark.parametrize(("prepare", "sections", "told"), BROKEN.values(), ids=BROKEN)
def test_what_stops_a_start_is_found(
    tmp_path: Path, prepare: Callable[[Path], None], sections: dict[str, str], told: str
) -> None:
    prepare(tmp_path)
    texts = {name: text.replace("SAME", tmp_path.name) for name, text in sections.items()}
    file, told = written(tmp_path, **texts), told.replace("FOLDER", str(tmp_path))
    before = {each: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    status, out, errors = run("check", file)
    assert (status, out) == (2, "")
    assert len(errors) == 1
    assert told.split(" cannot be opened", maxsplit=1)[0] in errors[0] or "is not a folder" in errors[0]
    served, _, said = run("serve", file)
    assert served in (1, 2)
    assert told.split(": ", maxsplit=1)[0] in "\n".join(said)
    assert {each: each.read_bytes() for each in before} == before


def test_a_port_in_use_is_an_error_unless_it_is_said_that_a_gateway_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = written(tmp_path, server=f'{{listen: "{address}"}}')
        status, _, errors = run("check", file)
        assert status == 2
        assert errors == [
            f"server.listen: cannot listen on {address}: address already in use; "
            "if a gateway runs with this file, check with --running"
        ]
        assert run("check", file, "--running")[0] == 0


async def test_the_files_of_a_gateway_that_runs_are_errors_unless_that_is_said(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "data").mkdir(mode=0o700)
    service = Service(load(file, {}), data_directory=tmp_path / "data")
    await service.start()
    try:
        status, _, errors = run("check", file)
        assert (status, len(errors)) == (2, 2), errors
        assert run("check", file, "--running")[0] == 0
    finally:
        await service.close()


GOOD: dict[str, dict[str, str]] = {
    "nothing but a server": {},
    "tokens": {"auth": WITH_TOKENS},
    "a store in a folder that is not there": {"store": "{sqlite: {path: FOLDER/new/tasks.db}}"},
    "a store in memory without an audit log": {"store": "{backend: memory}", "audit": "{enabled: false}"},
    "another audit log": {"audit": "{sinks: [{name: file, type: file, path: FOLDER/a.jsonl}]}"},
    "no rates": {"limits": "{rate: []}"},
}


@pytest.mark.parametrize("sections", GOOD.values(), ids=GOOD)
async def test_what_passes_starts_and_passes_again_after_that(tmp_path: Path, sections: dict[str, str]) -> None:
    file = written(tmp_path, **sections)
    for _ in range(2):
        status, out, _ = run("check", file)
        assert (status, len(out.splitlines())) == (0, 5)
        (tmp_path / "data").mkdir(mode=0o700, exist_ok=True)
        service = Service(load(file, {}), data_directory=tmp_path / "data")
        async with bounded():
            await service.start()
            await service.close()


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    file = written(tmp_path, auth=WITH_TOKENS)
    assert run("check", file)[0] == 0
    assert os.listdir(tmp_path) == ["taskgate.yaml"]


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        admin='{listen: "127.0.0.1:0", token_file: FOLDER/none}',
        audit="{hmac_key_file: FOLDER/none, sinks: [{name: file, type: file, path: FOLDER/none/a}]}",
    )
    status, _, errors = run("check", file)
    assert status == 2
    keys = ["audit.hmac_key_file", "admin.token_file", "audit.sinks (file)"]
    assert [error.split(":")[0] for error in errors] == keys


# --- keys of issuers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{}", NO_KEY),
        ("-----BEGIN PUBLIC KEY-----", NO_KEY),
        (PRIVATE, NO_KEY),
        (" " * (256 * 1024 + 1), "is larger than jwks.max_size"),
    ],
    ids=["missing", "no set", "PEM", "private", "large"],
)
def test_a_key_set_that_verifies_no_token_is_an_error(tmp_path: Path, content: str | None, told: str) -> None:
    keys = tmp_path / "keys.json"
    if content is not None:
        keys.write_text(content)
    file = written(tmp_path, auth="{mode: required, issuers: {corp: {issuer: 'https://idp', jwks_file: keys.json}}}")
    assert run("check", file)[::2] == (2, [f"auth.issuers.corp.jwks_file: {keys} {told}"])


# --- warnings -------------------------------------------------------------------------------------------------------

WARNINGS: dict[str, tuple[dict[str, str], list[str]]] = {
    "no rates": (
        {"limits": "{rate: []}"},
        ["limits.rate: there is no rate limit at all; leave the key out for the built-in ones"],
    ),
    "rates that protect from no address": (
        {"auth": WITH_TOKENS, "limits": "{replace_defaults: true, rate: [{name: a, scope: context, rate: 1/s}]}"},
        [
            "limits.replace_defaults: no policy with before_auth limits the requests of one address; name one, "
            "or set it to false",
            "limits.replace_defaults: no policy of the event auth_failure limits refused tokens; name one, "
            "or set it to false",
        ],
    ),
    "no rule for tasks": (
        {"tasks": "{upgrade: []}"},
        [
            "tasks.upgrade: no tool of the upstream reports can ever become a task; "
            "begin with a rule of another mode than sync"
        ],
    ),
    "a rule that makes no task": (
        {"tasks": "{upgrade: [{upstream: reports, tool: a, mode: sync}, {tool: '*', mode: sync}]}"},
        [
            "tasks.upgrade: no tool of the upstream reports can ever become a task; "
            "begin with a rule of another mode than sync"
        ],
    ),
    "tools that run only as tasks, which no list says": (
        {"tasks": "{announce: never, upgrade: [{tool: a, mode: required}, {tool: '*', mode: auto}]}"},
        ["tasks.announce: no list says that calls of tasks.upgrade[0] need task; use mode always there"],
    ),
    "such tools of one rule": (
        {"tasks": "{upgrade: [{tool: '*', mode: required, announce: never}]}"},
        ["tasks.upgrade[0].announce: no list says that calls of tasks.upgrade[0] need task; use mode always there"],
    ),
    "such tools of a rule that announces them": (
        {"tasks": "{announce: never, upgrade: [{tool: '*', mode: required, announce: always}]}"},
        [],
    ),
    "an age at which tasks end before their timeout": (
        {"tasks": "{ttl: {max: 59m, default: 59m}}"},
        [
            "tasks.ttl.max: is shorter than upstreams.reports.timeouts.call: "
            "a call ends at this age if it runs as a task"
        ],
    ),
    "such an age, and a deadline, of a rule": (
        {
            "upstreams": "{reports: {path: /mcp, url: 'http://127.0.0.1:1/', timeouts: {call: 50m}}}",
            "tasks": "{upgrade: [{tool: a, mode: auto, ttl: 40m, ttl_max: 40m, deadline: 30m}, {tool: b, mode: auto}]}",
        },
        [
            "tasks.upgrade[0].ttl_max: is shorter than upstreams.reports.timeouts.call: "
            "a call ends at this age if it runs as a task",
            "tasks.upgrade[0].deadline: is shorter than upstreams.reports.timeouts.call, "
            "so a task ends before that timeout",
        ],
    ),
    "results of handed-off calls that are kept for too short": (
        {
            "tasks": "{ttl: {keep: 1m}, upgrade: [{tool: '*', mode: auto, handoff: {after: 45s}}]}",
        },
        ["tasks.upgrade[0].handoff: answers equal calls for no longer than tasks.ttl.keep"],
    ),
    "rules for the tools of the gateway": (
        {
            "tasks": "{upgrade: [{tool: taskgate_cancel, mode: sync}, {tool: '*', mode: auto, handoff: {after: 45s}}]}",
            "authorization": "{rules: [{tool: taskgate_wait, effect: allow}, {tool: 'task*', effect: deny}]}",
        },
        [
            f"{key}.tool: is a tool of the gateway, so the rule has no effect; name the tool that is handed off"
            for key in ("tasks.upgrade[0]", "authorization.rules[0]")
        ],
    ),
    "a rule for the tool that lists calls": (
        {
            "auth": WITH_TOKENS,
            "tasks": "{inbox: true, upgrade: [{tool: taskgate_tasks, mode: sync}, {tool: '*', mode: auto}]}",
            "authorization": "{rules: [{tool: taskgate_tasks, effect: deny}]}",
            "limits": "{rate: [{name: lists, scope: context, rate: 1/s, tool: taskgate_tasks}]}",
        },
        [
            "tasks.upgrade[0].tool: is a tool of the gateway, so the rule has no effect; its calls are never tasks",
            "authorization.rules[0].tool: is a tool of the gateway, so the rule has no effect; "
            "name the method tasks/list",
            "limits.rate[0].tool: is a tool of the gateway, so the rule has no effect; name the method tasks/list",
        ],
    ),
    "such rules where nothing is handed off": (
        {"tasks": "{upgrade: [{tool: taskgate_cancel, mode: sync}, {tool: '*', mode: auto}]}"},
        [],
    ),
    "a rule in shadow": (
        {"tasks": "{upgrade: [{tool: '*', mode: auto, shadow: true}]}"},
        [
            "tasks.upgrade: no tool of the upstream reports can ever become a task; "
            "begin with a rule of another mode than sync"
        ],
    ),
    "a rule that keeps one upstream plain": (
        {"upstreams": TWO, "tasks": "{upgrade: [{upstream: books, tool: '*', mode: sync}, {tool: '*', mode: auto}]}"},
        [],
    ),
    "rules for one era": (
        {"authorization": "{default: deny, rules: [{methods: ['tools/*', tasks/get, tasks/cancel, tasks/update]}]}"},
        [
            "authorization: at the upstream reports no rule ever allows tasks/result, which hosts of "
            f"2025-11-25 and before need for tasks{JUDGED}"
        ],
    ),
    "rules for tools alone": (
        {"authorization": "{default: deny, rules: [{tool: 'read_*'}]}"},
        [
            "authorization: at the upstream reports no rule ever allows tools/list, so hosts of every revision "
            f"are shut out{JUDGED}"
        ],
    ),
    "rules for the handshake": (
        {"authorization": "{rules: [{methods: [initialize, ping], effect: deny}]}"},
        [f"authorization.rules[0].methods: has no effect: {JUDGED[2:-1]}"],
    ),
    "tasks that no host may fetch": (
        {"authorization": "{default: deny, rules: [{methods: ['tools/*']}]}"},
        [
            "authorization: at the upstream reports no rule ever allows tasks/get and tasks/cancel, so hosts start "
            f"tasks whose results they cannot fetch{JUDGED}"
        ],
    ),
    "rules that let everything pass in the end": (
        {"authorization": "{default: deny, rules: [{tool: 'delete_*', effect: deny}, {methods: ['*']}]}"},
        [],
    ),
    "no tokens for the whole network": (
        {"auth": "{mode: none, allow_insecure: true}", "server": '{listen: "0.0.0.0:0"}'},
        ["auth.mode: is none on an address that others reach: all hosts are one caller without a token"],
    ),
    "payloads in the API of operators": (
        {"admin": '{listen: "127.0.0.1:0", payloads: true}'},
        ["admin.payloads: is true: tokens of role operator read arguments and results of all callers"],
    ),
}


@pytest.mark.parametrize(("sections", "told"), WARNINGS.values(), ids=WARNINGS)
def test_what_surprises_later_is_a_warning(tmp_path: Path, sections: dict[str, str], told: list[str]) -> None:
    status, out, said = run("check", written(tmp_path, **sections))
    assert (status, said) == (0, [f"taskgate: warning: {each}" for each in told])
    noun = "warning" if len(told) == 1 else "warnings"
    assert out.splitlines()[-1].split(maxsplit=1)[1] == (f"{len(told)} {noun}" if told else "no problems")


TLS = "tls: {cert_file: tls.crt, key_file: tls.key}"


def with_certificate(folder: Path, pair: tuple[bytes, bytes]) -> None:
    """Write a certificate and its key, for TLS."""
    for name, content in zip(("tls.crt", "tls.key"), pair, strict=True):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)


@pytest.mark.parametrize(
    ("days", "told"),
    [(-45, "is not valid before "), (0, "expires on "), (45, "expired on ")],
    ids=["not yet", "soon", "over"],
)
@pytest.mark.parametrize("listener", ["server", "admin"])
def test_a_certificate_is_judged_by_its_times(tmp_path: Path, days: int, told: str, listener: str) -> None:
    with_certificate(tmp_path, Authority(tmp_path).pair())
    file = written(tmp_path, **{listener: f"{{listen: '127.0.0.1:0', {TLS}}}"})
    environment = {"TASKGATE_DATA_DIR": str(tmp_path / "data")}
    now = datetime.now(UTC) + timedelta(days=days)
    found = check_configuration(load(file, {}), environment, is_running=False, now=now)
    assert found.errors == []
    [warning] = found.warnings
    assert (warning.key, told in warning.message) == (f"{listener}.tls.cert_file", True)


NAMES = {
    "its name": ("https://gate.example.com/mcp", ("other.example.com", "GATE.example.com"), (), True),
    "a wildcard": ("https://Gate.example.com", ("*.example.com",), (), True),
    "a wildcard of two labels": ("https://a.gate.example.com", ("*.example.com",), (), False),
    "a wildcard for the domain itself": ("https://example.com", ("*.example.com",), (), False),
    "a wildcard below a top-level domain": ("https://example.com", ("*.com",), (), False),
    "a wildcard within a label": ("https://gate.example.com", ("g*.example.com",), (), False),
    "a wildcard for an address": ("https://10.0.0.7", ("*.0.0.7",), ("10.0.0.8",), False),
    "an address": ("https://10.0.0.7:8443", (), ("10.0.0.8", "10.0.0.7"), True),
    "an address as a name": ("https://10.0.0.7", ("10.0.0.7",), (), False),
    "another form of an address": ("https://[2001:DB8:0::1]", (), ("2001:db8::1",), True),
    "a name in an address": ("https://gate.example.com", (), ("10.0.0.7",), False),
    "no name": ("https://gate", (), (), False),
}


@pytest.mark.parametrize(("url", "names", "addresses", "is_named"), NAMES.values(), ids=NAMES)
def test_a_certificate_for_another_host_than_that_of_the_url_is_told(
    tmp_path: Path, url: str, names: tuple[str, ...], addresses: tuple[str, ...], is_named: bool
) -> None:
    with_certificate(tmp_path, Authority(tmp_path).pair(names=names, addresses=addresses))
    file = written(tmp_path, server=f"{{listen: '127.0.0.1:0', public_url: '{url}', {TLS}}}")
    _, _, warnings = run("check", file)
    found = ", ".join([*names, *addresses]) or "no host (no subjectAltName)"
    expected = (
        f"taskgate: warning: server.tls.cert_file: the certificate is for {found}; server.public_url needs one for "
        f"{urlsplit(url).hostname}, so hosts refuse it: renew it with that name, or correct the URL"
    )
    assert [each for each in warnings if "server.public_url" in each] == ([] if is_named else [expected])


def test_of_a_certificate_with_many_names_a_few_are_told(tmp_path: Path) -> None:
    names = tuple(f"gate-{number}.example.com" for number in range(9))
    with_certificate(tmp_path, Authority(tmp_path).pair(names=names))
    file = written(tmp_path, server=f"{{listen: '127.0.0.1:0', public_url: 'https://gate.example.com', {TLS}}}")
    [told] = [each for each in run("check", file)[2] if "server.public_url" in each]
    assert f"{', '.join(names[:5])}, 5 more; server.public_url" in told


@pytest.mark.parametrize(
    "rest",
    [
        "public_url: 'http://gate.example.com'",
        "public_url: 'https://gate.example.com', trusted_proxies: [10.0.0.0/8]",
        "",
    ],
    ids=["plain HTTP", "behind a proxy", "no URL"],
)
def test_a_certificate_that_hosts_do_not_meet_at_the_url_is_not_judged_by_it(tmp_path: Path, rest: str) -> None:
    with_certificate(tmp_path, Authority(tmp_path).pair(names=("other.example.com",)))
    file = written(tmp_path, server=f"{{listen: '127.0.0.1:0', {TLS}, {rest}}}")
    assert [each for each in run("check", file)[2] if "for" in each.split()] == []


REDIS = """\
store: {backend: redis, redis: {url: "rediss://127.0.0.1:9/0", tls: {cert_file: tls.crt, key_file: tls.key}}}
audit: {enabled: false}
"""


def test_the_files_of_a_shared_store_are_checked(tmp_path: Path) -> None:
    key = tmp_path / "context.key"
    key.write_text("A" * 43 + "\n")
    key.chmod(0o600)
    file = written(tmp_path, auth="{mode: none, context: {key_file: context.key}}")
    file.write_text(file.read_text() + REDIS)
    assert run("check", file)[::2] == (
        2,
        ["store.redis: The files of store.redis.tls cannot be used: check that they exist, are readable, and match"],
    )
    for name, content in zip(("tls.crt", "tls.key"), Authority(tmp_path).pair(), strict=True):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o604)
    status, _, refused = run("check", file)
    told = f"{tmp_path / 'tls.key'} may be read or written by every user of this machine: chmod o-rwx it"
    assert (status, refused[-1]) == (2, f"store.redis: store.redis.tls.key_file: {told}")
    (tmp_path / "tls.key").chmod(0o600)
    status, _, warnings = run("check", file)
    assert status == 0
    assert [each.split(": ")[2] for each in warnings] == ["store.redis.tls.cert_file"]


# --- forms ----------------------------------------------------------------------------------------------------------


def test_five_lines_tell_what_is_served(tmp_path: Path) -> None:
    file = written(tmp_path, server="{public_url: 'https://mcp.example.com', listen: '127.0.0.1:0'}", auth=WITH_TOKENS)
    assert run("check", file)[1].splitlines() == [
        "serves:  reports at https://mcp.example.com/reports/mcp",
        "callers: tokens of corp (https://idp.example.com/)",
        "store:   sqlite, taskgate.db in the data directory; audit log: file, stdout",
        "limits:  ip, auth_failures, handshake, calls, polls, rest, bodies; tasks: 10 of one caller, 1000 of all",
        "result:  no problems",
    ]


@pytest.mark.parametrize(
    ("sections", "status", "keys"),
    [
        ({}, 0, []),
        ({"admin": '{listen: "127.0.0.1:0", token_file: FOLDER/none}'}, 2, [""]),
        ({"tasks": "{inline_grace: soon}"}, 2, ["tasks.inline_grace"]),
    ],
    ids=["good", "a missing file", "a wrong value"],
)
def test_programs_read_json(tmp_path: Path, sections: dict[str, str], status: int, keys: list[str]) -> None:
    ended, out, said = run("check", written(tmp_path, **sections), "--json")
    report = json.loads(out)
    assert (ended, said) == (status, [])
    assert [each["key"] for each in report["errors"]] == keys
    assert report["result"] == ("invalid" if status else "ok")
