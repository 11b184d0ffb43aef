"""Tasks that servers of either era make of calls: `TaskFollower` follows one to its end.

    begin      the listener gets a resume point
    wait       until the task changes, or something is due
    step       what the era does: answers to questions, the request for the result, a poll
    poll       `tasks/get`, at the interval that the server asks for; failed polls are repeated
    end        what still runs for the task is stopped

The story is here. `legacy.server_tasks` and `modern.server_tasks` have what differs between the eras:
how questions and the result of a task travel, and what a failure means. `LateAnswers` waits for the
answer of a call that was given up. Only the answer has the id of the task, which its cancellation
needs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import ServerTask
from taskgate.system.background import cancel_and_wait
from taskgate.upstream import failures
from taskgate.upstream.pauses import POLL_PAUSE_MOST, PollSchedule

PERMANENT: Final = frozenset(
    {UpstreamReason.MALFORMED.value, UpstreamReason.TOO_LARGE.value, UpstreamReason.REDIRECT.value}
)
"""Reasons of failures that a retry would meet again; others may be temporary."""


class TaskFollower(ABC):
    """Follower of one task. `id` is its id at the server; `woken` ends a wait when it is set.

    Its whole life is one call of `response`, which is cancelled if the call is given up.
    """

    def __init__(self, id: str, woken: asyncio.Event) -> None:
        self.id = id
        self.is_settled = False
        """Whether the task needs no cancellation: it has ended, or the server does not know it."""
        self._woken = woken
        self._schedule = PollSchedule(id)
        # Loop times of the last poll, and of the next one.
        self._polled_at = self._poll_due = asyncio.get_running_loop().time()

    async def response(self) -> Response:
        """Follow the task and return the response of its call. Raises UpstreamFailed: Gone if the
        server does not know the task."""
        try:
            self._begin()
            while True:
                await self._wait()
                response = await self._step()
                if response is not None:
                    return response
        finally:
            await self._end()

    async def _wait(self) -> None:
        """Wait until there may be something to do."""
        due = self._due()
        timer = None if due is None else asyncio.get_running_loop().call_at(due, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            self._woken.clear()
            if timer is not None:
                timer.cancel()

    async def _poll(self) -> Response | None:
        """Ask for the state of the task and take it; plan a retry if that fails.

        Returns the response of the call if the state has it. Raises UpstreamFailed if the server does
        not have the task, or a further poll is useless.
        """
        state: ServerTask | None = None
        failed: UpstreamFailed | None = None
        try:
            state = await self._ask_for_state()
        except UpstreamFailed as failure:
            if self.is_settled:
                raise
            failed = failure
        self._polled_at = self._now()
        if state is None:
            self._plan_retry(failed)
            return None
        response = self._take_state(state)
        self._poll_due = self._polled_at + self._schedule.after(self._interval)
        return response

    def _plan_retry(self, failure: UpstreamFailed | None) -> None:
        """Plan a poll after a failed request; `failure` is None if its answer was an error.

        Raises UpstreamFailed where a poll is useless: it would fail again, or requests have failed for
        too long.
        """
        if failure is not None and failure.reason in PERMANENT:
            raise failures.sent(failure) from failure
        now = self._now()
        # Without a valid token nothing was sent, so that does not count as a failing server. The
        # caller may send a new token as long as the call has time.
        was_made = not isinstance(failure, failures.StaleToken)
        pause = self._schedule.after_failure(self._interval, now, was_made=was_made)
        if pause is None:
            raise self._lost_sight(failure)
        if failure is not None and failure.retry_after is not None:
            # A poll costs little, and its result may be ready long before.
            pause = max(pause, min(failure.retry_after.total_seconds(), POLL_PAUSE_MOST))
        self._poll_due = now + pause

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- what differs between the eras --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _interval(self) -> float | None:
        """The seconds between two polls that the server asks for; None if it asks for none."""

    @abstractmethod
    def _begin(self) -> None:
        """Take the first state of the task."""

    @abstractmethod
    def _due(self) -> float | None:
        """Return the loop time of the next thing to do; None if only a change of the task brings one."""

    @abstractmethod
    async def _step(self) -> Response | None:
        """Do what is due; return the response of the call if there is one."""

    @abstractmethod
    async def _ask_for_state(self) -> ServerTask | None:
        """Send `tasks/get`; return the state in the answer, None for an error that says nothing.

        Raises UpstreamFailed. If the server does not know the task, the task is settled, and Gone is
        raised.
        """

    @abstractmethod
    def _take_state(self, state: ServerTask) -> Response | None:
        """Store a state that a poll shows; return the response of the call if the state has it."""

    @abstractmethod
    def _lost_sight(self, failure: UpstreamFailed | None) -> UpstreamFailed:
        """Return the failure of the call when requests about its task have failed for too long."""

    @abstractmethod
    async def _end(self) -> None:
        """Stop what still runs for the task."""


class LateAnswers:
    """First answers to calls that may become tasks, awaited for a short time after a call was given up."""

    def __init__(self) -> None:
        self.awaited: set[asyncio.Task[Response]] = set()
        """The requests without an answer, of calls that still run or were given up."""
        self._late: set[asyncio.Task[Response]] = set()

    async def first(
        self,
        request: Coroutine[Any, Any, Response],
        *,
        patience: float,
        given_up: Callable[[], bool],
        came: Callable[[Response | None], None],
    ) -> Response:
        """Await `request`, which sends a call, and return its answer. Raises UpstreamFailed.

        If this is cancelled, `given_up` is called, and returns whether a late answer matters. Then the
        request stays open for `patience` seconds. At its end `came` is called, with the answer if
        there is one.
        """
        loop = asyncio.get_running_loop()
        answer = loop.create_task(request)
        self.awaited.add(answer)
        answer.add_done_callback(self.awaited.discard)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._late.add(answer)
            timer = loop.call_later(patience, answer.cancel)
            answer.add_done_callback(partial(self._ended, timer, came))
            if not given_up():
                answer.cancel()
            raise
        finally:
            del answer

    async def close(self) -> None:
        """Stop to wait for late answers."""
        await cancel_and_wait(*self._late)

    def _ended(
        self, timer: asyncio.TimerHandle, came: Callable[[Response | None], None], answer: asyncio.Task[Response]
    ) -> None:
        timer.cancel()
        self._late.discard(answer)
        came(None if answer.cancelled() or answer.exception() is not None else answer.result())
