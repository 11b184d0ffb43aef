"""Hosts of the modern era: what their requests ask, where no request of the legacy era asks the same, and the
promise of whoever translates for them. Values and a protocol; pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from taskgate.domain.record import InputRequest, RequestId, TaskId, TaskRecord
from taskgate.domain.versions import Era, Peer
from taskgate.jsontext.large import MessageText
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import Server
from taskgate.protocol.envelope import Notification, Request, Response
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.intents import CallTool, CancelTask, GetTask, Relay
from taskgate.protocol.questions import Answer, Question


class RequestMeta(NamedTuple):
    """What a request says about itself, nearly all of it in its `_meta`; none of it outlasts the request.

    `peer.info` is empty where the host does not say who it is; nothing is decided by it. `log_level` is one of
    LOG_LEVELS, None where the host wants to hear no log. `repeated` is what its headers say of arguments, as
    `protocol.headers` reads it; whether that is so is not known here.
    """

    peer: Peer
    log_level: str | None
    progress_token: RequestId | None
    declares_tasks: bool
    repeated: Mapping[str, str] = MappingProxyType({})


# --- what a request asks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Discover:
    """`server/discover`."""

    id: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTask:
    """`tasks/update`: answers to inputs of a task, by their keys; those for no outstanding key count for nothing."""

    id: RequestId
    task: TaskId
    answers: Mapping[str, Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A request sent again with what it was asked for; `request` is without both, and under the new id.

    `state` is what the host was given to hand back, None where it hands nothing back. `responses` is the text of its
    `inputResponses` as the host wrote it, None where it brings none; `answers` are the same one by one. `text` is the
    whole message, for another process to read.
    """

    request: CallTool | Relay
    answers: Mapping[str, Answer]
    responses: RawJson | None
    state: str | None
    text: RawJson = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfLegacyTask:
    """A request that is served where its task was made in the legacy era (AMB-19).

    For any other task, whether it is there or not, the caller lacks the extension.
    """

    request: GetTask | CancelTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a host wants to hear of; None where it names no list. No entry stands twice.

    Of the tasks only those are here whose ids could be ours. `filters` are members of carried extensions.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    resource_uris: tuple[str, ...] | None = None
    tasks: tuple[TaskId, ...] | None = None
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """`subscriptions/listen`; what is told on its stream carries its `id`."""

    id: RequestId
    wants: Subscription


ModernIntent = Discover | CallTool | Relay | Retry | GetTask | UpdateTask | CancelTask | OfLegacyTask | Listen
"""In `CallTool` no host of this era wants a task; `kept` is there wherever the call may become one."""


# --- how its answer is written -------------------------------------------------------------------------------------


class Round(NamedTuple):
    """A server's answer that asks for more; `state` is what it wants handed back, None where that is nothing."""

    state: str | None


class ModernDialect(Protocol):
    """How hosts of the modern era speak and are spoken to. What it returns are whole JSON-RPC messages.

    `era` is that of the server whose response is shown, `info` what is told as its serverInfo; None tells what the
    server itself does.
    """

    @property
    def info(self) -> RawJson:
        """What the gateway tells as serverInfo, which the results have that it makes itself."""
        ...

    def decode(
        self, request: Request, said: RequestMeta, *, offers_tasks: bool, extensions: ExtensionPolicy
    ) -> ModernIntent:
        """What a request asks that was classified before, as `said` has it.

        Raises InvalidParams, TaskNotFound (for an id that can be none of ours), UnknownMethod or MalformedMessage (for
        what could not be written again, and for what is written twice).
        """
        ...

    def discovered(
        self,
        id: RequestId,
        server: Server,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        info: RawJson | None = None,
    ) -> str:
        """The answer to `server/discover`."""
        ...

    def answer(
        self,
        id: RequestId,
        method: str,
        response: Response,
        era: Era,
        info: RawJson | None = None,
        extension: Extension | None = None,
    ) -> str:
        """A server's response to that method, under the host's id; what is no complete result breaks the protocol.

        `extension` is that of the method, None for one of the core.
        """
        ...

    def tools(
        self,
        id: RequestId,
        response: Response,
        era: Era,
        shows: Callable[[str], bool] | None = None,
        info: RawJson | None = None,
    ) -> str:
        """A page of `tools/list` under the host's id, without what `shows` says no to; None shows all."""
        ...

    def round_of(self, response: Response) -> Round | None:
        """What a server of this era asks for before it answers.

        None for any other answer, and for a round without sense, which `answer` tells as one that breaks the protocol.
        """
        ...

    def lacking(self, response: Response, host: Peer) -> Mapping[str, Any]:
        """What a host would have to declare besides to be asked all of such a round; nothing where it can be."""
        ...

    def passed_round(self, id: RequestId, response: Response, state: str | None, info: RawJson | None = None) -> str:
        """Such an answer under the host's id, with our `state` to hand back, whether the server gave one or not; with
        none where `state` is None."""
        ...

    def input_required(self, id: RequestId, questions: Mapping[str, Question], state: str) -> str:
        """What a held call waits for, by the keys that the host answers under."""
        ...

    def fits(self, method: str, answer: Answer) -> bool:
        """Whether an answer has what one to that question needs (M-MRTR-5)."""
        ...

    def digest(self, request: CallTool | Relay) -> str:
        """What two sendings of the same request have in common and no others: its method and parameters, less
        `_meta` and what a retry adds; in whatever order and spacing they are written."""
        ...

    def again(self, retry: Retry, state: str | None) -> CallTool | Relay:
        """The request for a server of this era with the host's answers, and with `state` for it to have back."""
        ...

    def on_notification(self, notification: Notification, token: RequestId | None, id: RequestId | None = None) -> str:
        """A server's notification on the stream of a request; progress under the host's own token.

        One that names its stream, as those of some extensions do, names it by `id`, the host's own of the request.
        """
        ...

    def progress(self, token: RequestId, done: float, message: str) -> str:
        """Progress that the gateway tells by itself."""
        ...

    def is_loud_enough(self, notification: Notification, level: str | None) -> bool:
        """Whether a log line is one that a request with this level wants to hear (M-LOG-1)."""
        ...

    # --- tasks

    def task_created(self, id: RequestId, record: TaskRecord) -> str:
        """The handle of a new task."""
        ...

    def task_state(self, id: RequestId, record: TaskRecord) -> MessageText:
        """The answer to `tasks/get`; a terminal record has its bodies."""
        ...

    def acknowledged(self, id: RequestId) -> str:
        """The answer to `tasks/update` and to `tasks/cancel`, whatever came of either."""
        ...

    def outstanding(self, record: TaskRecord) -> Mapping[str, InputRequest]:
        """The inputs that a host of this era is shown, and may answer, by their keys."""
        ...

    # --- streams of `subscriptions/listen`

    def subscribed(self, id: RequestId, granted: Subscription) -> str:
        """The first message: what of the wishes is granted (M-NOTIF-2)."""
        ...

    def published(self, id: RequestId, notification: Notification) -> str:
        """A server's notification."""
        ...

    def task_told(self, id: RequestId, record: TaskRecord) -> MessageText:
        """What `tasks/get` would show, as a notification; a terminal record has its bodies (M-NOTIF-4)."""
        ...

    def listened(self, id: RequestId) -> str:
        """The result that ends the stream (M-NOTIF-6)."""
        ...
