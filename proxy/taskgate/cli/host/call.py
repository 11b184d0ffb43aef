"""The work of `call`: call a tool through a running gateway, as a host of 2025-11-25 does.

`ToolCall` follows the call. A plain call is one request. A task is polled at the advised interval,
and its result is fetched at its end. Ctrl-C and the timeout cancel either at the gateway.
"""

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import click

from taskgate.cli.exits import FAILED, INTERRUPTED, TOOL_FAILED, WRONG_USE, fail
from taskgate.cli.host.mcp_host import CallFailed, McpHost, open_host
from taskgate.cli.host.tool_arguments import ArgumentInvalid, read_arguments, read_typed
from taskgate.cli.printing import clean, json_text, one_line
from taskgate.cli.remote.token_file import TokenFileInvalid, read_token
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_RESULT, TOOLS_CALL, TOOLS_LIST

TIMED_OUT: Final = 124
"""Exit status: the call did not end in time; as of `timeout` in a shell."""
TERMINATED: Final = 143
"""Exit status: SIGTERM."""

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_CANCEL_SECONDS: Final = 5.0
_MAX_PAGES: Final = 100
_MAX_ERROR: Final = 2000
"""Characters of an error that are shown: most of them may be of the server."""
_MIN_INTERVAL, _MAX_INTERVAL = 0.05, 60.0
_DEFAULT_INTERVAL: Final = 1.0
_MAX_FAILED_POLLS: Final = 10
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_STATUS_NOTIFICATION: Final = "notifications/tasks/status"


class ProgressDisplay(Protocol):
    """A display of the progress of one call."""

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show a status, and how much is done; None where that is not known."""

    def close(self) -> None:
        """Remove it."""


class _NoDisplay:
    """A display that shows nothing, for output that is no terminal."""

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


class _Bar:
    """A progress bar on standard error."""

    def __init__(self) -> None:
        # rich is loaded only where a bar is shown.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("calling", total=None)
        self._progress.start()

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show a status, and how much is done."""
        self._progress.update(self._task, description=one_line(text, 60), completed=done, total=total)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


def open_display() -> ProgressDisplay:
    """A bar if standard error is a terminal, else nothing."""
    return _Bar() if sys.stderr.isatty() else _NoDisplay()


class ToolCall:
    """One call of a tool. `run` returns the result of the tool, or raises CallFailed.

    If `run` is cancelled, it cancels the call at the gateway first, within five seconds.
    """

    def __init__(self, host: McpHost, display: ProgressDisplay) -> None:
        self._host = host
        self._display = display
        self._changed = asyncio.Event()

    async def run(self, tool: str, arguments: Mapping[str, Any], *, as_task: bool) -> dict[str, Any]:
        """Call the tool; `as_task` asks the gateway for a task."""
        id = self._host.next_id()
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments), "_meta": {"progressToken": id}}
        if as_task:
            params["task"] = {}
        try:
            result = await self._host.request(id, TOOLS_CALL, params, self._on_notification)
        except asyncio.CancelledError:
            await self._cancel(self._host.notify("notifications/cancelled", {"requestId": id, "reason": "cancelled"}))
            raise
        task = result.get("task")
        if not as_task or not isinstance(task, dict) or not isinstance(task.get("taskId"), str):
            return result
        try:
            return await self._follow(task)
        except asyncio.CancelledError:
            params = {"taskId": task["taskId"]}
            await self._cancel(self._host.request(self._host.next_id(), TASKS_CANCEL, params))
            raise

    async def _follow(self, task: dict[str, Any]) -> dict[str, Any]:
        """Poll until the task ends, and fetch its result."""
        params = {"taskId": task["taskId"]}
        listening = asyncio.create_task(self._host.listen(self._on_notification))
        try:
            while task.get("status") not in _ENDED:
                self._display.show(str(task.get("statusMessage") or task.get("status")))
                await self._wait(_interval(task))
                task = await self._persist(TASKS_GET, params)
            return await self._persist(TASKS_RESULT, params)
        finally:
            listening.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await listening
            finally:
                del listening

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until a notification says that a task changed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _persist(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request about a task, again after failures that may pass: the task lives on."""
        for failures in range(_MAX_FAILED_POLLS):
            try:
                return await self._host.request(self._host.next_id(), method, params, self._on_notification)
            except CallFailed as failed:
                if not failed.is_transient or failures == _MAX_FAILED_POLLS - 1:
                    raise
                self._display.show(str(failed))
            await asyncio.sleep(min(0.2 * 2**failures, 5.0))
        raise AssertionError("the last failure is raised above")

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/progress":
            done, total, message = params.get("progress"), params.get("total"), params.get("message")
            self._display.show(
                message if isinstance(message, str) and message else "running", _number(done), _number(total)
            )
        elif method == _STATUS_NOTIFICATION and params.get("status") in _ENDED:
            self._changed.set()

    async def _cancel(self, request: Any) -> None:
        """Await a cancellation, for a bounded time; a failure does not matter any more."""
        self._display.show("cancelling")
        with suppress(CallFailed, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await request


def call_tool(
    upstream: str,
    tool: str,
    pairs: tuple[str, ...],
    args_json: str | None,
    file: Path | None,
    url: str | None,
    token_file: Path | None,
    as_task: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Call a tool, print its result and end with the status; the options are those of the command."""
    endpoint = _endpoint(upstream, file, url)
    try:
        token = None if token_file is None else read_token(token_file)
        arguments = {} if args_json is None else read_arguments(args_json)
    except (TokenFileInvalid, ArgumentInvalid) as wrong:
        raise click.UsageError(str(wrong)) from None
    try:
        result = asyncio.run(_call(endpoint, token, tool, arguments, pairs, as_task=as_task, timeout=timeout))
    except ArgumentInvalid as wrong:
        raise click.UsageError(str(wrong)) from None
    except CallFailed as failed:
        fail(CallFailed(one_line(str(failed), _MAX_ERROR)), FAILED)
    except TimeoutError:
        click.echo(f"taskgate: no result within {timeout:g} s: the call was cancelled", err=True)
        sys.exit(TIMED_OUT)
    except KeyboardInterrupt:
        click.echo("taskgate: the call was cancelled", err=True)
        sys.exit(INTERRUPTED)
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
    click.echo(json_text(result) if as_json else _text(result))
    if result.get("isError") is True:
        sys.exit(TOOL_FAILED)


async def _call(
    endpoint: str,
    token: str | None,
    tool: str,
    arguments: dict[str, Any],
    pairs: tuple[str, ...],
    *,
    as_task: bool,
    timeout: float | None,
) -> dict[str, Any]:
    running = asyncio.current_task()
    assert running is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    display = open_display()
    try:
        async with asyncio.timeout(timeout), open_host(endpoint, token) as host:
            if pairs:
                arguments |= read_typed(pairs, await _input_schema(host, tool))
            return await ToolCall(host, display).run(tool, arguments, as_task=as_task)
    finally:
        display.close()
        del running


async def _input_schema(host: McpHost, tool: str) -> dict[str, Any]:
    """The input schema of a tool, empty if it has none. Raises ArgumentInvalid if it is not listed."""
    cursor: Any = None
    for _ in range(_MAX_PAGES):
        params = {} if cursor is None else {"cursor": cursor}
        page = await host.request(host.next_id(), TOOLS_LIST, params)
        for each in page.get("tools") or ():
            if isinstance(each, dict) and each.get("name") == tool:
                schema = each.get("inputSchema")
                return schema if isinstance(schema, dict) else {}
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    raise ArgumentInvalid(f"the server lists no tool {tool}; give its arguments with --args-json")


def _interval(task: Mapping[str, Any]) -> float:
    """The advised seconds until the next poll."""
    advised = _number(task.get("pollInterval"))
    return _DEFAULT_INTERVAL if advised is None else min(max(advised / 1000, _MIN_INTERVAL), _MAX_INTERVAL)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# --- the address ----------------------------------------------------------------------------------------------------


def _endpoint(upstream: str, file: Path | None, url: str | None) -> str:
    """The URL of an upstream: one itself, a path, or a name in a configuration."""
    if "://" in upstream:
        return _checked("UPSTREAM", upstream)
    base, path = (None, upstream) if file is None else _from_configuration(file, upstream)
    if not path.startswith("/"):
        raise click.UsageError(
            "UPSTREAM must be a URL, a path such as /mcp, or with --config FILE the name of an upstream."
        )
    return _checked("--url", url or base or DEFAULT_URL).rstrip("/") + path


def _from_configuration(file: Path, upstream: str) -> tuple[str, str]:
    """The base URL of the gateway with that configuration, and the path of an upstream of it."""
    import os

    from taskgate import config as settings

    try:
        config = settings.load(file, os.environ)
    except settings.ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    listen, public = config.server.listen, config.server.public_url
    if public is not None and not listen.is_loopback:
        base = public
    else:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen.host)  # noqa: S104 - compared, not bound
        scheme = "http" if config.server.tls.cert_file is None else "https"
        base = f"{scheme}://{listen}" if host is None else f"{scheme}://{host}:{listen.port}"
    if upstream.startswith("/"):
        return base, upstream
    if upstream not in config.upstreams:
        raise click.UsageError(f"UPSTREAM must be one of {', '.join(config.upstreams)}, a path or a URL.")
    return base, config.upstreams[upstream].path


def _checked(option: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise click.UsageError(f"{option} must be an http or https URL without a user name.")
    return url


# --- the result -----------------------------------------------------------------------------------------------------


def _text(result: Mapping[str, Any]) -> str:
    """A result for people: its text, else its structured content; of anything else a short note."""
    blocks = result.get("content")
    lines = [_block(each) for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
    if not lines and "structuredContent" in result:
        return json_text(result["structuredContent"])
    return "\n".join(lines)


def _block(block: Mapping[str, Any]) -> str:
    kind, resource = block.get("type"), block.get("resource")
    if kind == "text":
        return clean(str(block.get("text", "")))
    if kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return clean(resource["text"])
    if kind in ("resource", "resource_link"):
        uri = resource.get("uri") if isinstance(resource, dict) else block.get("uri")
        return one_line(f"[{kind} {uri}]")
    data = block.get("data")
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return one_line(f"[{kind} {block.get('mimeType')}, {size} bytes; --json prints it]")
