"""Requests that come back for held calls (decisions 18) which another process holds: brought there, answered here.

Whoever holds the call does all that it would do for a host of its own; what it tells goes out here. Either side shows
that it lives, and gives the errand up when the other does not any more. What must not live here: what becomes of the
call (`calls`), and how words travel.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from logging import getLogger
from typing import Any, Final, NamedTuple

from taskgate.auth.context import AuthContext
from taskgate.clock import Entropy
from taskgate.cluster import words
from taskgate.cluster.correspondence import Correspondence
from taskgate.cluster.failures import pack, unpack
from taskgate.cluster.words import Word
from taskgate.domain.record import FaultReason, OwnerKey, RequestId
from taskgate.domain.states import HeldCall
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import GatewayError, InvalidParams
from taskgate.gateway.modern.attending import Attending
from taskgate.gateway.modern.errands import Errand
from taskgate.gateway.modern.exchange_elsewhere import ExchangeElsewhere
from taskgate.gateway.modern.holds import Held, Holds
from taskgate.gateway.modern.lines import Line
from taskgate.gateway.resuming import LOST
from taskgate.jsontext.large import joined
from taskgate.protocol.envelope import Request
from taskgate.protocol.faults import call_ended
from taskgate.protocol.intents import CallTool, Relay
from taskgate.protocol.jsonrpc import error_text, parse
from taskgate.protocol.stateless import Retry, Stateless, StatelessDialect
from taskgate.protocol.vocabulary import INTERNAL_ERROR
from taskgate.streams.messages import Exchange
from taskgate.streams.spoken import Spoken
from taskgate.system.background import Background
from taskgate.system.interruption import Interrupted
from taskgate.system.offload import offloaded

LIFE: Final = 2.0
"""Seconds between two signs of life."""

FIRST: Final = 2 * LIFE
SILENCE: Final = 3 * LIFE
"""Seconds without one after which nobody is there, or not any more."""

NAME_BYTES: Final = 16
DEPTH: Final = 1_000
"""How deep a request may nest that another process has read before."""

log = getLogger("taskgate.stateless")

LetIn = Callable[[Exchange, AuthContext, Line, Stateless, CallTool | Relay], Awaitable[Errand]]
Resume = Callable[[Held, Errand, Retry], Awaitable[Spoken]]


class _Brought:
    """A request of this process that another one serves."""

    __slots__ = ("answer", "exchange", "heard", "holder", "is_taken")

    def __init__(self, exchange: Exchange, holder: str) -> None:
        loop = asyncio.get_running_loop()
        self.exchange = exchange
        self.holder = holder
        self.answer: asyncio.Future[Spoken | GatewayError] = loop.create_future()
        self.heard = loop.time()
        self.is_taken = False

    def show_life(self) -> None:
        self.heard = asyncio.get_running_loop().time()
        self.is_taken = True

    def settle(self, answer: Spoken | GatewayError) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class Mates(NamedTuple):
    """What it works with, of the calls of this process: where they wait, and how one goes on; see Calls."""

    holds: Holds
    attending: Attending
    dialect: StatelessDialect
    let_in: LetIn
    resume: Resume


class Bringing:
    """Brings requests to other processes, and serves what they bring."""

    def __init__(self, *, correspondence: Correspondence, entropy: Entropy, mates: Mates) -> None:
        self._correspondence = correspondence
        self._entropy = entropy
        self._mates = mates
        self._attending = mates.attending
        self._brought: dict[str, _Brought] = {}
        self._served: dict[str, ExchangeElsewhere] = {}
        self._background = Background()
        correspondence.hear(words.Brought, self._begin)
        correspondence.hear(words.Lives, self._lives)
        correspondence.hear(words.Told, self._told)
        correspondence.hear(words.Spoke, self._spoke)
        correspondence.hear(words.Refused, self._refused)
        correspondence.hear(words.Departed, self._departed)

    async def bring(self, errand: Errand, intent: Retry, call: HeldCall, holder: str) -> Spoken:
        """The answer to a request for a call that `holder` holds; raises as `Calls.retry`.

        InvalidParams where it is not there any more, as where the call is not held. Where it goes meanwhile, the answer
        says that the call is lost.
        """
        exchange, said, mount = errand.exchange, errand.said, errand.line.mount.name
        name = self._entropy.token(NAME_BYTES).hex()
        contexts = [owner.context for owner in errand.caller.owners(mount)]
        streams = exchange.inbound.accepts_stream
        brought = self._brought[name] = _Brought(exchange, holder)
        self._correspondence.say(
            words.Brought(name, mount, contexts, call.id, call.round, intent.text, _packed(said), streams), to=holder
        )
        try:
            # How far the call is the other process tells, also where there is nothing to tell.
            with self._attending.telling(exchange, said._replace(progress_token=None)):
                answer = await self._attending.wait(exchange, self._answer(name, brought, errand.request.id))
        finally:
            del self._brought[name]
            if not brought.answer.done():
                self._correspondence.say(words.Departed(name), to=holder)
        if isinstance(answer, GatewayError):
            raise answer
        return answer

    async def close(self) -> None:
        """Serve nobody any more."""
        await self._background.close()

    async def _answer(self, name: str, brought: _Brought, id: RequestId) -> Spoken | GatewayError:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait((brought.answer,), timeout=LIFE)
            if brought.answer.done():
                return brought.answer.result()
            silent = loop.time() - brought.heard
            if not brought.is_taken and silent >= FIRST:
                return InvalidParams("Invalid requestState")
            if silent >= SILENCE:
                fault = call_ended(FaultReason.CALL_LOST, LOST, dispatched=True)
                return Spoken(error_text(id, fault.error), str(INTERNAL_ERROR))
            self._correspondence.say(words.Lives(name), to=brought.holder)

    # --- what is said of what was brought, by either side ---------------------------------------------------------

    def _lives(self, word: words.Lives, sender: str) -> None:
        brought, served = self._brought.get(word.errand), self._served.get(word.errand)
        if brought is not None:
            brought.show_life()
        if served is not None:
            served.heard = asyncio.get_running_loop().time()

    def _told(self, word: words.Told, sender: str) -> None:
        brought = self._brought.get(word.errand)
        if brought is not None:
            brought.show_life()
            brought.exchange.stream().put(word.message)

    def _spoke(self, word: words.Spoke, sender: str) -> None:
        brought = self._brought.get(word.errand)
        if brought is not None:
            headers = tuple((name, value) for name, value in word.headers)
            brought.settle(Spoken(word.message, word.error, headers))

    def _refused(self, word: words.Refused, sender: str) -> None:
        brought = self._brought.get(word.errand)
        if brought is not None:
            brought.settle(unpack(word.failure))

    def _departed(self, word: words.Departed, sender: str) -> None:
        served = self._served.get(word.errand)
        if served is not None:
            served.leave()

    # --- what others brought ----------------------------------------------------------------------------------------

    def _begin(self, word: words.Brought, sender: str) -> None:
        self._background.run(partial(self._serve, word, sender))

    async def _serve(self, word: words.Brought, sender: str) -> None:
        def say(answer: Word) -> None:
            self._correspondence.say(answer, to=sender)

        name = word.errand
        exchange = ExchangeElsewhere(lambda message: say(words.Told(name, message)), streams=word.streams)
        self._served[name] = exchange
        living = self._background.begin(partial(self._show_life, name, exchange, sender))
        try:
            spoken = await self._carried(word, exchange)
            say(words.Spoke(name, joined(spoken.message), spoken.error, [[*header] for header in spoken.headers]))
        except Interrupted:
            # Nobody waits for an answer.
            pass
        except Exception as error:
            if not isinstance(error, GatewayError):
                log.error("A request of another replica failed in a way that was not foreseen", exc_info=error)
            say(words.Refused(name, pack(error)))
        finally:
            living.cancel()
            del self._served[name]

    async def _show_life(self, name: str, exchange: ExchangeElsewhere, sender: str) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - exchange.heard < SILENCE:
            self._correspondence.say(words.Lives(name), to=sender)
            await asyncio.sleep(LIFE)
        exchange.leave()

    async def _carried(self, word: words.Brought, exchange: Exchange) -> Spoken:
        holds, _, dialect, let_in, resume = self._mates
        owners = [OwnerKey(context, word.mount) for context in word.contexts]
        line = holds.find(owners, word.hold, word.round).line
        read = partial(parse, word.request.encode(), max_depth=DEPTH)
        said, request = _said(word.said), await offloaded(len(word.request), read)
        assert isinstance(request, Request), "nothing else comes back for a call"
        intent = dialect.decode(request, said, offers_tasks=line.mount.offers_tasks, extensions=line.mount.extensions)
        assert isinstance(intent, Retry), "the state was read in it"
        with line:
            # No token travels: the server is told for the same caller, as they were when the call was made.
            errand = await let_in(exchange, line.caller, line, said, intent.request)
            # Nothing is waited for from here until it is taken: it counts once.
            return await resume(holds.find(owners, word.hold, word.round), errand, intent)


def _packed(said: Stateless) -> dict[str, Any]:
    peer = said.peer
    return {
        "revision": peer.revision.value,
        "capabilities": peer.capabilities,
        "info": peer.info,
        "log_level": said.log_level,
        "progress_token": said.progress_token,
        "declares_tasks": said.declares_tasks,
        "repeated": dict(said.repeated),
    }


def _said(packed: Mapping[str, Any]) -> Stateless:
    peer = Peer(revision=Revision(packed["revision"]), capabilities=packed["capabilities"], info=packed["info"])
    token, level = packed["progress_token"], packed["log_level"]
    return Stateless(peer, level, token, packed["declares_tasks"], packed["repeated"])
