"""Who is in the scenario: hosts of both eras, by the name of their user, and those who want in without a token.

What must not live here: what they do (`acts`).
"""

import asyncio
from copy import copy
from typing import Any, Self

import aiohttp

from helpers.host.host import ACCEPT, Host
from helpers.identity_provider import IdentityProvider
from helpers.prometheus_server import PrometheusServer
from helpers.secrets import noted
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded
from observability.stage import AUDIENCE, BEARER, NO_SECRET, Servers

CAPABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
QUARTER = noted("the quarter that nobody else is to hear of")
"""What is in arguments, and in results that repeat them."""

WORD = noted("the word that nobody but a server is told")
"""What a user answers."""

_TENANTS = {"alice": "acme", "bob": "acme", "small": "small"}
"""Of users whose name begins so; all others are of a tenant that metrics do not name."""

_POLLS_EVERY = 0.11


class Scene:
    """The gateway as its hosts see it. `about` is the number of the round, which makes new users of old ones."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        listen: str,
        *,
        servers: Servers,
        provider: IdentityProvider,
        dark: TokenIssuer,
        prometheus: PrometheusServer,
    ) -> None:
        self.http = http
        self.listen = listen
        self.servers = servers
        self.provider = provider
        self.dark = dark
        self.prometheus = prometheus
        self.about = 0
        self.batches = 0
        """Requests of several messages."""
        self.secrets: set[str] = {QUARTER, WORD, BEARER, NO_SECRET, provider.secret_of("taskgate")}
        """Whatever nobody else may be told: tokens, ids of tasks and sessions, values of arguments."""
        self._tokens: dict[str, str] = {}

    def url(self, mount: str = "reports") -> str:
        """Where hosts find a server."""
        return f"http://{self.listen}/{mount}/mcp"

    def elsewhere(self, listen: str, prometheus: PrometheusServer) -> Self:
        """The same people and secrets, at a gateway that listens there and that another Prometheus looks at."""
        there = copy(self)
        there.listen, there.prometheus = listen, prometheus
        return there

    async def token(self, user: str, **more: Any) -> str:
        """A token of the real provider; kept where there is nothing special about it."""
        if more or user not in self._tokens:
            tenant = next((tenant for name, tenant in _TENANTS.items() if user.startswith(name)), "others")
            asked = {"resource": AUDIENCE, "claims": {"tenant": tenant}, **more}
            token = await self.provider.token(subject=user, **asked)
            self.secrets.add(token)
            if more:
                return token
            self._tokens[user] = token
        return self._tokens[user]

    async def modern(self, user: str, mount: str = "reports", *, tasks: bool = True) -> Host:
        """A host of 2026-07-28."""
        return Host(self.http, self.url(mount), await self.token(user), capabilities=CAPABLE, tasks=tasks, era="modern")

    async def legacy(self, user: str, mount: str = "reports", revision: str = "2025-11-25") -> Host:
        """A host of an earlier revision, with a session."""
        host = Host(self.http, self.url(mount), await self.token(user))
        await host.initialize(revision, capabilities=CAPABLE)
        assert host.session is not None
        self.secrets.add(host.session)
        return host

    async def started(self, host: Host, tool: str, arguments: Any = None, **task: Any) -> str:
        """The id of a new task; `task` is what a host of the legacy era asks for it."""
        made = await host.start(tool, arguments, **task)
        id: str = made["taskId"]
        self.secrets.add(id)
        return id

    async def until(self, host: Host, task: str, *statuses: str) -> dict[str, Any]:
        """The task once it is in one of those states; asked for no more often than is advised."""
        async with bounded():
            while (found := await host.task(task))["status"] not in statuses:
                await asyncio.sleep(_POLLS_EVERY)
        return found

    async def knock(
        self, mount: str = "reports", body: bytes = b"{}", *, verb: str = "POST", token: str | None = None, **head: str
    ) -> int:
        """The status of any request; headers are named with underscores. A mount that begins so is a path."""
        fields = {"Content-Type": "application/json", "Accept": ACCEPT}
        fields |= {} if token is None else {"Authorization": f"Bearer {token}"}
        fields |= {name.replace("_", "-"): value for name, value in head.items()}
        url = f"http://{self.listen}{mount}" if mount.startswith("/") else self.url(mount)
        data = body if verb == "POST" else None
        async with bounded(), self.http.request(verb, url, data=data, headers=fields) as response:
            await response.read()
            return response.status
