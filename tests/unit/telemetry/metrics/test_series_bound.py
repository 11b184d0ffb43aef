"""How many series there are at most is known beforehand, and holds whatever happens."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, Final

import orjson
import pytest

from helpers.emitting_metrics import EmittingMetrics
from helpers.ended_requests import http_answered, rpc_answered
from helpers.examples import examples
from helpers.records import new_record
from requirements import covers
from taskgate.auth.context import AuthContext, Identity
from taskgate.domain.record import FaultReason, OwnerKey, TaskRecord, TaskStatus
from taskgate.errors import AuthReason, StoreFault
from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.catalogue import FAMILIES, MANY_SERIES, STANDARD_SERIES, most_series, series_bound
from taskgate.telemetry.metrics.requests import HTTP_REQUESTS, SERVER_OPERATIONS
from taskgate.telemetry.metrics.settings import MetricsConfig, MetricsSettings
from taskgate.telemetry.metrics.storage import STORE_OPERATIONS

_OF_EXTENSIONS = ("widgets/list", "widgets/get")
NAMED: Final = ("com.example/widgets", "com.example/gadgets")
SMALL: Final = MetricsConfig(
    backend="sqlite",
    upstreams={"m": "reports"},
    issuers=["corp"],
    policies=["calls"],
    sinks=["file"],
    token_users=["m"],
    programs=["m"],
    extensions=NAMED,
    methods=_OF_EXTENSIONS,
    settings=MetricsSettings(max_tools=3),
)
DETAILED: Final = replace(
    SMALL,
    settings=replace(SMALL.settings, tool_histograms=True, tenants=frozenset({"acme", "umbrella"})),
)
FEW_BUCKETS: Final = replace(
    SMALL, settings=replace(SMALL.settings, tool_label=False, buckets={"mcp_server_operation_duration_seconds": (1.0,)})
)
SHARING: Final = replace(SMALL, backend="redis", settings=replace(SMALL.settings, shares_store=True))

Make = Callable[[Random], Any]
_WORDS = ("m", "gone", "calls", "corp", "_OTHER", "file", "ok", "x", "y", "z")
_METHODS = (*sorted(METHODS_OF_HOSTS | KNOWN_METHODS), *_OF_EXTENSIONS, "evil/one", "evil/two")
_TOOLS = (None, *(f"tool-{number}" for number in range(6)))
_TENANTS = (None, "acme", "umbrella", "other", "another")


def one(*values: Any) -> Make:
    return lambda random: random.choice(values)


def of(label: labels.Label) -> Make:
    """A value of that label, or none such."""
    return one(*(label.values or ()), "strange", "stranger")


def number(random: Random) -> int:
    return random.randrange(100)


def length(random: Random) -> timedelta:
    return timedelta(seconds=random.random() * 1e6)


def task(random: Random) -> TaskRecord:
    owner, status = OwnerKey("c", random.choice(("m", "m", "gone"))), random.choice(tuple(TaskStatus))
    return new_record(owner=owner, status=status, retrieved=random.random() < 0.5)


def made(kind: Callable[..., Any], *arguments: Make) -> Make:
    return lambda random: kind(*(argument(random) for argument in arguments))


_mount, _word, _flag, _method = one("m", "m", "gone"), one(*_WORDS), one(True, False), one(*_METHODS)
_status = one(*TaskStatus)
_ended = one("ok", "tool_error", "client", "mood", *FaultReason)
_why = one("ok", "jwks_unavailable", "mood", *(reason.value for reason in AuthReason))
EVENTS: Final[tuple[Make, ...]] = (
    made(http_answered, of(labels.ROUTE), of(labels.HTTP_METHOD), of(labels.STATUS_CODE), number),
    made(events.HttpRefused, of(labels.REJECTION)),
    made(events.StreamOpened, of(labels.SIDE), of(labels.STREAM_KIND)),
    made(rpc_answered, _mount, _method, of(labels.PROTOCOL), number, of(labels.ERROR)),
    made(events.UpstreamAnswered, _mount, _method, number, of(labels.ERROR)),
    made(events.ToolCalled, _mount, one(*_TOOLS), of(labels.DISPOSITION)),
    made(events.CallCoalesced, _mount, of(labels.COALESCED_BY)),
    made(events.TaskCreated, task, one(None, "clamped_max", "raised_min", "defaulted", "halved")),
    made(events.TaskTransitioned, task, _status),
    made(events.TaskFinished, task, _status, _ended, length, one(None, 5)),
    made(events.TaskExpired, task, of(labels.PHASE)),
    made(events.TaskPurged, task),
    made(events.TaskCancelRequested, task, of(labels.CANCEL_OUTCOME)),
    made(events.TaskRecovered, task, of(labels.RECOVERY_OUTCOME)),
    made(events.TaskRetrieved, task, length),
    made(events.TaskDenied, _mount, _method, of(labels.DENIAL), _word, one(None)),
    made(events.InputSettled, task, _word, of(labels.INPUT_KIND), of(labels.INPUT_OUTCOME)),
    made(events.InputWaited, task, length),
    made(events.PollsCounted, _mount, number),
    made(events.TaskPolled, _mount, of(labels.POLL_RESULT)),
    made(events.TokenRecognized, one("corp", "_OTHER", "evil")),
    made(events.TokenChecked, one("corp", "_OTHER", "evil"), _why, one(None, True, False)),
    made(events.KeysFetched, _word, of(labels.KEY_FETCH_RESULT), number),
    made(events.AccessRefused, _mount, _method, _flag),
    made(events.SuspicionRaised, of(labels.SUSPICION), _mount),
    made(events.CredentialsFetched, _mount, number, _flag),
    made(events.StoreUsed, of(labels.STORE_OPERATION), number, _flag),
    made(events.StoreFaulted, one(None, *StoreFault)),
    made(events.RateLimitAllowed, _word, of(labels.RATE_SCOPE)),
    made(events.RateLimitChecked, _word, of(labels.RATE_SCOPE), of(labels.RATE_DECISION)),
    made(events.CapRefused, of(labels.CAP), of(labels.CAP_SCOPE)),
    made(events.ConcurrencyChanged, _mount, number, number, number),
    made(events.QueueRefused, _mount, of(labels.QUEUE_REFUSAL)),
    made(events.UpstreamRetried, _mount, of(labels.RETRY_REASON)),
    made(events.HealthChecked, _mount, _flag, one(None, True, False)),
    made(events.ProgramRestarted, _mount, of(labels.RESTART_CAUSE)),
    made(events.ProgramAvailabilityChanged, _mount, _flag),
    made(events.ProgramsCounted, _mount, number),
    made(events.ExtensionDenied, _mount, one(*labels.EXTENSION.values or (), *NAMED, "strange", "stranger")),
    made(events.ConfigReloaded, of(labels.RELOAD_RESULT), number),
    made(events.AuditEventRecorded, of(labels.AUDIT_EVENT), of(labels.AUDIT_OUTCOME)),
    made(events.AuditLinesWritten, _word, number, number, number),
    made(events.AuditLinesDropped, _word, of(labels.DROP_REASON), number),
)
"""How to make an event of each kind that is counted: of what is known to be, and of what peers might invent."""


def here_of(tool: str | None, tenant: str | None) -> request_context.RequestContext:
    """The context of a request of a caller of that tenant who calls that tool."""
    here = request_context.RequestContext("id", "192.0.2.7", "POST", "/m")
    identity = Identity(
        issuer_name="corp", issuer="i", subject="s", client_id=None, tenant=tenant, scopes=frozenset(),
        expires_at=new_record().created_at, claims={},
    )  # fmt: skip
    here.caller = AuthContext(key="c", identity=identity)
    params = {} if tool is None else {"name": tool}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    here.message = parse(orjson.dumps(message), max_depth=9)
    return here


def found(metrics: EmittingMetrics) -> dict[str, int]:
    """How many series of each family are on the page, and how many in all."""
    counts = dict.fromkeys((family.name for family in FAMILIES), 0)
    lines = [line for line in metrics.render(None)[0].decode().splitlines() if not line.startswith("#")]
    for line in lines:
        name = line.partition("{")[0].partition(" ")[0]
        for suffix in ("", "_bucket", "_count", "_sum"):
            if (family := name.removesuffix(suffix)) in counts:
                counts[family] += 1
                break
    return counts | {"all": len(lines)}


@covers("O-AUD-4", "T44")
@pytest.mark.parametrize(
    "configured", [SMALL, DETAILED, FEW_BUCKETS, SHARING], ids=["small", "detailed", "few buckets", "sharing"]
)
def test_no_stream_of_events_makes_more_series_than_the_bound(
    configured: MetricsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even one that says all that there is to say, and much that there is not."""
    metrics = EmittingMetrics(configured)
    bounds = {family.name: most_series(family, configured) for family in FAMILIES}

    random = Random(7)
    for _ in range(examples(800)):
        with request_context.in_request(here_of(random.choice(_TOOLS), random.choice(_TENANTS))):
            for make in EVENTS:
                metrics.emit(make(random))
    now = found(metrics)
    assert now.pop("all") <= series_bound(configured)
    assert {name: count for name, count in now.items() if count > bounds[name]} == {}
    assert not caplog.records


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["mcp_server_operation_duration_seconds", "taskgate_tool_calls_total"])
def test_the_storm_comes_as_far_as_the_bound_lets_it(family: str) -> None:
    """Else the test above would show nothing."""
    metrics, random = EmittingMetrics(SMALL), Random(7)
    for _ in range(20_000):
        metrics.emit(random.choice(EVENTS)(random))
    [bound] = [most_series(each, SMALL) for each in FAMILIES if each.name == family]
    assert found(metrics)[family] > bound * 0.6


def test_every_series_that_there_is_at_first_is_within_the_bound() -> None:
    first = found(EmittingMetrics(SMALL))
    assert first.pop("all") - sum(first.values()) <= STANDARD_SERIES
    assert all(count <= most_series(family, SMALL) for family in FAMILIES for count in [first[family.name]])


def test_a_family_without_labels_has_one_series() -> None:
    [family] = [family for family in FAMILIES if family.name == "taskgate_ready"]
    assert most_series(family, SMALL) == 1


def test_the_bound_grows_with_what_is_configured() -> None:
    def bound(upstreams: int, **changes: Any) -> int:
        names = {str(number): str(number) for number in range(upstreams)}
        return series_bound(MetricsConfig(backend="sqlite", upstreams=names, settings=MetricsSettings(**changes)))

    usual = bound(3)
    assert 700 < bound(4) - usual < 800
    assert bound(3, max_tools=20) < usual < bound(3, tool_histograms=True)
    assert bound(3, tool_label=False) < bound(3, max_tools=20)
    assert usual < bound(3, tenants=frozenset({"acme"}))
    assert bound(3, buckets={"mcp_server_operation_duration_seconds": (1.0, 10.0)}) < usual


def test_operations_of_a_store_that_gateways_share_are_told_apart_however_many_of_them_fail() -> None:
    metrics = EmittingMetrics(SHARING)
    everything = [(operation, ok) for ok in (True, False) for operation in labels.STORE_OPERATION.values or ()]
    for operation, ok in everything:
        metrics.emit(events.StoreUsed(operation, 0.001, ok))
    family = STORE_OPERATIONS.name
    page = metrics.render(None)[0].decode().splitlines()
    told = [line for line in page if line.startswith(f"{family}_count") and "_OTHER" not in line]
    assert len(told) == len(everything)
    assert most_series(STORE_OPERATIONS, SHARING) > most_series(STORE_OPERATIONS, SMALL)


def test_tokens_are_timed_only_where_some_are_asked_for() -> None:
    assert series_bound(replace(SMALL, token_users=())) < series_bound(SMALL)


def test_programs_are_counted_only_where_some_are_ours() -> None:
    assert series_bound(replace(SMALL, programs=())) < series_bound(SMALL)


@pytest.mark.parametrize(("upstreams", "is_much"), [(1, False), (10, False), (11, True)])
def test_a_gateway_as_it_comes_with_ten_servers_is_nothing_to_warn_of(upstreams: int, is_much: bool) -> None:
    names = {str(number): str(number) for number in range(upstreams)}
    configured = MetricsConfig(
        backend="sqlite", upstreams=names, issuers=["corp"], policies=list("abcde"), sinks=["file", "stdout"]
    )
    assert (series_bound(configured) > MANY_SERIES) is is_much


def test_what_is_for_all_upstreams_together_is_for_whoever_comes_first() -> None:
    """One upstream may have all of it, and none has less than what is its own."""
    family = SERVER_OPERATIONS
    metrics = EmittingMetrics(replace(SMALL, upstreams={"m": "reports", "n": "search", "o": "prices"}))
    for mount in ("m", "n", "o"):
        for error in ("-32600", "-32601", "-32602"):
            for method in sorted(METHODS_OF_HOSTS):
                metrics.emit(rpc_answered(mount, method, "2025-11-25", 1.0, error))
    lines = [line for line in metrics.render(None)[0].decode().splitlines() if line.startswith(f"{family.name}_count")]
    counts = [sum(f'upstream="{name}"' in line for line in lines) for name in ("reports", "search", "prices")]
    own = (family.limits.own or 0) + 1
    assert counts == [own + family.limits.shared, own, own]


def test_names_that_nobody_configured_take_nothing_of_what_is_for_all() -> None:
    metrics = EmittingMetrics(SMALL)
    for status in (404, 405, 406):
        metrics.emit(http_answered("nowhere", "POST", status, 0.1))
    codes = (400, 403, 404, 405, 406, 408, 413, 414, 415, 421, 431)
    assert len(codes) == HTTP_REQUESTS.limits.shared
    for status in codes:
        metrics.emit(http_answered("mcp", "POST", status, 0.1))
    page = metrics.render(None)[0].decode()
    assert all(f'http_response_status_code="{status}",http_route="mcp"' in page for status in codes)


def test_tenants_have_room_for_each_tool_of_theirs() -> None:
    tenants = frozenset({"acme", "umbrella", "initech"})
    metrics = EmittingMetrics(replace(SMALL, settings=MetricsSettings(max_tools=1, tenants=tenants)))
    for tenant in (*tenants, None, "other"):
        with request_context.in_request(here_of("sum", tenant)):
            for disposition in ("task", "handoff", "inline", "direct", "rejected"):
                metrics.emit(events.ToolCalled("m", "sum", disposition))
    assert found(metrics)["taskgate_tool_calls_total"] == 5 * 5
