"""The scenario from beginning to end: rounds of all acts, a kill in the middle, operators, the end, and replicas.

It is played once; what it leaves behind is read by the tests. What must not live here: what is expected of it.
"""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from helpers.host.raw import raw_host
from helpers.identity_provider import IdentityProvider
from helpers.key_server import KeyServer, status
from helpers.ports import free_port
from helpers.prometheus_server import PrometheusServer
from helpers.server import Hold
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded, eventually
from interop.peers import python_server
from interop.servers import legacy_server
from observability.acts import ACTS
from observability.counting import Count, Sent
from observability.replicas import Left, Replicas
from observability.scene import Scene
from observability.stage import BEARER, DONE, KEYS, Gateway, Servers, configuration, gateway, scraped, scripted

ROUNDS = 2
"""Of each process: rates are made of what moves between two looks."""

LEGACY_RELEASE, MODERN_RELEASE = "1.23.3", "2.3.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the scenario left behind."""

    folder: Path
    began: float
    served_until: float
    """When the last process was asked to end."""
    ended: float
    sent: Mapping[str, Sent]
    """Requests by their user agents."""
    nameless: int
    """How many there were that could not say who they are."""
    batches: int
    """How many of them held several messages."""
    secrets: frozenset[str]
    """Whatever nobody may be told: tokens, keys, ids of tasks and sessions, values of arguments."""
    scrapes: tuple[str, ...]
    """What each process that was alone showed at its beginning and before its end, in their order."""
    sinks: Mapping[str, tuple[Path, ...]]
    """The files of each sink of the audit log; of standard output one for each process."""
    logs: tuple[str, ...]
    statuses: tuple[int, ...]
    wrong_rules: tuple[str, ...]
    """The rules that Prometheus could not evaluate."""
    replicas: tuple[Left, ...]
    """What those left behind that shared a store."""

    @property
    def pages(self) -> tuple[str, ...]:
        """All that any process showed of its metrics."""
        return self.scrapes + tuple(page for left in self.replicas for page in left.scrapes)

    @property
    def audit(self) -> Path:
        """The file that has all of the audit log."""
        return self.sinks["file"][0]

    @property
    def key(self) -> Path:
        """What its lines are signed with."""
        return self.audit.with_name("audit.key")


class Drive:
    """Plays it, with so many rounds for each process. `folder` is where everything goes."""

    def __init__(self, folder: Path, rounds: int = ROUNDS) -> None:
        self.folder = folder
        self.rounds = rounds
        self.count = Count()
        self.scrapes: list[str] = []
        self.logs: list[str] = []
        self.stdout: list[Path] = []
        self.statuses: list[int] = []
        self.wrong_rules: list[str] = []

    async def play(self) -> Run:
        """All of it."""
        began = time.time()
        async with AsyncExitStack() as stack:
            servers, provider = await self._set_up(stack)
            self.keys = await stack.enter_async_context(KeyServer())
            self.keys.serve(KEYS, status(500))
            self.dark = TokenIssuer(self.folder, issuer=self.keys.issuer)
            ports = free_port(), free_port()
            self.listen, self.admin = (f"127.0.0.1:{port}" for port in ports)
            self.config = configuration(self.folder, servers, provider, self.keys, ports)
            self.http = await stack.enter_async_context(self.count.session())
            self.operator = await stack.enter_async_context(aiohttp.ClientSession())
            async with PrometheusServer(self.folder, self.admin) as self.prometheus:
                around = {"servers": servers, "provider": provider, "dark": self.dark, "prometheus": self.prometheus}
                self.scene = Scene(self.http, self.listen, **around)
                await self._until_it_is_killed()
                await self._from_there_to_the_end()
            replicas = Replicas(self.folder, self.config, self.scene, self.count, self.operator)
            left = await replicas.play()
        return Run(
            folder=self.folder,
            began=began,
            served_until=replicas.served_until,
            ended=time.time(),
            sent=self.count.sent,
            nameless=self.count.nameless,
            batches=self.scene.batches,
            secrets=frozenset(self.scene.secrets | self._keys()),
            scrapes=tuple(self.scrapes),
            sinks={
                "file": (self.folder / "data" / "audit.jsonl",),
                "spare": (self.folder / "spare.jsonl",),
                "stdout": tuple(self.stdout),
            },
            logs=tuple(self.logs),
            statuses=tuple(self.statuses),
            wrong_rules=(*self.wrong_rules, *replicas.wrong_rules),
            replicas=left,
        )

    async def _set_up(self, stack: AsyncExitStack) -> tuple[Servers, IdentityProvider]:
        """Everybody around the gateway, all at once."""
        reports, asking, desk, moody, provider = await asyncio.gather(
            stack.enter_async_context(legacy_server(LEGACY_RELEASE, self.folder)),
            stack.enter_async_context(python_server("modern_questions_server.py", MODERN_RELEASE, self.folder)),
            stack.enter_async_context(scripted()),
            stack.enter_async_context(scripted()),
            stack.enter_async_context(IdentityProvider()),
        )
        return Servers(reports=reports.url, asking=asking, desk=desk, moody=moody), provider

    # --- two lives

    async def _until_it_is_killed(self) -> None:
        async with gateway(self.folder, "first", self.config) as process:
            await self.prometheus.has_seen_all()
            await self._scrape()
            await self._rounds()
            await self._scrape()
            await self._leave_orphans()
            await eventually(lambda: self.count.is_told(self.folder))
            process.ask(signal.SIGKILL)
            self.statuses.append(await process.ended())
        self._keep(process, "first")
        # What a machine that loses its power leaves behind.
        with (self.folder / "spare.jsonl").open("ab") as spare:
            spare.write(b'{"v":1,"seq":')

    async def _from_there_to_the_end(self) -> None:
        self.config["store"]["sqlite"]["max_size"] = "1GiB"
        async with gateway(self.folder, "second", self.config) as process:
            await self.prometheus.has_seen_all()
            await self._scrape()
            await self._rounds()
            await self._lose_the_store()
            await self._let_there_be_light()
            await self._operate(process)
            await self._fall_behind(process)
            await self._garbage()
            await self.prometheus.has_seen_all()
            await self._scrape()
            await self._be_balanced()
            process.ask(signal.SIGTERM)
            await self.prometheus.until("taskgate_draining == 1")
            self.wrong_rules = await self.prometheus.wrong_rules()
            self.statuses.append(await process.ended())
        self._keep(process, "second")

    async def _rounds(self) -> None:
        for _ in range(self.rounds):
            self.scene.about += 1
            ends = await asyncio.gather(*(act(self.scene) for act in ACTS), return_exceptions=True)
            wrong = [end for end in ends if isinstance(end, Exception)]
            if wrong:
                raise ExceptionGroup(f"acts of round {self.scene.about}", wrong)
            await self.prometheus.has_seen_all()

    async def _leave_orphans(self) -> None:
        host = await self.scene.legacy("alice", "desk")
        for tool in ("slow", "again"):
            await self.scene.started(host, tool, ttl=20_000)

    async def _lose_the_store(self) -> None:
        """Somebody else keeps the store's file locked: ends of tasks wait to be written, and are overtaken."""
        for _ in range(5):
            if await self._overtaken():
                break
        # Their ends are tried again in a while, and it is a while more until somebody asks what became of them.
        await self.prometheus.until("sum(taskgate_task_late_answers_total) > 0")

    async def _overtaken(self) -> bool:
        """Whether a task was cancelled before its end, which had to wait, was tried again."""
        # Tasks that are kept for long: one that has expired when its end is tried again has no late answer.
        host = await self.scene.legacy("alice", "desk")
        script = self.scene.servers.desk.script
        early, late = script["early"], script["late"] = Hold(), Hold()
        tasks = [await self.scene.started(host, tool, ttl=20_000) for tool in ("early", "late")]
        await eventually(lambda: early.turns and late.turns)
        with closing(sqlite3.connect(self.folder / "data" / "taskgate.db", isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")
            early.release(DONE)
            await host.call("echo")
            await self.prometheus.until("taskgate_store_up == 0")
            late.release(DONE)
            await self.prometheus.has_seen_all()
            store.execute("ROLLBACK")
        ends = await asyncio.gather(*(host.ask("tasks/cancel", {"taskId": task}) for task in tasks))
        return any(end.message is not None and "result" in end.message for end in ends)

    async def _let_there_be_light(self) -> None:
        """The keys of the other issuer can be had at last."""
        self.keys.publish(self.dark.jwk(), path=KEYS)
        await self.prometheus.until("taskgate_ready == 1")

    # --- operators

    async def _operate(self, process: Gateway) -> None:
        """Reloads that are not allowed, not possible, of no use, good, and not possible while it runs."""
        file = self.folder / "taskgate.yaml"
        good = file.read_text()
        assert await self._reload("no operator's token") == 401
        file.write_text("version: 1\nlimits: {unheard: 1}\n")
        await self._reload()
        await self.prometheus.has_seen_all()
        file.write_text(good)
        await self._reload()
        narrower = good.replace('"queue": {"size": 1,', '"queue": {"size": 2,').replace('"queue": 600', '"queue": 500')
        narrower = narrower.replace('"concurrency": 1,', '"concurrency": 2,')
        assert narrower != good
        file.write_text(narrower)
        process.ask(signal.SIGHUP)
        await self.prometheus.until("changes(taskgate_config_hash[10s]) > 0")
        file.write_text(narrower.replace('"max_body": "64KiB"', '"max_body": "32KiB"'))
        await self._reload()
        await self.prometheus.has_seen_all()

    async def _reload(self, token: str = BEARER) -> int:
        url, head = f"http://{self.admin}/-/reload", {"Authorization": f"Bearer {token}"}
        async with bounded(), self.operator.post(url, headers=head) as response:
            await response.read()
            return response.status

    async def _fall_behind(self, process: Gateway) -> None:
        """Nobody reads standard output for a while, so that lines wait for it, and then are lost."""
        process.stop_reading()
        host = await self.scene.modern("alice", "desk")
        async with bounded():
            while not await self.prometheus.query("taskgate_audit_dropped_total > 0"):
                # Of a known caller: those of others are counted, and few are lines.
                await asyncio.gather(*(host.ask("server/discover") for _ in range(100)))
        process.read_on()
        await host.discover()

    async def _garbage(self) -> None:
        """What is no HTTP."""
        address, port = self.listen.split(":")
        self.count.nameless += 1
        async with raw_host((address, int(port))) as raw:
            await raw.ask(b"this is no HTTP\r\n\r\n")

    # --- what is kept of it

    async def _be_balanced(self) -> None:
        """Ask whether it is ready, as a balancer does: only then does a gateway wait for one before it closes."""
        async with bounded(), self.operator.get(f"http://{self.admin}/readyz") as response:
            await response.read()

    async def _scrape(self) -> None:
        self.scrapes.append(await scraped(self.operator, self.admin))

    def _keys(self) -> set[str]:
        """What only the gateway knows: its keys, and the tokens that it got for servers."""
        keys = {line for file in (self.folder / "data").glob("*.key") for line in file.read_text().split()}
        shown = {request.headers.get("authorization", "") for request in self.scene.servers.desk.requests}
        return keys | {text.removeprefix("Bearer ") for text in shown if text}

    def _keep(self, process: Gateway, name: str) -> None:
        path = self.folder / f"{name}.stdout"
        path.write_bytes(process.stdout)
        self.stdout.append(path)
        self.logs.append(process.log())
