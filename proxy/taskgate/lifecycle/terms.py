"""On what terms a call is let in, and becomes a task: the operator's rules, put to one call of one caller.

What must not live here: keeping and running tasks (`task_service`), and what a rule means (`domain/policy`).
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from taskgate.admission.joining import repeat_key
from taskgate.admission.rules import RuntimeConfig
from taskgate.admission.standing import QuotaSubjects
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.domain.limits import Cap
from taskgate.domain.policy import OnLost, PromotionDecision, TaskSupport, task_support
from taskgate.domain.record import Lease, TaskRecord, TaskStatus, ToolCall
from taskgate.errors import InvalidParams, TaskSupportMismatch, UpstreamFailed
from taskgate.protocol.base import CallTool
from taskgate.sessions.call_sites import CallSite
from taskgate.telemetry.request_context import current

ID_BYTES: Final = 24

RERUNS: Final = 1
"""How often a call is sent again that may be: one that brings its process down must not do so for ever."""

_NO_CAPS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A record that is to be kept, for which call, and what it is held against."""

    record: TaskRecord
    intent: CallTool
    caps: tuple[Cap, ...]


class TaskTerms:
    """The rules as they are at each call.

    `lease` is for how long a new task is its process's, unless that says that it lives; None for as long as it is kept.
    """

    def __init__(
        self,
        *,
        live: RuntimeConfig,
        standings: QuotaSubjects,
        clock: Clock,
        entropy: Entropy,
        lease: timedelta | None = None,
    ) -> None:
        self._live = live
        self._standings = standings
        self._clock = clock
        self._entropy = entropy
        self._lease = lease

    def decided(self, place: CallSite, tool: str) -> PromotionDecision | None:
        """What the operator's rules say of a call; None where they ask for what the server lists of the tool.

        They do not ask whether only views call the tool: `decide` and `admit` know that, before a call is made a task
        or refused for being none.
        """
        rules, mount = self._live.now, place.mount.name
        if mount in rules.access.only_listed:
            return None
        return None if rules.policy.needs_hints(mount) else rules.policy.decide(mount, tool)

    async def decide(self, place: CallSite, tool: str) -> PromotionDecision:
        """What the operator's rules say of a call, with what the server lists of the tool.

        Waits only where the server's catalogue was not read yet. Where it cannot be read, no hint is known. Raises
        InvalidParams for a tool that has to be listed and is not, and UpstreamFailed where that cannot be found out.
        """
        has_to_be_listed = place.mount.name in self._live.now.access.only_listed
        try:
            listed = (await place.upstream.tools()).get(tool)
        except UpstreamFailed:
            if has_to_be_listed:
                raise
            listed = None
        if listed is None and has_to_be_listed:
            raise InvalidParams("Unknown tool")
        return self._live.now.policy.decide(place.mount.name, tool, None if listed is None else listed.hints)

    async def admit(self, place: CallSite, intent: CallTool) -> PromotionDecision:
        """What the rules say of a call that is to be a task.

        Raises InvalidParams for a tool the server does not list, TaskSupportMismatch for one that cannot be a task, and
        UpstreamFailed where the catalogue cannot be read.
        """
        listed = place.upstream.listed(intent.tool) or (await place.upstream.tools()).get(intent.tool)
        if listed is None:
            raise InvalidParams("Unknown tool")
        decision = self._live.now.policy.decide(place.mount.name, intent.tool, listed.hints)
        if task_support(decision.mode) is TaskSupport.FORBIDDEN:
            raise TaskSupportMismatch("The tool cannot run as a task")
        return decision

    def draft(
        self, caller: AuthContext, place: CallSite, intent: CallTool, decision: PromotionDecision, holder: str
    ) -> Draft:
        """The record of a new task that `holder` is to run and that was not sent, and what it is held against."""
        now, rules, standing = self._clock.now(), self._live.now, self._standings.of(caller)
        override = standing.override
        ttl = decision.clamp_ttl(intent.ttl, None if override is None else override.ttl_max)
        record = TaskRecord(
            id=urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(),
            owner=caller.owner(place.mount.name),
            call=ToolCall(
                tool=intent.tool,
                peer=place.peer,
                host_session=place.host_session,
                # Without a session there is no stream that could still carry progress under it.
                progress_token=None if place.host_session is None else intent.progress_token,
                params=intent.kept,
            ),
            status=TaskStatus.WORKING,
            created_at=now,
            updated_at=now,
            ttl=ttl,
            poll_interval=rules.polling.base,
            lease=Lease(holder=holder, until=now + (self._lease or ttl)),
            tenant=standing.tenant,
            deadline=decision.deadline,
            reruns=RERUNS if decision.on_lost is OnLost.RERUN else 0,
            repeat_key=None if intent.repeat_key is None else repeat_key(intent.repeat_key),
            trace=_trace(),
        )
        mine = _NO_CAPS if override is None else override.caps
        return Draft(
            record=record, intent=intent, caps=rules.caps.applicable(mine, decision.cap, standing.tenant is not None)
        )


def _trace() -> str | None:
    """Where the request that is being answered stands in its trace."""
    request_context = current()
    return None if request_context is None or request_context.span is None else request_context.span.traceparent
