"""The delivery of input requests to legacy hosts, and of their answers: `InputDelivery`.

An input request is in the task's record. Before it is sent on a stream, the stream's claim is
written into the record: only the process whose write succeeds sends it. So a request is on one
stream at a time (H-LEG-8). The request then is an *offer* of that stream, which ends in one of
three ways:

- a host answers, with another POST request: `answer` writes the answer into the record;
- the request no longer waits (answered elsewhere, withdrawn): `settle` sends a withdrawal;
- the stream ends: `give_back` removes the claim, and another stream may deliver the request.

`StatusNotifier` and `ResultWaiter` choose the stream. `ClientNotifications` calls `answerable` and `answer`.
`inputs` stores the requests, and forwards the answers to the server.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple

from taskgate.admission.access import AccessControl
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.events import InputAnswered, InputClaimed, InputDeferred, TaskEvent
from taskgate.domain.record import InputRequest, OwnerKey, TaskId, TaskRecord
from taskgate.domain.versions import Peer
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.host_requests import AnswerInput
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.vocabulary import TASKS_RESULT
from taskgate.sessions.questions import WITHDRAWN
from taskgate.stores.base import TaskStore
from taskgate.streams.event_stream import EventStream
from taskgate.system.background import Background


class _Offer(NamedTuple):
    """A request that was sent on the stream `feed`; `claim` is what the record says of that.

    A claim is `<process>/<number>`, unique to one sending.
    """

    owner: OwnerKey
    feed: EventStream
    claim: str


class InputDelivery:
    """The input requests on streams of this process. `holder` is the name of the process."""

    def __init__(
        self,
        *,
        holder: str,
        store: TaskStore,
        transitions: Transitions,
        access: AccessControl,
        dialect: LegacyDownstream,
        clock: Clock,
    ) -> None:
        self._holder = holder
        self._store = store
        self._access = access
        self._clock = clock
        self._transitions = transitions
        self._dialect = dialect
        self._numbers = count(1)
        self._offers: dict[tuple[TaskId, str], _Offer] = {}
        self._background = Background()

    async def offer(self, record: TaskRecord, feed: EventStream, peer: Peer) -> None:
        """Claim and send the unclaimed requests that the host can answer. Raises StoreUnavailable.

        The caller must call `give_back` when the stream ends.
        """
        for request in record.inputs:
            if _is_free(request) and self._dialect.can_ask(peer, request.method, request.params):
                await self._claim(record, request, feed)

    @contextmanager
    def answering(self, task: TaskId, key: str) -> Iterator[None]:
        """Return a block in which the host's answer to a request is stored.

        In it the request counts as answered, so that `settle` sends no withdrawal to the host that
        answered. If the block raises, the request is an offer of its stream again.
        """
        place = task, key
        offer = self._offers.pop(place, None)
        try:
            yield
        except BaseException:
            if offer is not None and offer.feed.is_closed:
                self._remove_claim(offer, task, key)
            elif offer is not None:
                self._offers[place] = offer
            raise

    async def answerable(self, caller: AuthContext, mount: str, task: TaskId) -> TaskRecord | None:
        """Return the head of a task whose questions the caller may answer; None for any other.

        Raises StoreUnavailable.
        """
        for owner in caller.owners(mount):
            record = await self._store.load(owner, task, now=self._clock.now())
            if record is not None and self._access.is_allowed(caller, mount, TASKS_RESULT, record.call.tool):
                return record
        return None

    async def answer(self, record: TaskRecord, given: AnswerInput) -> None:
        """Store the answer to a question of an `answerable` task. The first counts, whichever session sends it.

        An answer to a question that is answered, withdrawn or unknown has no effect, and the sender cannot
        tell which it was. Raises StoreUnavailable.
        """
        if not record.has_asked(given.key):
            self._transitions.unasked(record.owner)
        with self.answering(given.task, given.key):
            await self._transitions.make(record.owner, given.task, lambda now: self._answered(now, given))

    def _answered(self, record: TaskRecord, given: AnswerInput) -> TaskEvent:
        """Return the event for an answer.

        A host may answer with the handle of a task of its own, if the question allows that. Then
        the input request stays open until that task has ended.
        """
        asked = next((each.params for each in record.inputs if each.key == given.key), "")
        if given.host_task is not None and self._dialect.wants_task(asked):
            return InputDeferred(key=given.key, response=given.answer, deferred_to=given.host_task)
        return InputAnswered(key=given.key, response=given.answer)

    def settle(self, task: TaskId, record: TaskRecord | None) -> None:
        """Withdraw, on their streams, the requests of a task that its newest record no longer has.

        `record` is None if the task is gone. Called after each change of the task.
        """
        if not self._offers:
            return
        outstanding = set() if record is None else {request.key for request in record.inputs}
        for each, key in tuple(self._offers):
            if each == task and key not in outstanding:
                offer = self._offers.pop((each, key))
                offer.feed.send(self._dialect.withdrawal(self._dialect.input_id(task, key), WITHDRAWN))

    def give_back(self, feed: EventStream) -> None:
        """Remove the claims of a stream that has ended, in the background.

        If the stream still has its answer to come, its host learns that the questions are no longer asked there.
        """
        for place, offer in tuple(self._offers.items()):
            if offer.feed is feed:
                del self._offers[place]
                if not feed.is_closed:
                    feed.send(self._dialect.withdrawal(self._dialect.input_id(*place), WITHDRAWN))
                self._remove_claim(offer, *place)

    async def close(self) -> None:
        """Cancel the writes of claims under way."""
        await self._background.close()

    async def _claim(self, record: TaskRecord, request: InputRequest, feed: EventStream) -> None:
        claim, key = f"{self._holder}/{next(self._numbers)}", request.key

        # Another process may have claimed the request since `record` was read.
        def take(now: TaskRecord) -> TaskEvent | None:
            is_free = any(each.key == key and _is_free(each) for each in now.inputs)
            return InputClaimed(key=key, stream=claim) if is_free else None

        offer = _Offer(record.owner, feed, claim)
        making = self._background.start(partial(self._transitions.make, record.owner, record.id, take))
        try:
            claimed = await asyncio.shield(making)
        except BaseException:
            # The claim may be stored all the same, now or in a moment: remove it after that.
            making.add_done_callback(lambda _: self._remove_claim(offer, record.id, key))
            raise
        finally:
            del making
        if claimed is None:
            return
        if feed.send_now(self._dialect.input_request(claimed, request)):
            self._offers[record.id, key] = offer
        else:
            # The stream has lost its connection meanwhile: another one may deliver the request.
            self._remove_claim(offer, record.id, key)

    def _remove_claim(self, offer: _Offer, task: TaskId, key: str) -> None:
        """Remove a claim from the record in the background, if it is still this one."""

        def free(now: TaskRecord) -> TaskEvent | None:
            is_ours = any(each.key == key and each.claimed_by == offer.claim for each in now.inputs)
            return InputClaimed(key=key, stream=None) if is_ours else None

        self._background.run(lambda: self._transitions.insist(offer.owner, task, free))


def carrier(claim: str) -> str:
    """Return the name of the process whose stream claimed a request."""
    return claim.rpartition("/")[0]


def _is_free(request: InputRequest) -> bool:
    """Return whether a request is neither claimed nor deferred to a task of the host."""
    return request.claimed_by is None and request.deferred_to is None
