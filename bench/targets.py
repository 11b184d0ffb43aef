"""The programs that are measured: how each is started, when it is ready, and the host sessions opened on it."""

import contextlib
import http.client
import os
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from example import environments

from bench import host, serving
from bench.failures import BenchFailed
from bench.issuer import ISSUER, SUBJECTS, Issuer
from bench.processes import ROOT, Program, ended, free_port, python

READY_BOUND = 60.0  # seconds a program has to answer its first `initialize`; a large file is looked through before
DATABASE = "taskgate.db"  # in the folder of its place
MOUNT = "default"  # the name of the one upstream
_CONFIGURATION = """\
version: 1
server: {{listen: "127.0.0.1:{port}", drain: {{delay: 0s}}, {connections}}}
admin: {{listen: "127.0.0.1:{admin_port}"{tokens}}}
upstreams: {{{mount}: {{path: {path}, {server}, protocol_version: {revision}, {unbounded}}}}}
auth: {auth}
store: {store}
limits: {{rate: {rate}, concurrency: {concurrency}}}
tasks: {{early_poll: {{reject_above: 1000}}}}
logging: {{level: warning}}
"""
_CONNECTIONS = "max_connections: 100000, max_connections_per_address: 100000"
_CONCURRENCY = """\
{tasks_per_context: 1000000, tasks_global: 1000000, kept_per_context: 1024GiB, kept_global: 1024GiB, \
sessions_per_context: 1000000, waits_per_context: 1000000, waits_global: 1000000}\
"""
_RATES = """\
[{name: ip, scope: ip, rate: 1000000/s, burst: 1000000, before_auth: true}, \
{name: auth_failures, scope: ip, rate: 1000000/s, burst: 1000000, event: auth_failure}, \
{name: calls, scope: context, rate: 1000000/s, burst: 1000000, methods: ["tools/call"]}, \
{name: polls, scope: context, rate: 1000000/s, burst: 1000000, methods: ["tasks/*"]}, \
{name: rest, scope: context, rate: 1000000/s, burst: 1000000, methods: ["*"]}]\
"""
_UNSEEN = "metrics: {enabled: false}\naudit: {enabled: false}\n"
_SQLITE = '{{backend: sqlite, sqlite: {{path: "{folder}/{database}"}}}}'
_UNBOUNDED = "health: null, concurrency: 100000"
_REQUIRED = """\
{{mode: required, issuers: {{bench: {{issuer: "{issuer}", jwks_file: "{keys}"}}}}, context: {{key_file: "{secret}"}}}}\
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a target stands: its port, the stub's, an empty folder of its own, and whose tokens it asks for, if any.

    `revision` is the one that the server is spoken to in. `more` is what taskgate's configuration has besides, `parts`
    what it has in the place of the usual `server`, `auth`, `store`, `rate` or `tokens` of operators, and `tree` the
    checkout that it is run from, if another one than this. What it keeps without being told where is in the folder too.
    """

    port: int
    stub_port: int
    folder: Path
    issuer: Issuer | None = None
    revision: str = "auto"
    more: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    tree: Path | None = None
    admin_port: int = field(default_factory=free_port)

    @property
    def environment(self) -> dict[str, str]:
        """What the program finds in its environment."""
        code = {} if self.tree is None else {"PYTHONPATH": str(self.tree / "proxy")}
        return {"TASKGATE_DATA_DIR": str(self.folder), **code}

    @property
    def url(self) -> str:
        """The upstream server's URL."""
        return f"http://127.0.0.1:{self.stub_port}{host.PATH}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A target that answers."""

    name: str
    program: Program
    port: int
    sessions: tuple[host.Heads, ...]
    issuer: Issuer | None = None
    admin_port: int = 0
    """Where taskgate answers operators."""


def _bare(place: Place) -> list[str]:
    return python("bare_proxy", "--port", str(place.port), "--origin", f"http://127.0.0.1:{place.stub_port}")


def _fastmcp(place: Place) -> list[str]:
    interpreter = environments.python_of("fastmcp-3.4.10")
    return [str(interpreter), str(ROOT / "bench" / "fastmcp_proxy.py"), str(place.port), place.url]


def _least(place: Place) -> list[str]:
    database = str(place.folder / "least.db")
    return python("least_gateway", "--port", str(place.port), "--url", place.url, "--database", database)


def _answerer(place: Place) -> list[str]:
    return python("answerer", "--port", str(place.port))


def _taskgate(place: Place) -> list[str]:
    return [str(Path(sys.executable).parent / "taskgate"), *command_of_taskgate(place)]


def command_of_taskgate(place: Place) -> list[str]:
    """What `taskgate` is started with; its configuration is written for that."""
    file = place.folder / "taskgate.yaml"
    text = _CONFIGURATION.format(
        port=place.port,
        admin_port=place.admin_port,
        mount=MOUNT,
        path=host.PATH,
        revision=place.revision,
        connections=_CONNECTIONS,
        concurrency=_CONCURRENCY,
        unbounded=_UNBOUNDED,
        **{
            "server": f'transport: http, url: "{place.url}"',
            "auth": _auth(place),
            "store": _SQLITE.format(folder=place.folder, database=DATABASE),
            "rate": "[]",
            "tokens": "",
            **place.parts,
        },
    )
    file.write_text(text + place.more)
    # Named only where it was chosen, so that earlier commits, which have one loop, are measured too.
    chosen = [] if (loop := serving.loop()) == "auto" else ["--loop", loop]
    return ["serve", "--config", str(file), *chosen]


def _auth(place: Place) -> str:
    if place.issuer is None:
        return "{mode: none}"
    keys, secret = place.folder / "keys.json", place.folder / "context.key"
    keys.write_text(place.issuer.key_set())
    secret.touch(mode=0o600)
    secret.write_bytes(urlsafe_b64encode(os.urandom(32)))
    return _REQUIRED.format(issuer=ISSUER, keys=keys, secret=secret)


_COMMANDS: dict[str, Callable[[Place], list[str]]] = {
    "bare": _bare,
    "fastmcp": _fastmcp,
    "least": _least,
    "answerer": _answerer,
    "taskgate": _taskgate,
    "fresh": _taskgate,
    "open": _taskgate,
    "off": _taskgate,
}
OURS = ("taskgate", "fresh", "off")
"""Those that are taskgate; all others are what it is compared to."""
_JUDGED = ("taskgate", "fresh")
"""Those with everything on. `open` has neither tokens nor rates, `off` has no metrics and no audit log either."""


@contextlib.contextmanager
def started_stub(*, get_stream: bool) -> Iterator[Running]:
    """The upstream server, which is also the target `direct`."""
    port = free_port()
    options = ["--get-stream"] if get_stream else []
    with ended(Program("the stub", python("stub_upstream", "--port", str(port), *options))) as program:
        yield _await_ready("direct", program, port, sessions=1)


@contextlib.contextmanager
def started(
    name: str,
    stub: Running,
    folder: Path,
    *,
    sessions: int,
    revision: str = "auto",
    more: str = "",
    parts: Mapping[str, str] | None = None,
    tree: Path | None = None,
) -> Iterator[Running]:
    """The target `name`, with host sessions open; for the rest see Place. `BenchFailed` if it does not come up."""
    port = free_port()
    judged = name in _JUDGED
    issuer = Issuer(f"http://127.0.0.1:{port}{host.PATH}") if judged else None
    place = Place(
        port=port,
        stub_port=stub.port,
        folder=folder,
        issuer=issuer,
        revision=revision,
        more=more + (_UNSEEN if name == "off" else ""),
        parts={**({"rate": _RATES} if judged else {}), **(parts or {})},
        tree=tree,
    )
    try:
        program = Program(name, _COMMANDS[name](place), environment=place.environment)
    except OSError as failure:
        raise BenchFailed(f"{name} cannot be started: {failure}") from failure
    with ended(program):
        running = _await_ready(name, program, port, sessions=sessions, issuer=issuer)
        yield replace(running, admin_port=place.admin_port)


def _await_ready(name: str, program: Program, port: int, *, sessions: int, issuer: Issuer | None = None) -> Running:
    own = _own_heads(issuer, sessions, 1 if name == "fresh" else SUBJECTS)
    until = time.monotonic() + READY_BOUND
    while True:
        program.require_running()
        try:
            first = host.open_session(port, own[0])
            break
        except (OSError, http.client.HTTPException, BenchFailed) as failure:
            if time.monotonic() > until:
                raise BenchFailed(f"{name} does not answer: {failure}\n{program.last_words()}") from failure
        time.sleep(0.02)
    others = [host.open_session(port, heads) for heads in own[1:]]
    return Running(name=name, program=program, port=port, sessions=(first, *others), issuer=issuer)


def _own_heads(issuer: Issuer | None, sessions: int, subjects: int) -> list[host.Heads]:
    """The heads of each session; `subjects` callers have them in turn."""
    if issuer is None:
        return [{}] * sessions
    return [{host.AUTHORIZATION: f"Bearer {token}"} for token in issuer.tokens(sessions, subjects)]
