"""Which call a question of a server is for, in one conversation; one that cannot be told yet is kept until it can.

A server may ask for a task before its answer, which says of which call it made that, was read. What must not live here:
who is asked (whoever hears the call decides), and what is open (`questions`).
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from taskgate.domain.record import RequestId
from taskgate.protocol.questions import ReceivedQuestion
from taskgate.upstream.calls import Call
from taskgate.upstream.legacy.followed import FollowedCalls, TaskCall
from taskgate.upstream.legacy.questions import MAX_OPEN

PATIENCE: Final = 2.0
"""Seconds that a question is kept for answers which are on their way."""


class Hear(Protocol):
    """Told of a question, and of the call that it is for: None where it is for none.

    `guessed` tells that it may be for another call as well.
    """

    def __call__(self, asked: ReceivedQuestion, call: Call | None, *, came_aside: bool, guessed: bool) -> None: ...


class _Kept(NamedTuple):
    asked: ReceivedQuestion
    making: frozenset[int]
    patience: asyncio.TimerHandle


class Attribution:
    """That of one conversation: `calls` wait for their answers in it, and `followed` are tasks of its server.

    `session_asks` tells whether the session itself can be asked what belongs to no call.
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
        """Have a question heard, now or in a moment; `call` is the one on whose stream it came, if any."""
        if call is None and self._will_be_told(asked.task) and len(self._kept) < MAX_OPEN:
            self._keep(asked)
        else:
            self._tell(asked, call)

    def of(self, call: Call | None, task: str | None) -> Call | None:
        """The call that a question is for: that of the task which it names, or the one on whose stream it came.

        One that came on none is for the only call that can be asked, unless that is known to be another task.
        """
        named = None if task is None else self._followed.of_task(task)
        if named is not None or call is not None:
            return named or (call and self._followed.whole(call))
        heard = self._hearing()
        is_another = task is not None and isinstance(heard[0] if heard else None, TaskCall)
        return heard[0] if len(heard) == 1 and not is_another else None

    def look_again(self) -> None:
        """It turned out of what a task was made, or that none was."""
        for id_, kept in tuple(self._kept.items()):
            if not self._will_be_told(kept.asked.task) or not kept.making & self._followed.making:
                self._let_go(id_)

    def withdraw(self, id: RequestId) -> None:
        """The server does not wait any more for what it asked under that id."""
        kept = self._kept.pop(id, None)
        if kept is not None:
            kept.patience.cancel()

    def end(self) -> None:
        """The conversation is over, and nobody is asked any more."""
        for id_ in tuple(self._kept):
            self.withdraw(id_)

    def _hearing(self) -> list[Call]:
        return [call for call in (*self._calls.values(), *self._followed) if call.listener is not None]

    def _will_be_told(self, task: str | None) -> bool:
        """Whether an answer that is on its way may say whose task that is, and nothing else does."""
        making = self._followed.making
        if task is None or not making or self._followed.of_task(task) is not None:
            return False
        # The only call there is, is not kept waiting: its server may answer it only once it is told.
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
        # All of them are of one caller, who is shown it with the newest rather than not at all.
        newest = max(heard, key=lambda one: one.id) if heard else None
        self._hear(asked, found or newest, came_aside=call is None, guessed=newest is not None)
