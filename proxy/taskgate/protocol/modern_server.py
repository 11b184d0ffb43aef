"""Servers of the modern era: what they are asked and what they mean, and the promise of whoever translates for them.

A server of this era asks nothing by itself: it answers with a round of questions, and has the request sent again with
the answers. Values and a protocol; pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import CallAnswered, Noticed, ProgressTold, Server, ToolPage
from taskgate.protocol.envelope import Response
from taskgate.protocol.params import Params
from taskgate.protocol.questions import Answer, Question
from taskgate.protocol.server_tasks import ServerTask, TaskTold


class WrittenRequest(NamedTuple):
    """A request as it leaves: its text, and the headers that repeat parts of it (H-MOD-1)."""

    message: str
    headers: Mapping[str, str]


class Saying(NamedTuple):
    """A request in the words of the legacy era, before it has an id.

    `wants_progress` asks the server to tell how far it is though the parameters have no place for a token. `log_level`
    is the least severe log line that is wanted, None wants none. `mirrored` are the arguments of the tool that headers
    repeat, as `protocol.mirrored` gives them. `repeated` is what headers of the host said of arguments, by the rest of
    their names in lower case; None where they said nothing. `answers` are the `inputResponses` that are sent with it,
    and `state` is what the server wants to have back, as it wrote it; None for a request that nothing was asked for
    yet. `follows_tasks` tells the server that what it makes a task of is followed to its end.
    """

    method: str
    params: Params | None = None
    wants_progress: bool = False
    log_level: str | None = None
    mirrored: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    repeated: Mapping[str, str] | None = None
    answers: RawJson | None = None
    state: RawJson | None = None
    follows_tasks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listened:
    """What a session wants to hear of besides its calls; `tasks` are the server's own, by their ids.

    `filters` are the members of carried extensions that are asked for.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether there is no reason to listen."""
        return self == _NOTHING


_NOTHING: Final = Listened()


class ServerRound(NamedTuple):
    """An answer that asks for more: questions by the server's keys, and the state it wants to have back, as written.

    Where there are no questions there is a state.
    """

    questions: Mapping[str, Question]
    state: RawJson | None


class Subscribed(NamedTuple):
    """The first message of a stream of `subscriptions/listen`: the resources, and the tasks, that it tells of.

    `filters` are the members of extensions that it grants.
    """

    uris: frozenset[str]
    tasks: frozenset[str] = frozenset()
    filters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguePage:
    """A page of the catalogue; `refused` names the tools that are left out for their annotations (H-MOD-5)."""

    page: ToolPage
    refused: tuple[str, ...] = ()


Said = CallAnswered | ProgressTold | Noticed | Subscribed | TaskTold | None
"""What a message of a server means; None for what is dropped."""


class ModernServerDialect(Protocol):
    """How servers of this era are spoken to. Everything unreadable is UpstreamFailed with reason malformed.

    `host` is who asks through the gateway, None where nobody can be asked anything.
    """

    def discover(self, id: int, host: Peer | None) -> WrittenRequest:
        """The question who the server is."""
        ...

    def read_discovery(self, response: Response) -> Server | None:
        """What the server said; None where it serves no revision of this era that we know, or may be of another one.

        UpstreamFailed, reason refused, where it answered with another error of this era.
        """
        ...

    def request(self, id: int, saying: Saying, host: Peer | None) -> WrittenRequest:
        """A request under our id, which is its progress token too where one is wanted."""
        ...

    def listen(self, id: int, wants: Listened, host: Peer | None) -> WrittenRequest:
        """The request for a stream of what the server says besides its answers."""
        ...

    def list_tools(self, id: int, cursor: RawJson | None, host: Peer | None) -> WrittenRequest:
        """The request for a page of the catalogue."""
        ...

    def read_tools(self, response: Response) -> CataloguePage:
        """A page of the catalogue; UpstreamFailed if the server refused."""
        ...

    def sound(self, response: Response) -> Response:
        """An answer to `tools/list` as hosts may see it: without the tools that `read_tools` leaves out."""
        ...

    def hear(self, message: bytes, host: Peer | None) -> Said:
        """What a message means; a notification without what belongs to its stream alone.

        A request is none that a server of this era may make, and so malformed: it would wait for an answer that cannot
        be sent (H-MOD-8).
        """
        ...

    def refusal_of(self, id: int, message: bytes) -> Response | None:
        """An error that names no request, as the response to our `id`, for whoever knows that it answers that one.

        Servers that refuse a request unread do not know its id. None for whatever else `hear` cannot read.
        """
        ...

    def round_of(self, method: str, id: int, response: Response) -> ServerRound | None:
        """What the response to our `id` asks for; None for an answer or an error.

        A missing `resultType` is a complete answer; malformed are one that is not known (V-META-7), a task, which was
        not asked for, and a round where there may be none, or that asks for nothing (M-MRTR-1).
        """
        ...

    def serves_tasks(self, server: Server) -> bool:
        """Whether a server may make tasks of calls, for whoever says that they are followed."""
        ...

    def knows_tasks(self, host: Peer | None) -> bool:
        """Whether the host itself declared the extension with which servers make tasks of calls."""
        ...

    def needs_tasks(self, response: Response) -> bool:
        """Whether a server refused a call, before it acted, because it runs that as a task alone."""
        ...

    def task_of(self, method: str, response: Response) -> ServerTask | None:
        """The task that a server made of a call that says so; None for any other answer, and for an error.

        Malformed is one that cannot be followed. `round_of` is for those calls that do not say so, and all others.
        """
        ...

    def look(self, id: int, task: str, host: Peer | None) -> WrittenRequest:
        """The request for the state of a server's task."""
        ...

    def looked(self, call: int, task: str, response: Response) -> ServerTask | None:
        """What the response to it shows, with what the call under our id `call` came to; None for an error."""
        ...

    def update(self, id: int, task: str, answers: RawJson, host: Peer | None) -> WrittenRequest:
        """The request that brings a server's task what it asked for; `answers` are those of `answers`, or some."""
        ...

    def cancel(self, id: int, task: str, host: Peer | None) -> WrittenRequest:
        """The request that ends a server's task."""
        ...

    def declared(self, host: Peer | None, question: Question) -> bool:
        """Whether the host can be asked that, by what the server was told of it."""
        ...

    def answers(self, given: Mapping[str, tuple[Question, Answer]]) -> RawJson | None:
        """The `inputResponses` by the server's keys; None where one of the answers has no form in this era."""
        ...

    def no_answer(self, question: Question) -> Answer:
        """What stands for an answer that nobody gave; for most questions that has no form in this era (10.2)."""
        ...

    def unanswered(self, id: int) -> Response:
        """The end of a call whose server asked what it gets no answer to."""
        ...

    def refusal(self, id: int, code: int, text: str) -> Response:
        """The answer to a request that the server is not bothered with."""
        ...

    def done(self, id: int) -> Response:
        """The empty answer to a request that the gateway serves."""
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task."""
        ...
