"""Questions of a server in one conversation: whose they are (`Attribution`), and the open ones (`Questions`).

A question belongs to the call on whose stream it came, or to the call that became the task that it
names. A server may ask for a task before the gateway has read the answer that ties the task to a
call. Such a question waits for that answer, at most `PATIENCE`. `Conversation` then registers it in
`Questions`, and gives the `OpenQuestion` to the listener of the call. It is open until it is answered
or withdrawn; the answer is posted in the background.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from taskgate.domain.record import RequestId
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer, Question, ReceivedQuestion
from taskgate.upstream.calls import Principal, RunningCall
from taskgate.upstream.legacy.task_calls import TaskCall, TaskCalls

MAX_OPEN: Final = 64
"""Questions that may be open in one conversation: more than any tool asks at once."""


class Say(Protocol):
    """A function that sends a message in the background."""

    def __call__(self, message: str, *, droppable: bool = False) -> None: ...


Reply = Callable[[str, Principal | None], None]
"""Sends an answer in the background, on behalf of a principal."""


class OpenQuestion:
    """A `ServerQuestion` of a legacy server. `call` is the call that it is asked for, None if there
    is none.

    `key` is its name for other processes: the server's id as JSON, None without a call.
    `came_aside`: it came outside of the call's stream. `guessed`: it may be for another call.
    """

    __slots__ = (
        "_id",
        "_questions",
        "_token",
        "_was_withdrawn",
        "_when_withdrawn",
        "asked",
        "call",
        "came_aside",
        "guessed",
        "key",
        "question",
    )  # fmt: skip

    def __init__(
        self,
        asked: ReceivedQuestion,
        questions: "Questions",
        call: RunningCall | None,
        *,
        came_aside: bool,
        guessed: bool,
    ) -> None:
        self.asked = asked
        self.question = asked.question
        self.key = None if call is None else json.dumps(asked.id)
        self.call = call
        self.came_aside = came_aside
        self.guessed = guessed
        self._id = asked.id
        self._token = asked.progress_token
        # None once it is no longer open.
        self._questions: Questions | None = questions
        self._when_withdrawn: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        return self._questions is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        questions, self._questions = self._questions, None
        if questions is not None:
            self._when_withdrawn = []
            questions.answered(self._id, answer, principal)

    def refuse(self) -> None:
        if self._questions is not None:
            self.answer(self._questions.no_answer(self.question.method))

    def tell(self, notification: Notification) -> None:
        if self._questions is not None and self._token is not None:
            self._questions.tell(notification, self._token)

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        if self._questions is not None:
            self._when_withdrawn.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Close the question without an answer, and tell those who asked by `when_withdrawn`."""
        self._questions, self._was_withdrawn = None, True
        callbacks, self._when_withdrawn = self._when_withdrawn, []
        for forget in callbacks:
            forget()


class Questions:
    """The open questions of one conversation."""

    def __init__(self, dialect: LegacyUpstream, say: Say, reply: Reply) -> None:
        self._dialect = dialect
        self._say = say
        self._reply = reply
        self.open: dict[RequestId, OpenQuestion] = {}
        """The open questions, by the server's ids."""

    def ask(
        self, asked: ReceivedQuestion, call: RunningCall | None, *, came_aside: bool, guessed: bool = False
    ) -> OpenQuestion | None:
        """Register a question and return it.

        None if it is open already, or if MAX_OPEN are: then it is refused at the server.
        """
        if asked.id in self.open:
            # Repeated by a stream that was reopened; the first one will be answered.
            return None
        if len(self.open) >= MAX_OPEN:
            refusal = self._dialect.default_answer(asked.question.method)
            self._say(self._dialect.answer(asked.id, refusal), droppable=True)
            return None
        question = self.open[asked.id] = OpenQuestion(asked, self, call, came_aside=came_aside, guessed=guessed)
        if call is not None:
            call.asks(1)
        return question

    def answered(self, id: RequestId, answer: Answer, principal: Principal | None) -> None:
        """Send the answer to an open question, and forget the question. `OpenQuestion` calls it."""
        self._remove(id)
        self._reply(self._dialect.answer(id, answer), principal)

    def no_answer(self, method: str) -> Answer:
        """Return the answer to a question of this method for a host that gave none."""
        return self._dialect.default_answer(method)

    def tell(self, notification: Notification, token: RequestId) -> None:
        """Send the host's progress on a question."""
        self._say(self._dialect.notification(notification, token), droppable=True)

    def withdraw(self, id: RequestId) -> None:
        """Withdraw a question: the server no longer waits. An unknown id is ignored."""
        question = self._remove(id)
        if question is not None:
            question.withdraw()

    def hand_over(self, call: RunningCall, whole: RunningCall) -> None:
        """Move the open questions of a call that became a task to `whole`, its `TaskCall`."""
        for question in self.open.values():
            if question.call is call:
                question.call = whole
                whole.asks(1)

    def end_of(self, call: RunningCall, *, is_left: bool) -> list[ReceivedQuestion]:
        """Withdraw the questions of a call that is over; return those that may be for another call.

        A question outside of the call's stream does not end with the call for its server, so it is
        refused there. With `is_left` another process resumes the call and gets its questions: none
        is refused or returned.
        """
        others: list[ReceivedQuestion] = []
        for id_, question in tuple(self.open.items()):
            if question.call is call:
                self.withdraw(id_)
                if question.guessed and not is_left:
                    others.append(question.asked)
                elif question.came_aside and not is_left:
                    self._reply(self._dialect.answer(id_, self._dialect.default_answer(question.question.method)), None)
        return others

    def end(self) -> None:
        """Withdraw all questions: the conversation is over."""
        for id_ in tuple(self.open):
            self.withdraw(id_)

    def _remove(self, id: RequestId) -> OpenQuestion | None:
        """Remove a question, and let the time of its call run again if it was its last."""
        question = self.open.pop(id, None)
        if question is not None and question.call is not None:
            question.call.asks(-1)
        return question


def asked_again(asked: Mapping[str, Question]) -> Iterator[ReceivedQuestion]:
    """Yield the questions that another process got, by the keys they had there; invalid keys are
    skipped."""
    for key, question in asked.items():
        with suppress(ValueError):
            id_ = json.loads(key)
            if isinstance(id_, str | int):
                yield ReceivedQuestion(id_, question, None)


PATIENCE: Final = 2.0
"""Seconds that a question waits until it is known which calls became tasks."""


class Hear(Protocol):
    """Callback for a question and the call that it is for, None if it is for none.

    `came_aside`: it came outside of the call's stream. `guessed`: nothing tells which call it is
    for, and `call` is one of several that it may be for.
    """

    def __call__(
        self, asked: ReceivedQuestion, call: RunningCall | None, *, came_aside: bool, guessed: bool
    ) -> None: ...


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
        self, calls: Mapping[int, RunningCall], followed: TaskCalls, hear: Hear, session_asks: Callable[[], bool]
    ) -> None:
        self._calls = calls
        self._followed = followed
        self._hear = hear
        self._session_asks = session_asks
        self._waiting: dict[RequestId, _WaitingQuestion] = {}

    def take(self, asked: ReceivedQuestion, call: RunningCall | None) -> None:
        """Pass a question to `hear`, now or after a wait.

        `call` is the call on whose stream it came, if any. With MAX_OPEN questions waiting, it does
        not wait.
        """
        if call is None and self._must_wait(asked.task) and len(self._waiting) < MAX_OPEN:
            self._wait(asked)
        else:
            self._pass_on(asked, call)

    def of(self, call: RunningCall | None, task: str | None) -> RunningCall | None:
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

    def _candidates(self) -> list[RunningCall]:
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

    def _pass_on(self, asked: ReceivedQuestion, call: RunningCall | None) -> None:
        """Call `hear` with the question and the call that it is for, as far as known now."""
        found = self.of(call, asked.task)
        candidates = self._candidates() if found is None and not self._session_asks() else []
        # All calls have the same caller; the newest one is asked rather than none.
        newest = max(candidates, key=lambda one: one.id) if candidates else None
        self._hear(asked, found or newest, came_aside=call is None, guessed=newest is not None)
