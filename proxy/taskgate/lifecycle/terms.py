"""The terms on which a call becomes a task: `TaskTerms`. It applies the operator's rules to one
call of one caller, and drafts the task's record.

`TaskService` uses it. `domain.policy` defines the rules. By them a call becomes a task always,
never, or automatically (when it takes long). The decision may depend on what the server's catalogue
says of the tool. `decided` and `decide` are for a call whose host did not request a task, `admit`
is for one that is to be a task. `draft` then makes the record, which `TaskService` stores.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from taskgate.admission.quota import QuotaSubjects
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.domain.limits import Cap
from taskgate.domain.policy import OnLost, PromotionDecision, TaskSupport, task_support
from taskgate.domain.record import Lease, TaskRecord, TaskStatus, ToolCall
from taskgate.errors import InvalidParams, TaskSupportMismatch, UpstreamFailed
from taskgate.protocol.host_requests import CallTool, key_digest
from taskgate.sessions.binding import CallSite
from taskgate.telemetry.request_context import current

ID_BYTES: Final = 24

RERUNS: Final = 1
"""How often a call may be sent again: one that crashes its process must not do so forever."""

_NO_CAPS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The record of a task to be stored, its call, and the caps within which it must fit."""

    record: TaskRecord
    intent: CallTool
    caps: tuple[Cap, ...]


class TaskTerms:
    """The operator's rules as they are at each call.

    `lease` is how long a new task belongs to its process without a heartbeat. None means for the
    whole lifetime of the task.
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
        """Return the decision for a call without a wait; None if it needs the server's catalogue.

        It ignores that a tool may be for app views only, which want no tasks. `decide` and `admit`
        consider that before a call becomes a task, or is refused for not being one.
        """
        rules, mount = self._live.current, place.mount.name
        if mount in rules.access.only_listed or (rules.policy.hinted and rules.policy.needs_hints(mount)):
            return None
        return rules.policy.decide(mount, tool)

    async def decide(self, place: CallSite, tool: str) -> PromotionDecision:
        """Return the decision for a call, with the hints of the server's catalogue.

        Waits only if the catalogue was not read yet. If it cannot be read, there are no hints.
        Raises InvalidParams for a tool that must be listed and is not, UpstreamFailed if that is
        unknown.
        """
        has_to_be_listed = place.mount.name in self._live.current.access.only_listed
        try:
            listed = (await place.upstream.tools()).get(tool)
        except UpstreamFailed:
            if has_to_be_listed:
                raise
            listed = None
        if listed is None and has_to_be_listed:
            raise InvalidParams("Unknown tool")
        return self._live.current.policy.decide(place.mount.name, tool, None if listed is None else listed.hints)

    async def admit(self, place: CallSite, intent: CallTool) -> PromotionDecision:
        """Return the decision for a call that is to be a task.

        Raises InvalidParams for a tool that the server does not list, and TaskSupportMismatch for
        one that cannot be a task. Raises UpstreamFailed if the catalogue cannot be read.
        """
        listed = place.upstream.listed(intent.tool) or (await place.upstream.tools()).get(intent.tool)
        if listed is None:
            raise InvalidParams("Unknown tool")
        decision = self._live.current.policy.decide(place.mount.name, intent.tool, listed.hints)
        if task_support(decision.mode) is TaskSupport.FORBIDDEN:
            raise TaskSupportMismatch("The tool cannot run as a task")
        return decision

    def draft(
        self, caller: AuthContext, place: CallSite, intent: CallTool, decision: PromotionDecision, holder: str
    ) -> Draft:
        """Draft the record of a new task, not sent yet, that `holder` is to run."""
        now, rules, standing = self._clock.now(), self._live.current, self._standings.of(caller)
        override, request = standing.override, current()
        ttl = decision.clamp_ttl(intent.ttl, None if override is None else override.ttl_max)
        record = TaskRecord(
            id=urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(),
            owner=caller.owner(place.mount.name),
            call=ToolCall(
                tool=intent.tool,
                peer=place.peer,
                host_session=place.host_session,
                # Without a host session no stream could carry progress with this token.
                progress_token=None if place.host_session is None else intent.progress_token,
                params=intent.stored_params,
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
            idempotency_digest=None if intent.idempotency_key is None else key_digest(intent.idempotency_key),
            trace=None if request is None or request.span is None else request.span.traceparent,
        )
        mine = _NO_CAPS if override is None else override.caps
        return Draft(
            record=record, intent=intent, caps=rules.caps.applicable(mine, decision.cap, standing.tenant is not None)
        )
