"""Attribution of a server's questions to calls, in one conversation: `Attribution`.

A question belongs to the call on whose stream it came, or to the call of the task that it names. A
server may ask for a task before the gateway has read the answer that ties the task to a call. Such
a question waits for that answer, at most `PATIENCE`. `Conversation` then asks the listener of the
call; `questions` has the open ones.
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
"""Seconds that a question waits for answers which are under way."""


class Hear(Protocol):
    """Callback for a question and the call that it is for, None if it is for none.

    `came_aside`: it came outside of the call's stream. `guessed`: it may be for another call as
    well.
    """

    def __call__(self, asked: ReceivedQuestion, call: Call | None, *, came_aside: bool, guessed: bool) -> None: ...


class _Kept(NamedTuple):
    """A question that waits; `making` are the ids of calls that may become its task."""

    asked: ReceivedQuestion
    making: frozenset[int]
    patience: asyncio.TimerHandle


class Attribution:
    """The questions of one conversation.

    `calls` wait for their answers in it, `followed` are calls that became tasks. `session_asks`
    tells whether the session itself can be asked what belongs to no call.
    """

    def __init__(
        self, calls: Mapping[int, Call], followed: FollowedCalls, hear: Hear, session_asks: Callable[[], bool]
    ) -> None:
        self._calls = calls
        self._followed = followed
        self._hear = hear
        self._session_asks = session_asks
        self._kept: dict[RequestId, _Kept] = {}

    def take(self, asked: ReceivedQuestion, call: Call | None) -> None:
        """Pass a question on, now or after a wait; `call` is the one on whose stream it came, if
        any."""
        if call is None and self._will_be_told(asked.task) and len(self._kept) < MAX_OPEN:
            self._keep(asked)
        else:
            self._tell(asked, call)

    def of(self, call: Call | None, task: str | None) -> Call | None:
        """Return the call that a question is for: by its task, else by the stream on which it came.

        A question outside of any stream is for the only call that can be asked, unless that is
        known to be another task.
        """
        named = None if task is None else self._followed.of_task(task)
        if named is not None or call is not None:
            return named or (call and self._followed.whole(call))
        heard = self._hearing()
        is_another = task is not None and isinstance(heard[0] if heard else None, TaskCall)
        return heard[0] if len(heard) == 1 and not is_another else None

    def look_again(self) -> None:
        """Decide waiting questions again: a call turned out to be a task, or not to be one."""
        for id_, kept in tuple(self._kept.items()):
            if not self._will_be_told(kept.asked.task) or not kept.making & self._followed.making:
                self._let_go(id_)

    def withdraw(self, id: RequestId) -> None:
        """Forget a waiting question: the server withdrew it."""
        kept = self._kept.pop(id, None)
        if kept is not None:
            kept.patience.cancel()

    def end(self) -> None:
        """Forget all waiting questions: the conversation is over."""
        for id_ in tuple(self._kept):
            self.withdraw(id_)

    def _hearing(self) -> list[Call]:
        return [call for call in (*self._calls.values(), *self._followed) if call.listener is not None]

    def _will_be_told(self, task: str | None) -> bool:
        """Whether an answer under way may say whose task this is, and nothing else does."""
        making = self._followed.making
        if task is None or not making or self._followed.of_task(task) is not None:
            return False
        # A single call does not wait: its server may answer it only after the question was
        # answered.
        return len(self._hearing()) > 1

    def _keep(self, asked: ReceivedQuestion) -> None:
        if asked.id not in self._kept:
            patience = asyncio.get_running_loop().call_later(PATIENCE, partial(self._let_go, asked.id))
            self._kept[asked.id] = _Kept(asked, self._followed.making, patience)

    def _let_go(self, id: RequestId) -> None:
        asked = self._kept[id].asked
        self.withdraw(id)
        self._tell(asked, None)

    def _tell(self, asked: ReceivedQuestion, call: Call | None) -> None:
        found = self.of(call, asked.task)
        heard = self._hearing() if found is None and not self._session_asks() else []
        # All calls have the same caller; the newest one is asked rather than none.
        newest = max(heard, key=lambda one: one.id) if heard else None
        self._hear(asked, found or newest, came_aside=call is None, guessed=newest is not None)
