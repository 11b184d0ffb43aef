"""Upstreams: health, duration and errors of requests, connections and processes."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.panels import BAD, GOOD, HALF, PLAIN, QUARTER, Ask, Guidance, Panel, Shape, quantiles
from grafana.src.queries import among, now, quantile, rate

_CALLED: Final = "mcp_client_operation_duration_seconds"
_WELL: Final = 'error_type=""'


def _in_state(state: str) -> str:
    return now("taskgate_upstream_state", f'state="{state}"', by=["upstream"], how="max")


_HEALTH: Final = (
    Panel(
        title="Upstream state",
        shape=Shape.TIMELINE,
        asks=[Ask(f"{_in_state('refusing')} + 2 * {_in_state('down')} + 3 * {_in_state('held')}", "{{upstream}}")],
        unit="short",
        words=[("0", "up", GOOD), ("1", "refusing", BAD), ("2", "down", BAD), ("3", "held", PLAIN)],
        bound=thresholds.UPSTREAM_REFUSING,
        span=HALF,
        height=6,
        guidance=Guidance(
            "the state of each upstream over time, from its calls and checks, as the instance sees it that sees the "
            "worst.",
            "up.",
            "`taskgate upstreams ls`, `taskgate doctor` and the log have the cause.",
        ),
        alert="TaskgateUpstreamRefusing",
    ),
    Panel(
        title="Circuit breaker",
        shape=Shape.TIMELINE,
        asks=[Ask(now("taskgate_upstream_circuit_open", by=["upstream"], how="max"), "{{upstream}}")],
        unit="bool_on_off",
        words=[("0", "closed", GOOD), ("1", "open", BAD)],
        bound=thresholds.CIRCUIT_OPEN,
        span=HALF,
        height=6,
        guidance=Guidance(
            "the circuit of each upstream over time. Open includes half open, when only trial calls are sent.",
            "closed.",
            "calls fail at once meanwhile; the circuit closes when the upstream responds again.",
        ),
        alert="TaskgateCircuitOpen",
    ),
    Panel(
        title="Requests in flight",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_upstream_requests_in_flight", by=["upstream"]), "{{upstream}}")],
        unit="short",
        span=HALF,
        height=6,
        guidance=Guidance(
            "requests of every method that wait for a response of the upstream.",
            "follows the load.",
            "if it rises and the rate does not, the upstream gets slower.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Health checks",
        shape=Shape.STACK,
        asks=[
            Ask(rate("taskgate_upstream_health_checks_total", by=["upstream", "result"]), "{{upstream}} {{result}}"),
        ],
        unit="reqps",
        span=QUARTER,
        height=6,
        guidance=Guidance(
            "health checks, by result.",
            "ok, one for each `health.interval`.",
            "some errors: an upstream that flaps, or a timeout that is too short.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
    Panel(
        title="Healthy by checks",
        shape=Shape.TIMELINE,
        asks=[Ask(now("taskgate_upstream_up", by=["upstream"], how="min"), "{{upstream}}")],
        unit="bool_yes_no",
        words=[("0", "no", BAD), ("1", "yes", GOOD)],
        span=QUARTER,
        height=6,
        guidance=Guidance(
            "what the health checks alone say of each upstream, over time. One without a check is not shown.",
            "yes.",
            "the state beside it has calls, too; `taskgate upstreams ls` has the cause.",
        ),
        alert="TaskgateUpstreamDown",
    ),
)

_RED: Final = (
    Panel(
        title="Requests to upstreams",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_CALLED}_count", by=["upstream", "mcp_method_name"]), "{{upstream}} {{mcp_method_name}}")],
        unit="reqps",
        guidance=Guidance(
            "requests that the gateway sends, by upstream and method.",
            "mostly tools/call.",
            "many initialize: the upstream ends sessions, see below.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
    Panel(
        title="Upstream errors by type",
        shape=Shape.STACK,
        asks=[
            Ask(
                rate(f"{_CALLED}_count", 'error_type!=""', by=["upstream", "error_type"]), "{{upstream}} {{error_type}}"
            )
        ],
        unit="reqps",
        guidance=Guidance(
            "requests that an upstream answered with an error, or not at all.",
            "at most tool_error.",
            "unreachable and closed: it is down or restarts. timeout: raise `timeouts.call`, or it hangs. "
            "refused: check its credentials.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Upstream error ratio",
        asks=[Ask(among(f"{_CALLED}_count", 'error_type!~"|tool_error|cancelled"', by=["upstream"]), "{{upstream}}")],
        unit="percentunit",
        guidance=Guidance(
            "the share of failed requests. A tool's own error is a response, and cancelled requests do not count.",
            "near 0.",
            "after some failures in a row the circuit opens.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="Tool call duration",
        asks=[
            Ask(
                quantile(rank, _CALLED, _WELL, 'mcp_method_name="tools/call"', by=["upstream"]),
                f"p{rank * 100:g} {{{{upstream}}}}",
            )
            for rank in (0.5, 0.95)
        ],
        unit="s",
        span=HALF,
        exemplars=True,
        guidance=Guidance(
            "the duration of successful calls at the upstream, with the calls of tasks.",
            "what the tools take.",
            "a dot is a trace to open.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Duration of other requests",
        asks=[
            Ask(
                quantile(rank, _CALLED, _WELL, 'mcp_method_name!="tools/call"', by=["upstream"]),
                f"p{rank * 100:g} {{{{upstream}}}}",
            )
            for rank in (0.5, 0.95)
        ],
        unit="s",
        span=HALF,
        guidance=Guidance(
            "the duration of lists, prompts, resources and handshakes.",
            "milliseconds.",
            "an upstream that is slow even here is overloaded, or far away.",
        ),
        alert="TaskgateOverheadHigh",
    ),
)

_CONNECTION: Final = (
    Panel(
        title="Upstream retries",
        asks=[Ask(rate("taskgate_upstream_retries_total", by=["upstream", "reason"]), "{{upstream}} {{reason}}")],
        unit="reqps",
        guidance=Guidance(
            "retries of requests that were not sent. taskgate never retries a request of which the upstream may "
            "have received a byte.",
            "0.",
            "connections fail at first: an upstream that restarts, or a network that loses connections.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
    Panel(
        title="Lost upstream sessions",
        asks=[Ask(rate("taskgate_upstream_sessions_lost_total", by=["upstream"]), "{{upstream}}")],
        unit="cps",
        guidance=Guidance(
            "sessions that the upstream no longer knew.",
            "0, or one for each session when it restarts.",
            "the upstream ends sessions too soon, or several of them are behind one address without stickiness.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
    Panel(
        title="Open event streams",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_streams", by=["side", "kind"]), "{{side}} {{kind}}")],
        unit="short",
        guidance=Guidance(
            "event streams: downstream to hosts, upstream to servers; responses, GET streams, and subscriptions.",
            "about one for each host that waits.",
            "if it only grows, hosts disconnect without closing; `server.idle_timeout` ends those streams.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
)

_SELDOM: Final = (
    Panel(
        title="Token exchanges",
        shape=Shape.STACK,
        asks=[
            Ask(
                rate("taskgate_token_exchange_duration_seconds_count", by=["upstream", "result"]),
                "{{upstream}} {{result}}",
            )
        ],
        unit="reqps",
        span=QUARTER,
        guidance=Guidance(
            "tokens requested from an authorization server, as credentials for an upstream.",
            "few, because they are cached; none without such an upstream.",
            "errors: calls to that upstream fail until there is a token.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Token exchange duration",
        asks=quantiles("taskgate_token_exchange_duration_seconds", 0.5, 0.95),
        unit="s",
        span=QUARTER,
        guidance=Guidance(
            "the duration of requests to the authorization server.",
            "less than a second; the call waits for it.",
            "ask the operator of the authorization server.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Coalesced calls",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_calls_joined_total", by=["upstream", "how"]), "{{upstream}} {{how}}")],
        unit="reqps",
        span=QUARTER,
        guidance=Guidance(
            "calls that were not sent, because the same call ran or had just run: by idempotency key, or as a retry.",
            "0 without `join_retries` and keys.",
            "many: hosts time out and call again, because the tool is slower than their timeout.",
        ),
        alert="TaskgateTasksExpiring",
    ),
    Panel(
        title="Denied extensions",
        shape=Shape.STACK,
        asks=[
            Ask(rate("taskgate_extensions_denied_total", by=["upstream", "extension"]), "{{upstream}} {{extension}}"),
        ],
        unit="cps",
        span=QUARTER,
        guidance=Guidance(
            "declarations of extensions that are not forwarded, by hosts and by upstreams.",
            "0, or one for each session of a host with an extension of its own.",
            "users miss an extension: see `upstreams.*.extensions`; the log line is `a declared extension is "
            "not forwarded`.",
        ),
        alert="TaskgateConfigDrift",
    ),
)

_PROGRAMS: Final = (
    Panel(
        title="Server processes",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_upstream_processes", by=["upstream"]), "{{upstream}}")],
        unit="short",
        span=HALF,
        height=6,
        guidance=Guidance(
            "processes of upstreams with `transport: stdio`, with those that start or end.",
            "about one for each caller; with `sessions: shared`, up to `processes`.",
            "at `processes` for long: callers wait until processes of other callers are idle.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Server process restarts",
        asks=[Ask(rate("taskgate_upstream_restarts_total", by=["upstream", "reason"]), "{{upstream}} {{reason}}")],
        unit="cps",
        span=HALF,
        height=6,
        guidance=Guidance(
            "processes that replaced one that ended by itself, by how it ended.",
            "0.",
            "a program crashes: its calls fail each time, and its log lines are in the log of taskgate.",
        ),
        alert="TaskgateUpstreamRestarting",
    ),
)

BOARD: Final = Board(
    uid="taskgate-upstreams",
    title="taskgate / Upstreams",
    about="Health of the upstreams, duration and errors of requests to them, connections and processes.",
    rows=(
        Row(title="Health", panels=_HEALTH),
        Row(title="Requests: rate, errors, duration", panels=_RED, leads_to="taskgate-tasks"),
        Row(title="Connections", panels=_CONNECTION),
        Row(title="Token exchange, coalesced calls, extensions", panels=_SELDOM, is_closed=True),
        Row(title="Servers that are programs (stdio)", panels=_PROGRAMS, is_closed=True),
    ),
)
