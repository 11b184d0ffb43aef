"""Attribution of a server's questions to calls, in one conversation: `Attribution`.

A question belongs to the call on whose stream it came, or to the call that became the task that it
names. A server may ask for a task before the gateway has read the answer that ties the task to a
call. Such a question waits for that answer, at most `PATIENCE`. Each question is passed to `hear`
once, at once or after its wait, unless it is withdrawn before. `Conversation` then gives it to the
listener of the call; from there on `questions` has it.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from taskgate.domain.record import RequestId
from taskgate.protocol.server_messages import ReceivedQuestion
from taskgate.upstream.calls import Call
from taskgate.upstream.legacy.followed import FollowedCalls, TaskCall
from taskgate.upstream.legacy.questions import MAX_OPEN

PATIENCE: Final = 2.0
"""Seconds that a question waits until it is known which calls became tasks."""


class Hear(Protocol):
    """Callback for a question and the call that it is for, None if it is for none.

    `came_aside`: it came outside of the call's stream. `guessed`: nothing tells which call it is
    for, and `call` is one of several that it may be for.
    """

    def __call__(self, asked: ReceivedQuestion, call: Call | None, *, came_aside: bool, guessed: bool) -> None: ...


class _WaitingQuestion(NamedTuple):
    """A question that waits; `making` are the ids of calls that may become its task.

    `timer` ends the wait.
    """

    asked: ReceivedQuestion
    making: frozenset[int]
    timer: asyncio.TimerHandle


class Attribution:
    """Questions of one conversation, until the call of each is known.

    `calls` are the requests that wait for their answers now, by id. `followed` has the calls that
    became tasks. `hear` receives each question. `session_asks` returns whether the listener of the
    session can be asked a question that belongs to no call.
    """

    def __init__(
        self, calls: Mapping[int, Call], followed: FollowedCalls, hear: Hear, session_asks: Callable[[], bool]
    ) -> None:
        self._calls = calls
        self._followed = followed
        self._hear = hear
        self._session_asks = session_asks
        self._waiting: dict[RequestId, _WaitingQuestion] = {}

    def take(self, asked: ReceivedQuestion, call: Call | None) -> None:
        """Pass a question to `hear`, now or after a wait.

        `call` is the call on whose stream it came, if any. With MAX_OPEN questions waiting, it does
        not wait.
        """
        if call is None and self._must_wait(asked.task) and len(self._waiting) < MAX_OPEN:
            self._wait(asked)
        else:
            self._pass_on(asked, call)

    def of(self, call: Call | None, task: str | None) -> Call | None:
        """Return the call that a question is for; None if nothing tells.

        The task that it names decides, else the stream on which it came. A question outside of any
        stream is for the only call with a listener. It is for none if it names an unknown task, and
        that call became another one.
        """
        named = None if task is None else self._followed.of_task(task)
        if named is not None or call is not None:
            return named or (call and self._followed.whole(call))
        candidates = self._candidates()
        is_another = task is not None and isinstance(candidates[0] if candidates else None, TaskCall)
        return candidates[0] if len(candidates) == 1 and not is_another else None

    def look_again(self) -> None:
        """Pass on the questions whose wait is over.

        Called whenever it becomes known of a call that it became a task, or that it did not.
        """
        for id_, waiting in tuple(self._waiting.items()):
            # The second condition: every call is decided that might have become its task.
            if not self._must_wait(waiting.asked.task) or not waiting.making & self._followed.undecided:
                self._release(id_)

    def withdraw(self, id: RequestId) -> None:
        """Forget a waiting question, which the server withdrew; others are ignored."""
        waiting = self._waiting.pop(id, None)
        if waiting is not None:
            waiting.timer.cancel()

    def end(self) -> None:
        """Forget all waiting questions: the conversation is over."""
        for id_ in tuple(self._waiting):
            self.withdraw(id_)

    def _candidates(self) -> list[Call]:
        """Return the calls that can be asked."""
        return [call for call in (*self._calls.values(), *self._followed) if call.listener is not None]

    def _must_wait(self, task: str | None) -> bool:
        """Whether only an answer that is not yet read can tell whose task this is."""
        making = frozenset(self._followed.undecided)
        if task is None or not making or self._followed.of_task(task) is not None:
            return False
        # A single call does not wait: its server may answer it only after the question was
        # answered.
        return len(self._candidates()) > 1

    def _wait(self, asked: ReceivedQuestion) -> None:
        """Let a question wait until `look_again` or its timer releases it."""
        if asked.id not in self._waiting:
            timer = asyncio.get_running_loop().call_later(PATIENCE, partial(self._release, asked.id))
            self._waiting[asked.id] = _WaitingQuestion(asked, frozenset(self._followed.undecided), timer)

    def _release(self, id: RequestId) -> None:
        """End the wait of a question, and pass it on."""
        asked = self._waiting[id].asked
        self.withdraw(id)
        self._pass_on(asked, None)

    def _pass_on(self, asked: ReceivedQuestion, call: Call | None) -> None:
        """Call `hear` with the question and the call that it is for, as far as known now."""
        found = self.of(call, asked.task)
        candidates = self._candidates() if found is None and not self._session_asks() else []
        # All calls have the same caller; the newest one is asked rather than none.
        newest = max(candidates, key=lambda one: one.id) if candidates else None
        self._hear(asked, found or newest, came_aside=call is None, guessed=newest is not None)
