"""`make run`: a real server, taskgate in front of it, and a real host that calls the server's slow tool as a task.

Then taskgate goes on serving until Ctrl-C, so that one can try it by hand. With ONCE=1 it ends after the host has run,
with 0 or 1, in a folder of its own and on free ports, unless LISTEN and ADMIN name some. With AUTH=1 taskgate asks for
tokens, there is an issuer of them, and the host is two users. With OBSERVE=1 a Prometheus scrapes taskgate. With
REPLICAS=3 there are three of it, which share a Valkey. With UPSTREAM=… the server is one's own, a URL or a command, and
the host lists its tools. All that is written goes under `.run/`.
"""

import signal

if __name__ == "__main__":
    # Nothing runs yet while modules are imported: Ctrl-C ends that without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from addresses import Address, AddressUnusable, free_addresses, parse_address, refuse_taken
from console_link import link_to
from gateways import RunFailed, gateway_before, options_before_server, options_for, url_of, wait_until_ready
from next_steps import claude_code, task_request, vs_code
from observing import NotObserved, Observer, check_that_prometheus_is_here, observing, where_to_look
from processes import UVICORN_LISTENS, Child, bound_to_us, end, running
from replicas import Replicas, count_from, several
from yours import expect_answer, is_url, server_from, upstream_from

EXAMPLE = Path(__file__).resolve().parent
RUN = EXAMPLE.parent / ".run"

HOST_WITHIN = 120.0
LOG_LINES = 200
LOGS = ("server.log", "issuer.log", "gateway*.log", "valkey.log", "balancer.log", "prometheus.log")
BEFORE_OURS = "Starting a server, taskgate in front of it, and a host."
BEFORE_YOURS = "Starting taskgate in front of your server; a program that is downloaded first takes a while …"
ISSUER_LISTENS = rb"Tokens are issued at (http://\S+)\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run was asked to do."""

    once: bool
    auth: bool
    observe: bool
    replicas: int
    listen: Address
    admin: Address
    folder: Path
    upstream: str | None = None


def plan_from(environment: Mapping[str, str], *, once: bool, auth: bool, observe: bool) -> Plan:
    """Reads UPSTREAM, REPLICAS, LISTEN and ADMIN.

    Raises AddressUnusable, NotObserved and RunFailed where something cannot be had.
    """
    upstream = upstream_from(environment)
    if observe:
        check_that_prometheus_is_here()
    replicas = count_from(environment.get("REPLICAS", ""))
    listen, admin = addresses_from(environment, once=once)
    RUN.mkdir(exist_ok=True)
    if once:
        folder = Path(tempfile.mkdtemp(prefix="once-", dir=RUN))
        return Plan(once, auth, observe, replicas, listen, admin, folder, upstream)
    for log in logs_in(RUN):
        log.unlink()
    return Plan(once, auth, observe, replicas, listen, admin, RUN, upstream)


def addresses_from(environment: Mapping[str, str], *, once: bool) -> tuple[Address, Address]:
    """Reads LISTEN and ADMIN. Without them a run that ends takes free ports. Raises AddressUnusable."""
    others = map(str, free_addresses()) if once else ("127.0.0.1:8080", "127.0.0.1:9464")
    listen, admin = (
        parse_address(name, environment.get(name) or other)
        for name, other in zip(("LISTEN", "ADMIN"), others, strict=True)
    )
    refuse_taken(listen, admin)
    return listen, admin


async def run_before_yours(plan: Plan, upstream: str) -> None:
    """Starts taskgate in front of a server of one's own, looks at its tools, and serves on. Raises RunFailed."""
    options, url = (
        options_before_server(server_from(upstream), plan.folder, plan.listen, plan.admin),
        f"http://{plan.listen}/mcp",
    )
    if is_url(upstream):
        await expect_answer(upstream, options, plan.folder)
    async with gateway_before(options, plan.folder) as gateway:
        await wait_until_ready(gateway, plan.admin)
        print(f"taskgate is in front of\n  {upstream}\nat {url}\n", flush=True)
        await run_host("guest.py", url, otherwise=f"the tools of {upstream} could not be listed")
        if not plan.once:
            print(farewell_before_yours(url, plan.admin, plan.folder), flush=True)
            await wait_for_any_to_end({"taskgate": gateway})


async def run(plan: Plan) -> None:
    """Starts everything, runs the host and, unless once is enough, serves until cancelled. Raises RunFailed."""
    async with AsyncExitStack() as children:
        command = (sys.executable, EXAMPLE / "server.py", "--port", "0")
        server = await children.enter_async_context(running(command, log=plan.folder / "server.log"))
        upstream = await url_of(server, UVICORN_LISTENS, "the example's server") + "/mcp"
        print(f"An unmodified server listens at {upstream}", flush=True)
        needed = {"the example's server": server}
        issuer = None
        if plan.auth:
            tokens = (sys.executable, EXAMPLE / "issuer.py")
            needed["the issuer"] = await children.enter_async_context(running(tokens, log=plan.folder / "issuer.log"))
            issuer = await url_of(needed["the issuer"], ISSUER_LISTENS, "the issuer")
            print(f"Tokens are issued at            {issuer}", flush=True)
        url = f"http://{plan.listen}/mcp"
        replicas = await gateways_of(plan, upstream, issuer, needed, children)
        admins = [plan.admin] if replicas is None else [each.admin for each in replicas.gateways]
        observer = None
        if plan.observe:
            observer = await children.enter_async_context(observing(admins, plan.folder))
            needed["Prometheus"] = observer.child
            print(f"Prometheus scrapes it, and is at http://{observer.address}", flush=True)
        print(flush=True)
        await run_host("users.py" if plan.auth else "host.py", url)
        if replicas is not None:
            await replicas.show()
        if observer is not None:
            await observer.show()
        if not plan.once:
            print(farewell(url, admins, issuer, observer, plan.folder), flush=True)
            await wait_for_any_to_end(needed)


async def gateways_of(
    plan: Plan, upstream: str, issuer: str | None, needed: dict[str, Child], children: AsyncExitStack
) -> Replicas | None:
    """Starts taskgate, or several of it with all that they take; None for one. Adds to `needed`."""
    if plan.replicas == 1:
        options = options_for(plan.folder, plan.listen, plan.admin, upstream, issuer)
        needed["taskgate"] = gateway = await children.enter_async_context(gateway_before(options, plan.folder))
        await wait_until_ready(gateway, plan.admin)
        print(f"taskgate is in front of it at    http://{plan.listen}/mcp", flush=True)
        return None
    found = await children.enter_async_context(
        several(plan.replicas, plan.listen, plan.admin, upstream=upstream, issuer=issuer, folder=plan.folder)
    )
    needed.update(found.needed)
    for number, each in enumerate(found.gateways, 1):
        print(f"taskgate {number} is in front of it at  http://{each.listen}/mcp", flush=True)
    print(
        f"They share a Valkey; in front of them, for hosts, is {found.balanced_by} at http://{plan.listen}/mcp",
        flush=True,
    )
    return found


async def run_host(script: str, url: str, *, otherwise: str = "the host did not get what it expected") -> None:
    """Runs a host of the example, whose words go straight to the terminal. Raises RunFailed unless it is content."""
    host = await asyncio.create_subprocess_exec(
        *bound_to_us([sys.executable, EXAMPLE / script, url]),
        stdin=asyncio.subprocess.DEVNULL,
        env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(HOST_WITHIN):
            status = await host.wait()
    except TimeoutError as error:
        raise RunFailed(f"the host was not done within {HOST_WITHIN:.0f} s") from error
    finally:
        await end(host, signal.SIGTERM)
    if status:
        raise RunFailed(otherwise)


async def wait_for_any_to_end(needed: Mapping[str, Child]) -> None:
    """Serves on. Raises RunFailed if a child ends by itself; otherwise only a cancellation gets out of here."""
    tasks = [asyncio.create_task(child.process.wait(), name=name) for name, child in needed.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    raise RunFailed(f"{done.pop().get_name()} ended by itself")


def farewell(url: str, admins: Sequence[Address], issuer: str | None, observer: Observer | None, folder: Path) -> str:
    """What to try while the example's server is behind taskgate."""
    token = issuer is not None
    return f"""{serves_on(url, admins, observer, folder)}
A request that makes a task; it is answered after 5 s, while the call runs on:{get_token(url, issuer) if issuer else ""}
  {task_request(url, token=token)}
{for_hosts(url, token=token)}
The console, signed in:
  {link_to(admins[0], folder)}
"""


def farewell_before_yours(url: str, admin: Address, folder: Path) -> str:
    """The same before a server of one's own, whose tools are not known here."""
    return f"""{serves_on(url, [admin], None, folder)}{for_hosts(url, token=False)}
The console, signed in:
  {link_to(admin, folder)}
"""


def serves_on(url: str, admins: Sequence[Address], observer: Observer | None, folder: Path) -> str:
    """Where everything is."""
    log = "gateway.log" if len(admins) == 1 else "gateway-1.log"
    others = "".join(f"\n                 http://{each}/metrics" for each in admins[1:])
    return f"""
taskgate goes on serving until Ctrl-C.
  for hosts      {url}
  for operators  http://{admins[0]}/metrics, its log is {RUN.name}/{log}{others}
{"" if observer is None else where_to_look(observer, RUN.name)}"""


def for_hosts(url: str, *, token: bool) -> str:
    """How released hosts get to know it."""
    return f"""
Claude Code:
  {claude_code(url, token=token)}

VS Code, in .vscode/mcp.json:
  {vs_code(url, token=token)}
"""


def get_token(url: str, issuer: str) -> str:
    """The line that gets a token; bob has one too."""
    return f"""
  TOKEN=$(curl -s {issuer}/token -d grant_type=password -d username=alice -d password=alice \\
    -d resource={url} | sed 's/.*"access_token": *"\\([^"]*\\)".*/\\1/')"""


async def run_until_stopped(plan: Plan) -> bool:
    """Runs the plan; False if somebody stopped it. A second signal changes nothing: the children are being ended."""
    yours = plan.upstream
    work = asyncio.create_task(run(plan) if yours is None else run_before_yours(plan, yours))
    stops: list[int] = []

    def stop(number: int) -> None:
        stops.append(number)
        if len(stops) == 1:
            work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        await work
    except asyncio.CancelledError:
        print("\nStopped.", flush=True)
        return False
    return True


def carry_out(plan: Plan) -> int:
    """Runs the plan and says what went wrong; returns the exit status."""
    try:
        print(BEFORE_YOURS if plan.upstream else BEFORE_OURS, flush=True)
        finished = asyncio.run(run_until_stopped(plan))
    except (RunFailed, NotObserved) as failure:
        print_logs(plan.folder)
        print(f"make run: {failure}", file=sys.stderr, flush=True)
        return 1
    if plan.once:
        shutil.rmtree(plan.folder, ignore_errors=True)
        return 0 if finished else 1
    return 0


def print_logs(folder: Path) -> None:
    """The last lines of each child's log."""
    for log in logs_in(folder):
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        print(f"\n--- {log.relative_to(RUN.parent)}", *lines, "---", sep="\n", file=sys.stderr)


def logs_in(folder: Path) -> list[Path]:
    """The logs of children that there are."""
    return [log for pattern in LOGS for log in sorted(folder.glob(pattern))]


def main() -> int:
    """One run; returns the exit status."""
    # Until the event loop listens for them.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    once, auth, observe = (os.environ.get(name, "") not in {"", "0"} for name in ("ONCE", "AUTH", "OBSERVE"))
    try:
        return carry_out(plan_from(os.environ, once=once, auth=auth, observe=observe))
    except (AddressUnusable, NotObserved, RunFailed) as failure:
        print(f"make run: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1 if once else 0


if __name__ == "__main__":
    sys.exit(main())
