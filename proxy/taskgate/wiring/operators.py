"""The API of operators over the parts of a gateway: `build_operators_api`."""

from taskgate.auth.key_file import DeploymentKeys
from taskgate.clock import Clock, Entropy
from taskgate.operators.access import OperatorAccess
from taskgate.operators.api import OperatorsApi
from taskgate.operators.callers import CallerRoutes, LimitedParts
from taskgate.operators.control import ControlRoutes
from taskgate.operators.cursors import ListCursors
from taskgate.operators.events import EventRoutes
from taskgate.operators.explain import ExplainRoutes
from taskgate.operators.refusals import RefusalLog, RefusalRoutes
from taskgate.operators.sessions import SessionRoutes
from taskgate.operators.tasks import TaskRoutes
from taskgate.operators.upstreams import UpstreamRoutes
from taskgate.stores.base import Store
from taskgate.stores.references import ReferenceOf
from taskgate.telemetry.events import AuditCapacity
from taskgate.telemetry.history import History
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.upstream_states import UpstreamStates
from taskgate.wiring.authentication import list_cursor_keys
from taskgate.wiring.build import Runtime


def build_operators_api(
    access: OperatorAccess,
    runtime: Runtime,
    *,
    store: Store,
    reference_of: ReferenceOf,
    control: ControlRoutes,
    explain: ExplainRoutes,
    event_ring: EventRing,
    upstream_states: UpstreamStates,
    audit_capacity: AuditCapacity,
    clock: Clock,
    entropy: Entropy,
) -> OperatorsApi:
    """Create the API. `reference_of` makes the references of tasks that the store knows."""
    # Without keys of a deployment, cursors are valid as long as the process lives.
    own = DeploymentKeys(entropy.token(32), None)

    def keys() -> tuple[bytes, bytes | None]:
        return list_cursor_keys(runtime.callers.authenticator.deployment or own)

    cursors = ListCursors(keys, entropy)
    tasks = TaskRoutes(
        store=store,
        transitions=runtime.transitions,
        runner=runtime.runner,
        reference_of=reference_of,
        cursors=cursors,
        clock=clock,
        access=access,
        audit_capacity=audit_capacity,
    )
    refused = RefusalLog(event_ring, access)
    refused.subscribe()
    mounts = runtime.upstreams.mounts
    history = History(
        unfinished=lambda: runtime.runner.running,
        waiting=lambda: sum(mount.bulkhead.queued for mount in mounts.by_name.values()),
        refused=lambda: refused.total,
        clock=clock,
    )
    history.open()
    upstreams = UpstreamRoutes(
        mounts=mounts,
        states=upstream_states,
        history=history,
        clock=clock,
        requests=runtime.upstreams.requests.read,
        tasks=runtime.runner.calls_running,
        replica=runtime.cluster.holder,
    )
    limited = LimitedParts(
        live=runtime.live,
        mounts=mounts,
        sessions=runtime.sessions,
        streams=runtime.open_streams,
        rates=runtime.rate_limiter,
        subjects=runtime.quota_subjects,
        recent=runtime.callers.recent,
    )
    callers = CallerRoutes(
        limited,
        store=store,
        cursors=cursors,
        clock=clock,
        access=access,
        replica=runtime.cluster.holder,
        is_shared=runtime.cluster.leasing is not None,
    )
    sessions = SessionRoutes(
        sessions=runtime.sessions, cursors=cursors, clock=clock, access=access, replica=runtime.cluster.holder
    )
    refusals = RefusalRoutes(refused, replica=runtime.cluster.holder, clock=clock)
    streamed = EventRoutes(
        event_ring,
        refusals=refused,
        store=store,
        tasks=tasks,
        upstream_item=upstreams.item,
        mounts=mounts.by_name,
        clock=clock,
        replica=runtime.cluster.holder,
    )
    parts = (tasks, upstreams, callers, sessions, refusals, streamed, control, explain)

    async def close() -> None:
        await history.close()
        await streamed.close()

    return OperatorsApi(access, (route for part in parts for route in part.routes()), close=close)
