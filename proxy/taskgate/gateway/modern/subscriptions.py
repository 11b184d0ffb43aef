"""The streams of `subscriptions/listen`: `Subscriptions`.

A modern host names in one request what it wants notifications of: list changes, resources, tasks.
The answer is an event stream (`ListenStream`). It starts with an acknowledgement of what is
granted, and only that is sent afterwards (M-NOTIF-2, M-NOTIF-7). The stream ends when the host
disconnects or its token expires, or with the gateway (`finish`).

`ModernAdapter` calls `serve`. `task_watcher` watches tasks, `resource_subscriptions` subscribes at
servers.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from taskgate.admission.access import AccessControl
from taskgate.admission.lookups import Lookups
from taskgate.admission.polls import PollLimiter
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import RequestId, TaskId, TaskRecord, with_grown_ttl
from taskgate.domain.versions import Era
from taskgate.errors import Draining, Forbidden, InsufficientScope, InvalidParams, TaskNotFound
from taskgate.gateway.get_streams import LONGEST_TIMER
from taskgate.gateway.modern.resource_subscriptions import ResourceSubscriptions
from taskgate.gateway.modern.task_watcher import TaskWatcher
from taskgate.jsontext.large import MessageText
from taskgate.jsontext.spans import members
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.protocol import vocabulary as words
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.faults import RETRY_AFTER
from taskgate.protocol.host_requests import Listen, Subscription
from taskgate.protocol.messages import Notification
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.sessions.session_pool import SharedSession
from taskgate.stores.base import TaskStore
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.streams.sse_connection import QUEUE_BYTES
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled

LARGE: Final = QUEUE_BYTES // 16
"""Characters above which a message may exceed the queue of the stream.

Otherwise such a message would end the stream, and again each time that the host reconnects.
"""
MAX_TASKS: Final = 1000
MAX_RESOURCES: Final = 256
MAX_URI: Final = 2048
"""The limits of one request: tasks, resources, and characters of a URI."""


class ListenStream:
    """The answer to one request, as an event stream. `until` is when the request's token expires,
    None if it does not.

    Notifications are sent with `send`, inside the block `serving`. The block ends when the host
    disconnects or is too slow, when the token of the request expires, or when `end` is called.
    After the token has expired, nothing more is sent (T9).
    """

    def __init__(self, exchange: Exchange, until: datetime | None, clock: Clock) -> None:
        self._exchange = exchange
        self._feed = exchange.stream()
        self._until = until
        self._clock = clock
        self._work = CancelScope()
        self.has_begun = False
        """Whether a message was sent."""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The block in which the stream is served; entered once.

        Whatever ends the stream cancels the block, which then raises ScopeCancelled.
        """
        expiry: asyncio.TimerHandle | None = None
        with self._work:
            if self._until is not None:
                left = (self._until - self._clock.wall()).total_seconds()
                expiry = asyncio.get_running_loop().call_later(min(left, LONGEST_TIMER), self.end)
            self._feed.on_connection_lost(self.end)
            self._exchange.on_disconnect(self.end)
            try:
                yield
            finally:
                if expiry is not None:
                    expiry.cancel()

    def end(self) -> None:
        """Cancel the block `serving`. Does nothing after its end."""
        self._work.cancel()

    def send(self, message: MessageText) -> None:
        """Send a message. If too much is queued for a slow host, the stream ends."""
        if self._until is not None and self._clock.wall() >= self._until:
            self.end()
            return
        self.has_begun = True
        if len(message) > LARGE and not self._feed.is_congested:
            self._feed.send_answer(message)
        else:
            self._feed.send(message)

    async def wait_for_room(self) -> None:
        """Wait until the host has read enough of what is queued; returns at once if little is."""
        room = self._feed.backpressure()
        if room is not None:
            await room


class _Found(NamedTuple):
    """The requested tasks that exist for the caller, and their watchers.

    The watchers remember a position from before the look-up, so that no change is lost.
    """

    ids: tuple[TaskId, ...]
    watchers: tuple[TaskWatcher, ...]


class Subscriptions:
    """The open streams of this process."""

    def __init__(
        self,
        *,
        dialect: ModernDownstream,
        store: TaskStore,
        lookups: Lookups,
        access: AccessControl,
        polls: PollLimiter,
        retrievals: Retrievals,
        clock: Clock,
    ) -> None:
        self._dialect = dialect
        self._store = store
        self._lookups = lookups
        self._access = access
        self._polls = polls
        self._retrievals = retrievals
        self._clock = clock
        self._resources = ResourceSubscriptions()
        self._streams: set[ListenStream] = set()
        self._finishing = False

    async def serve(self, exchange: Exchange, caller: AuthContext, session: SharedSession, intent: Listen) -> HttpReply:
        """Serve a stream until the host disconnects, its token expires, or the gateway shuts down.

        The reply is the last event of the stream (M-NOTIF-6). Raises InvalidParams for a request
        out of bounds, Draining, Penalized for naming too many tasks of others, StoreUnavailable,
        UpstreamFailed. Raises ScopeCancelled if the host or the token is gone before the first
        message: no result precedes the acknowledgement.
        """
        if not exchange.head.accepts_stream:
            raise InvalidParams("The answer is an event stream: the request must accept text/event-stream")
        _check_bounds(intent.wants)
        found = await self._find(exchange, caller, session.mount.name, intent.wants.tasks or ())
        if self._finishing:
            raise Draining(RETRY_AFTER)
        stream = ListenStream(exchange, caller.expires_at, self._clock)
        self._streams.add(stream)
        try:
            with session, stream.serving():
                await self._send_notifications(stream, caller, session, intent, found)
        except ScopeCancelled:
            # A stream that has begun ends with its result below.
            if not stream.has_begun:
                if self._finishing:
                    raise Draining(RETRY_AFTER) from None
                raise
        finally:
            self._streams.discard(stream)
        return HttpReply(body=self._dialect.subscription_ended(intent.id))

    def finish(self) -> None:
        """End every stream with its result, and refuse new ones; called when the gateway ends."""
        self._finishing = True
        for stream in self._streams:
            stream.end()

    async def close(self) -> None:
        """End the streams, and cancel the requests to servers."""
        self.finish()
        await self._resources.close()

    async def _find(self, exchange: Exchange, caller: AuthContext, mount: str, wanted: tuple[TaskId, ...]) -> _Found:
        """Find the tasks that the caller may read.

        The others count as failed look-ups. The host cannot tell why they are missing.
        """
        if not wanted:
            return _Found((), ())
        watchers = {
            owner: await TaskWatcher.begin(owner, store=self._store, dialect=self._dialect, clock=self._clock)
            for owner in caller.owners(mount)
        }
        ids: list[TaskId] = []
        for task in wanted:
            with suppress(TaskNotFound, Forbidden, InsufficientScope):
                record = await self._lookups.find(exchange, caller, mount, task, words.TASKS_GET)
                watchers[record.owner].add(task)
                ids.append(task)
        return _Found(tuple(ids), tuple(watchers.values()))

    async def _send_notifications(
        self, stream: ListenStream, caller: AuthContext, session: SharedSession, intent: Listen, found: _Found
    ) -> None:
        """Send the acknowledgement, then notifications, until the stream's block is cancelled."""
        with ExitStack() as stack:
            granted = await self._grant(caller, session, intent.wants, found, stack)
            stream.send(self._dialect.subscription_granted(intent.id, granted))
            of_extensions = session.mount.extensions.notifications_of(granted.filters)
            on_notification = partial(self._on_notification, stream, intent.id, granted, of_extensions)
            session.subscribe(on_notification)
            stack.callback(session.unsubscribe, on_notification)
            send_task = partial(self._send_task, stream, intent.id)
            async with asyncio.TaskGroup() as group:
                for watcher in found.watchers:
                    group.create_task(watcher.watch(send_task))
                # For ever, also when all tasks have ended: the host ends its stream (AMB-13).
                await asyncio.get_running_loop().create_future()

    async def _grant(
        self, caller: AuthContext, session: SharedSession, wants: Subscription, found: _Found, stack: ExitStack
    ) -> Subscription:
        """Subscribe at the server, and return what is granted.

        The exit of `stack` ends the subscriptions at the server. Raises UpstreamFailed.
        """
        tasks = None if wants.tasks is None else found.ids
        if not _concerns_server(wants):
            return Subscription(resource_uris=wants.resource_uris, tasks=tasks)
        server = await session.upstream.open()
        has = _declares(server)
        agreed = []
        for uri in self._permitted(caller, session, wants) if has("resources", "subscribe") else ():
            if await self._resources.join(session, uri, caller):
                stack.callback(self._resources.part, session, uri)
                agreed.append(uri)
        changes = await _granted_changes(session, has, wants)
        return Subscription(
            tools="toolsListChanged" in changes,
            prompts="promptsListChanged" in changes,
            resources="resourcesListChanged" in changes,
            resource_uris=tuple(agreed) or None,
            tasks=tasks,
            filters=_granted_filters(session, server, wants),
        )

    def _permitted(self, caller: AuthContext, session: SharedSession, wants: Subscription) -> tuple[str, ...]:
        """Return the resources that the caller may subscribe to.

        The access rules for `resources/subscribe` apply.
        """
        if wants.resource_uris:
            with suppress(Forbidden, InsufficientScope):
                self._access.check(caller, session.mount.name, words.RESOURCES_SUBSCRIBE)
                return wants.resource_uris
        return ()

    def _on_notification(
        self,
        stream: ListenStream,
        id: RequestId,
        granted: Subscription,
        of_extensions: frozenset[str],
        notification: Notification,
    ) -> None:
        """Send a notification of the server on the stream, if it was granted."""
        if _is_granted(granted, notification) or notification.method in of_extensions:
            stream.send(self._dialect.stream_notification(id, notification))

    async def _send_task(self, stream: ListenStream, id: RequestId, record: TaskRecord) -> None:
        """Send the state of a task, and note that its host has seen it."""
        await stream.wait_for_room()
        shown = with_grown_ttl(record, self._clock.now())
        stream.send(self._dialect.task_notification(id, shown, self._polls.advise(record)))
        self._retrievals.note(record)


async def _granted_changes(
    session: SharedSession, has: Callable[[str, str], bool], wants: Subscription
) -> frozenset[str]:
    """Return the requested list changes that the server declares, or grants when it is asked."""
    kinds = (("tools", wants.tools), ("prompts", wants.prompts), ("resources", wants.resources))
    wanted = {f"{name}ListChanged": has(name, "listChanged") for name, is_wanted in kinds if is_wanted}
    declared = frozenset(flag for flag, is_declared in wanted.items() if is_declared)
    others = wanted.keys() - declared
    return declared | await session.upstream.listen_for(frozenset(others)) if others else declared


def _granted_filters(session: SharedSession, server: ServerDescription, wants: Subscription) -> tuple[str, ...]:
    """Return the requested members of extensions that the server grants (X-EXT-24)."""
    if not wants.filters:
        return ()
    declared = session.mount.extensions.filters(server.peer.capabilities, Era.MODERN, session.upstream.era)
    return tuple(sorted(session.upstream.grants(declared.intersection(wants.filters))))


def _check_bounds(wants: Subscription) -> None:
    """Raise InvalidParams for a request that exceeds the limits."""
    if len(wants.tasks or ()) > MAX_TASKS:
        raise InvalidParams(f"taskIds names more than {MAX_TASKS} tasks")
    uris = wants.resource_uris or ()
    if len(uris) > MAX_RESOURCES:
        raise InvalidParams(f"resourceSubscriptions names more than {MAX_RESOURCES} resources")
    if any(len(uri) > MAX_URI for uri in uris):
        raise InvalidParams(f"A URI in resourceSubscriptions is longer than {MAX_URI} characters")


def _concerns_server(wants: Subscription) -> bool:
    """Return whether the request wants any notification that the server has to send."""
    return wants.tools or wants.prompts or wants.resources or bool(wants.resource_uris) or bool(wants.filters)


def _declares(server: ServerDescription) -> Callable[[str, str], bool]:
    """Return a function of a capability and a flag: whether the server declares that capability
    with the flag set to true."""
    declared = members(server.capabilities)

    def has(capability: str, flag: str) -> bool:
        said = declared[capability].value if capability in declared else None
        return isinstance(said, dict) and said.get(flag) is True

    return has


def _is_granted(granted: Subscription, notification: Notification) -> bool:
    """Return whether a notification is of a granted kind, and about a granted resource (M-NOTIF-7)."""
    match notification.method:
        case words.NOTE_TOOLS_CHANGED:
            return granted.tools
        case "notifications/prompts/list_changed":
            return granted.prompts
        case "notifications/resources/list_changed":
            return granted.resources
        case "notifications/resources/updated":
            uri = notification.params["uri"].value if "uri" in notification.params else None
            return isinstance(uri, str) and any(_is_within(uri, asked) for asked in granted.resource_uris or ())
    return False


def _is_within(uri: str, asked: str) -> bool:
    """Return whether `uri` is the requested resource or a part of it: servers may send either."""
    return uri == asked or uri.startswith(asked if asked.endswith("/") else f"{asked}/")
