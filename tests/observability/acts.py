"""What happens in the scenario: one act for each path that a request or a task can take. All can go on at once.

What must not live here: what operators do, and in which order all of it is played (`drive`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from helpers.host.host import GONE
from helpers.server import Hold, result, status
from helpers.waiting import bounded
from observability.scene import QUARTER, WORD, Scene
from observability.stage import AUDIENCE, DONE

ANSWERED = {"action": "accept", "content": {"word": WORD}}
THOUGHT = {"role": "assistant", "content": {"type": "text", "text": "a thought"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///srv/books"}]}
ANSWERS = {"user": ANSWERED, "model": THOUGHT, "roots": ROOTS}
NOBODYS = "N" * 32
Act = Callable[[Scene], Awaitable[None]]


async def completed(scene: Scene) -> None:
    """Tasks that end well, fetched in each way there is, with every kind of wish for a time to live."""
    host = await scene.modern("alice")
    task = await scene.started(host, "generate_report", {"quarter": QUARTER, "seconds": 0.5})
    async with host.listen(taskIds=[task]):
        await scene.until(host, task, "completed")
    legacy = await scene.legacy("alice")
    async with legacy.listen():
        for wanted in (3_600_000, 1):
            task = await scene.started(legacy, "generate_report", {"quarter": QUARTER, "seconds": 0.1}, ttl=wanted)
            await legacy.ask("tasks/result", {"taskId": task})
        await legacy.ask("tasks/list")
        await legacy.ask("tools/list")
        await legacy.ask("prompts/get", {"name": "summarise", "arguments": {"quarter": QUARTER}})
    await legacy.leave()


async def never_fetched(scene: Scene) -> None:
    """Tasks that end, and whose owner does not come back before they are removed."""
    legacy = await scene.legacy("alice", "desk")
    await scene.started(legacy, "echo", ttl=500)
    await scene.started(legacy, "faulty", ttl=500)


async def plain(scene: Scene) -> None:
    """Calls that become no tasks: quick ones, and those of hosts that know none."""
    host = await scene.modern("alice", "desk")
    await host.call("quick", {"about": QUARTER})
    await (await scene.modern("alice", tasks=False)).call("broken_report", {"quarter": QUARTER})
    await (await scene.modern("alice", "desk", tasks=False)).call("sleepy")
    await host.discover()
    await (await scene.legacy("bob", "desk", "2025-06-18")).call("echo")
    await host.ask("a/method/of/their/own")


async def failed(scene: Scene) -> None:
    """A tool that says that it failed, and a server that does not come to an answer."""
    host = await scene.modern("alice")
    await scene.until(host, await scene.started(host, "broken_report", {"quarter": QUARTER}), "completed")
    host = await scene.modern("alice", "desk")
    await scene.until(host, await scene.started(host, "faulty"), "failed")


async def cancelled(scene: Scene) -> None:
    """Cancels in time and too late."""
    host = await scene.modern("alice", "desk")
    task = await scene.started(host, "slow")
    await host.cancel(task)
    await host.cancel(task)
    await scene.until(host, task, "cancelled")


async def left(scene: Scene) -> None:
    """A host that goes away before it is answered."""
    host = await scene.modern("alice", "desk", tasks=False)
    hold = scene.servers.desk.script["waits"] = Hold()
    async with host.asking("tools/call", {"name": "waits", "arguments": {}}) as asked:
        async with bounded():
            await hold.begun.wait()
        await asked.leave()
    async with bounded():
        await hold.left.wait()


async def expired(scene: Scene) -> None:
    """Times to live that run out while a task works, waits for a turn, and waits for its host."""
    host = await scene.legacy(f"late-{scene.about}", "desk")
    working = await scene.started(host, "stuck", ttl=500)
    single = await scene.legacy("alice", "single")
    await scene.started(single, "stuck", ttl=3000)
    await scene.started(single, "echo", ttl=1500)
    await scene.prometheus.until("taskgate_queue_depth > 0")
    asking = await scene.legacy("hasty", "asking")
    await scene.started(asking, "everybody", ttl=700)
    async with bounded():
        while "result" in ((await host.ask("tasks/get", {"taskId": working})).message or {}):
            await asyncio.sleep(0.12)


async def asked(scene: Scene) -> None:
    """Questions of a server that are answered, declined, dropped with their task, and left until it is too late."""
    host = await scene.modern("bob", "asking")
    for answers in (ANSWERS, {**ANSWERS, "user": {"action": "decline"}}):
        task = await scene.started(host, "everybody")
        keys = await _inputs(scene, host, task)
        await host.update(task, {key: answers[name] for name, key in keys.items()})
        await scene.until(host, task, "completed", "failed")
    task = await scene.started(host, "everybody")
    await _inputs(scene, host, task)
    await host.cancel(task)
    await scene.started(host, "ask", {"rounds": 1})


async def _inputs(scene: Scene, host: Any, task: str) -> dict[str, str]:
    """The keys that the three questions of `everybody` have."""
    found = await scene.until(host, task, "input_required")
    methods = {"elicitation/create": "user", "sampling/createMessage": "model", "roots/list": "roots"}
    return {methods[request["method"]]: key for key, request in found["inputRequests"].items()}


async def denied(scene: Scene) -> None:
    """Tasks that are asked for by those who do not have them, by some of them again and again."""
    alice = await scene.modern("alice", "desk")
    task = await scene.started(alice, "echo")
    for who in (f"bob-{scene.about}", f"carol-{scene.about}"):
        other = await scene.modern(who, "desk")
        await other.ask("tasks/get", {"taskId": task})
        await other.cancel(task)
        await other.ask("tasks/get", {"taskId": NOBODYS})
        await other.ask("tasks/get", {"taskId": "short"}, headers={"Mcp-Name": GONE})
    thief = await scene.modern(f"thief-{scene.about}", "desk")
    for number in range(9):
        await thief.ask("tasks/get", {"taskId": f"{number}" * 32})


async def limited(scene: Scene) -> None:
    """Rates and caps."""
    host = await scene.modern(f"hasty-{scene.about}", "desk")
    for _ in range(4):
        await host.ask("prompts/list")
    small = await scene.legacy(f"small-{scene.about}", "desk")
    await scene.started(small, "stuck", ttl=2000)
    await small.call("echo", task={})
    await scene.prometheus.until("taskgate_saturated_contexts > 0")
    async with AsyncExitStack() as streams:
        for _ in range(2):
            await streams.enter_async_context((await scene.legacy(f"small-{scene.about}", "desk")).listen())
        third = await scene.legacy(f"small-{scene.about}", "desk")
        await scene.knock("desk", verb="GET", token=third.token, Mcp_Session_Id=str(third.session))


async def suspicious(scene: Scene) -> None:
    """Several who poll without a pause, whose headers say something else, and who answer what was never asked."""
    for number in range(4):
        await _suspicious(scene, f"strange-{scene.about}-{number}")


async def _suspicious(scene: Scene, user: str) -> None:
    host = await scene.modern(user, "desk")
    await host.ask("tools/list", headers={"Mcp-Method": "tools/call"})
    task = await scene.started(host, "slow")
    await host.update(task, {"never-asked": ANSWERED})
    # Side by side, so that a slow machine does not make well-behaved hosts of them.
    for _ in range(3):
        await asyncio.gather(*(host.ask("tasks/get", {"taskId": task}) for _ in range(10)))
    await host.cancel(task)


async def queued(scene: Scene) -> None:
    """A server that does one thing at a time: what waits for a turn, for too long, and what finds no place to wait."""
    host = await scene.legacy("bob", "narrow")
    task = await scene.started(host, "stuck", ttl=900)
    await asyncio.gather(*(host.call("echo") for _ in range(3)))
    await host.ask("tasks/cancel", {"taskId": task})


async def refused(scene: Scene) -> None:
    """Rules that refuse, and one that only says that it would."""
    host = await scene.modern("alice", "desk")
    for tool in ("forbidden", "watched"):
        await host.call(tool, {"about": QUARTER})
    await host.call("shadowed")


async def bad_tokens(scene: Scene) -> None:
    """No token, broken ones, some that were good once or elsewhere, and one address that tries and tries."""
    noticed = f"203.0.113.{scene.about}"
    listing = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    elsewhere = await scene.token("alice", resource="https://elsewhere.example")
    old = await scene.token("alice", lifetime=-120)
    dark = scene.dark.token(AUDIENCE, tenant="acme")
    scene.secrets.add(dark)
    for token in (None, "no-token-of-anybody-at-all", elsewhere, old, dark):
        await scene.knock("desk", listing, token=token, X_Forwarded_For=f"198.51.100.{scene.about}")
    for _ in range(10):
        await scene.knock("desk", listing, token=elsewhere, X_Forwarded_For=noticed)


async def bad_requests(scene: Scene) -> None:
    """What is refused before anybody looks who sent it or what it is about, and headers that say something else."""
    token = await scene.token("alice")
    for body in (b"{", b"[]", b"x" * 70_000, b"[" * 100, b'{"jsonrpc":"1.0"}'):
        await scene.knock("desk", body, token=token)
    await scene.knock("/nowhere")
    await scene.knock("/.well-known/oauth-protected-resource/desk/mcp", verb="GET")
    for head in (
        {"Origin": "https://evil.example"},
        {"Host": "evil.example"},
        {"Accept": "image/png"},
        {"Content_Type": "text/plain"},
        {"MCP_Protocol_Version": "1999-01-01"},
        {"Mcp_Session_Id": NOBODYS},
    ):
        await scene.knock("desk", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', token=token, **head)


async def batched(scene: Scene) -> None:
    """Several messages in one request, as one revision has it."""
    host = await scene.legacy("alice", "desk", "2025-03-26")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
    messages = [
        call,
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "1.0", "id": 3, "method": "ping"},
    ]
    body = json.dumps(messages).encode()
    scene.batches += 1
    await scene.knock("desk", body, token=host.token, Mcp_Session_Id=str(host.session))


async def joined(scene: Scene) -> None:
    """A call that is sent again while it runs."""
    host = await scene.legacy("alice", "desk")
    await asyncio.gather(*(host.call("joined", {"about": QUARTER}) for _ in range(2)))


async def unwell(scene: Scene) -> None:
    """A server that forgets sessions, and then says 503 until it is left alone; and one that is not there."""
    moody = scene.servers.moody
    host = await scene.legacy("alice", "moody")
    moody.forget_sessions()
    await host.call("sleepy")
    moody.script["sleepy"] = moody.methods["ping"] = status(503)
    for _ in range(3):
        await (await scene.modern("alice", "moody", tasks=False)).call("sleepy")
    for sign in ("circuit_open{upstream='moody'} == 1", "up{upstream='moody'} == 0"):
        await scene.prometheus.until(f"taskgate_upstream_{sign}")
    moody.script["sleepy"] = result(DONE)
    del moody.methods["ping"]
    async with bounded():
        while "error" in ((await (await scene.modern("alice", "moody", tasks=False)).call("sleepy")).message or {}):
            await asyncio.sleep(0.1)
    gone = await scene.modern("alice", "gone")
    await gone.ask("tools/list")
    await gone.call("echo")


async def crashed(scene: Scene) -> None:
    """A server that is a program, and ends in the middle of a call; the next call has another, as has a stranger."""
    host = await scene.modern("alice", "local", tasks=False)
    for tool in ("echo", "exits", "noisy"):
        await host.call(tool)
    await scene.prometheus.until("taskgate_upstream_processes{upstream='local'} >= 1")
    await (await scene.modern("bob", "local", tasks=False)).call("echo")


async def paid(scene: Scene) -> None:
    """Servers that want a token of the gateway's own, which it gets for one of them."""
    for mount in ("bank", "bust"):
        await (await scene.modern("alice", mount, tasks=False)).call("sleepy")


async def denied_extension(scene: Scene) -> None:
    """A host with an extension that crosses to no server."""
    host = await scene.modern("alice", "desk")
    host.capabilities["extensions"]["io.modelcontextprotocol/events"] = {}
    await host.discover()


ACTS: tuple[Act, ...] = (
    completed, never_fetched, plain, failed, cancelled, left, expired, asked, denied, limited, suspicious, queued,
    refused, bad_tokens, bad_requests, batched, joined, unwell, crashed, paid,
    denied_extension,
)  # fmt: skip
