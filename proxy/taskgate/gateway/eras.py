"""The interface between the two eras and the rest of the gateway: `EraAdapter`.

The adapter of an era decodes each message to a `DecodedMessage`, and makes a `Call` of one that a
server answers. It makes the reply. `legacy` and `modern.adapter` implement it. All other code
handles a request by these values, and asks for no era.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from taskgate.admission.coalescing import CoalesceKey
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.domain.policy import Handoff, PromotionMode
from taskgate.domain.record import OwnerKey, RequestId, TaskRecord
from taskgate.domain.versions import Era, Peer, Revision
from taskgate.gateway.listeners import HostListener, InflightCall
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.classify import Route
from taskgate.protocol.extensions import Extension
from taskgate.protocol.handoff import HandoffTools
from taskgate.protocol.host_requests import CallTool, LegacyIntent, ModernIntent, Relay, RequestMeta
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Message, Params, Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import LIST_METHODS, LOGGING_SET_LEVEL, RESOURCES_UNSUBSCRIBE
from taskgate.sessions.binding import CallSite
from taskgate.sessions.host_session import HostSession
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.cancel_scope import CancelScope
from taskgate.telemetry.request_context import RequestContext

_SERVED_FOR_MODERN: Final = frozenset({LOGGING_SET_LEVEL, RESOURCES_UNSUBSCRIBE})
"""Relayed methods that modern servers lack, so the session answers them without a request."""


@dataclass(slots=True, eq=False)
class DecodedMessage:
    """A message of a host, as its adapter decoded it.

    - `adapter`: that of its era. `revision`: the host's, for reports.
    - `tool`: the tool of a `tools/call`.
    - `session`: the session of a legacy host; None for `initialize`, and for a modern host.
    - `meta`: what a modern request declares; None for a notification, and for a legacy host.
    - `limited_as`: the method that it counts as for rates and access rules; None for its own. A response has none,
      and counts only if this is given.
    - `waited`: for how many seconds it waited for the end of a new task, as a poll of it.
    """

    adapter: "EraAdapter"
    exchange: Exchange
    mount: Mount
    caller: AuthContext
    message: Message
    intent: LegacyIntent | ModernIntent
    revision: Revision | None = None
    tool: str | None = None
    session: HostSession | None = None
    meta: RequestMeta | None = None
    limited_as: str | None = None
    waited: float = 0.0

    @property
    def peer(self) -> Peer | None:
        """What the host declares; None before it has declared anything."""
        if self.meta is not None:
            return self.meta.peer
        return None if self.session is None else self.session.peer


class CallTerms:
    """The terms that few calls change, with the values of most. A call is made for every request.

    What the adapter sets:

    - `tool`: the tool of a `tools/call`.
    - `takes_task`: whether the host takes a task in place of the answer, without having asked for one.
    - `ends_with_host`: whether the host cancels it by disconnecting. Otherwise only a call that
      waits for a permit is cancelled then.
    - `cancellable`: where the scope of the running call is registered by the id of the request, so
      that a notification of the host can cancel it. None if the era has no such notification.
    - `knows_tasks`: whether the host could get a task if the operator's rules allowed it.
    - `refuses_task_only`: whether a tool that runs only as a task is refused.
    - `may_be_held`: whether it can wait here for input responses of the host.
    - `lacks_tasks`: whether its host knows no tasks. Then `handoff` has the tools of the gateway, if a late
      call may be answered with a handle.
    - `mount`: the present one, which a session may not have.
    - `is_of_extension`: whether an extension defines its method.
    - `log_level`, `repeated`: as in `UpstreamCall`.

    What is decided about it:

    - `may_become_task`: whether the operator's rules and the host allow a task. `mode` is the rule,
      `grace` the time in which the call may then be answered without a task once it is sent.
    - `gets_handle`: whether such a task is told by a handle, because its host knows no tasks; `terms` are
      then those of its rule, and `begun` is the monotonic time at which the call came.
    - `own_key`: the key of the gateway's own that equal calls have in common, without their slots; empty if
      the call has none. `slot` is the call's (`admission.connected_hosts`).
    - `outlives_host`: whether it is kept as a task if the connection is lost.
    - `is_counted`: its disposition is reported.
    - `record`: the task that it has become in place of an answer, and `is_promoting` while it becomes one.
      `is_answered`: its answer is known, and `is_lost`: the connection was lost before that was sent, if it
      outlives that. `shared` is what hosts have in common that share its request. `stored` is done once a
      lost one is a task or cannot be one, or the answer is sent.
    - `shadow_grace`: the time after which a rule in shadow would have handed it off; None for no such rule.
    - `task_params`: how the server gets the parameters of such a call; None for a call that is
      relayed in any case.
    - `coalesce_key`: the key by which equal calls share one result; None for a call that is sent by
      itself.
    - `extension`: the one that defines its method, found once the server's era is known.
    """

    tool: str | None = None
    takes_task: bool = False
    ends_with_host: bool = True
    cancellable: dict[CancelScope, RequestId] | None = None
    knows_tasks: bool = False
    refuses_task_only: bool = False
    may_be_held: bool = False
    lacks_tasks: bool = False
    handoff: HandoffTools | None = None
    mount: Mount | None = None
    is_of_extension: bool = False
    log_level: str | None = None
    repeated: Mapping[str, str] | None = None
    may_become_task: bool = False
    gets_handle: bool = False
    terms: Handoff | None = None
    own_key: str = ""
    slot: int = 0
    outlives_host: bool = False
    is_counted: bool = False
    record: TaskRecord | None = None
    is_promoting: bool = False
    is_answered: bool = False
    is_lost: bool = False
    stored: asyncio.Future[None] | None = None
    shared: tuple[tuple[OwnerKey, str | None], str] | None = None
    shadow_grace: timedelta | None = None
    begun: float = 0.0
    mode: PromotionMode = PromotionMode.SYNC
    grace: timedelta = timedelta()
    task_params: RawJson | None = None
    coalesce_key: CoalesceKey | None = None
    extension: Extension | None = None


@dataclass(eq=False)
class Call(CallTerms):
    """A request of a host that a server answers, and the upstream session that it is sent on.

    - `request`: as the host sent it. `params`: as the server gets them, which differ for a retry
      that goes to a modern server.
    - `peer`: what the host declares.
    - `listener`: the receiver of the server's messages.
    """

    adapter: "EraAdapter"
    exchange: Exchange
    caller: AuthContext
    session: CallSite
    request: CallTool | Relay
    id: RequestId
    method: str
    params: Params | None
    peer: Peer
    listener: HostListener


def takes_permit(call: Call) -> bool:
    """Return whether a request takes a permit. A `tools/call` always does.

    Lists never wait behind calls, because a host opens with them. A request that lasts as long as its
    host listens would keep its permit, so it counts as a stream instead. All other requests that reach
    the server take one, whatever their method is.
    """
    method, extension = call.method, call.extension
    if extension is not None:
        return method not in extension.streams
    if method in LIST_METHODS:
        return False
    return method not in _SERVED_FOR_MODERN or call.session.upstream.era is not Era.MODERN


class EraAdapter(Protocol):
    """The adapter of an era. `Gateway` calls `decode` and `handle` for each message, in this order;
    `Calls` calls the others.
    """

    era: Era

    @property
    def dialect(self) -> LegacyDownstream | ModernDownstream:
        """The dialect towards hosts of the era."""
        ...

    def decode(
        self,
        exchange: Exchange,
        context: RequestContext,
        mount: Mount,
        caller: AuthContext,
        message: Message,
        route: Route,
    ) -> DecodedMessage | Awaitable[DecodedMessage]:
        """Return what the host wants, and note the host in `context`; `route` is from `classify`.

        It waits only for a session that is not in memory.
        """
        ...

    async def handle(self, request: DecodedMessage) -> HttpReply:
        """Execute a request that the limits and the access rules admitted, and return the answer.

        The quota headers are not in it yet.

        What only this era has is served here, the rest by `Calls` and `TaskRequests`. Raises
        ScopeCancelled when the host cancelled the request.
        """
        ...

    def listed_tool(self, request: DecodedMessage) -> str | None:
        """Return the tool of a refused `tools/call`, if the server is known to list it."""
        ...

    # For calls.

    async def answer(self, call: Call, response: Response, missing: Mapping[str, Any]) -> HttpReply:
        """Return the answer to a call that its server has answered.

        `missing` are the capabilities that the server asked for, and the host did not declare.
        """
        ...

    async def answer_repeated(self, call: Call, task: TaskRecord) -> HttpReply:
        """Return the answer to a call whose idempotency key belongs to `task`, if its host wants no
        task.
        """
        ...

    async def hold(self, call: Call, inflight: InflightCall) -> HttpReply:
        """Hold a call whose server asks something; return the answer that passes on the questions."""
        ...

    def is_round(self, call: Call, response: Response) -> bool:
        """Return whether a response asks the host something, and is no result."""
        ...

    def answer_ended(self, id: RequestId) -> str:
        """Return the answer to a request of an extension that lasts, when the gateway ends it."""
        ...
