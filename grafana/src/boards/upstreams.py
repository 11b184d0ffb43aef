"""The upstreams: are they well, how fast do they answer, what goes wrong between them and the gateway."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.panels import BAD, GOOD, HALF, QUARTER, Ask, Panel, Shape, Told, quantiles
from grafana.src.queries import among, now, quantile, rate

_CALLED: Final = "mcp_client_operation_duration_seconds"
_WELL: Final = 'error_type=""'

_HEALTH: Final = (
    Panel(
        title="Upstream health",
        shape=Shape.TIMELINE,
        asks=[Ask(now("taskgate_upstream_up", by=["upstream"], how="min"), "{{upstream}}")],
        unit="bool_yes_no",
        words=[("0", "down", BAD), ("1", "up", GOOD)],
        bound=thresholds.UPSTREAM_DOWN,
        span=HALF,
        height=6,
        told=Told(
            "the health of each upstream over time: down where one chosen instance or more thinks "
            "so. An upstream without a check is not shown.",
            "up.",
            "the log names the reason of the last failed check.",
        ),
        alert="TaskgateUpstreamDown",
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
        told=Told(
            "the circuit of each upstream over time: open while calls are not sent after failures, or only tried.",
            "closed.",
            "calls fail at once meanwhile; it closes by itself when the upstream answers again.",
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
        told=Told(
            "requests that wait for an answer of the upstream now, of every method.",
            "follows the load.",
            "if it climbs while the rate does not, the upstream gets slower.",
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
        span=HALF,
        height=6,
        told=Told(
            "checks sent, by how they ended.",
            "ok, one each `health.interval`.",
            "some errors among the rest: an upstream that flaps, or a timeout that is too short.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
)

_RED: Final = (
    Panel(
        title="Requests to upstreams",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_CALLED}_count", by=["upstream", "mcp_method_name"]), "{{upstream}} {{mcp_method_name}}")],
        unit="reqps",
        told=Told(
            "requests that the gateway sends, by upstream and method.",
            "mostly tools/call.",
            "many initialize are sessions that the upstream ends, see below.",
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
        told=Told(
            "requests that an upstream answered with an error, or not at all.",
            "tool_error at most.",
            "unreachable and closed: it is down or restarts. timeout: raise `timeouts.call`, or it hangs. refused: see "
            "its credentials.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Upstream error ratio",
        asks=[Ask(among(f"{_CALLED}_count", 'error_type!~"|tool_error|cancelled"', by=["upstream"]), "{{upstream}}")],
        unit="percentunit",
        told=Told(
            "the share of requests that came to nothing; a tool's own error is an answer, and cancelled ones are not "
            "its fault.",
            "near 0.",
            "after some failures in a row its circuit opens.",
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
        told=Told(
            "how long the upstream took for calls that ended well, those of tasks included.",
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
        told=Told(
            "how long lists, prompts, resources and handshakes take.",
            "milliseconds.",
            "an upstream that is slow even here has too much to do, or is far away.",
        ),
        alert="TaskgateOverheadHigh",
    ),
)

_CONNECTION: Final = (
    Panel(
        title="Upstream retries",
        asks=[Ask(rate("taskgate_upstream_retries_total", by=["upstream", "reason"]), "{{upstream}} {{reason}}")],
        unit="reqps",
        told=Told(
            "further tries of what could not leave: nothing is sent twice of which a byte may have arrived.",
            "0.",
            "connections that fail at first: an upstream that restarts, or a network that loses them.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
    Panel(
        title="Lost upstream sessions",
        asks=[Ask(rate("taskgate_upstream_sessions_lost_total", by=["upstream"]), "{{upstream}}")],
        unit="cps",
        told=Told(
            "sessions that the upstream did not know any more.",
            "0, or one for each session when it restarts.",
            "an upstream that forgets sessions too soon, or several of them behind one address without stickiness.",
        ),
        alert="TaskgateUpstreamFlapping",
    ),
    Panel(
        title="Coalesced calls",
        shape=Shape.STACK,
        asks=[Ask(rate("taskgate_calls_joined_total", by=["upstream", "how"]), "{{upstream}} {{how}}")],
        unit="reqps",
        told=Told(
            "calls that were not sent, as the same call was under way or had just been: by key, or as a retry.",
            "0 without `join_retries` and keys.",
            "many are hosts that time out and call again: the tool is slower than their patience.",
        ),
        alert="TaskgateTasksExpiring",
    ),
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
        told=Told(
            "tokens asked for at an authorization server, to show to an upstream.",
            "few, as they are remembered; none where no upstream needs one.",
            "errors: calls to that upstream fail as long as there is no token.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Token exchange duration",
        asks=quantiles("taskgate_token_exchange_duration_seconds", 0.5, 0.95),
        unit="s",
        span=QUARTER,
        told=Told(
            "how long the authorization server takes.",
            "less than a second; the call waits for it.",
            "ask who runs it.",
        ),
        alert="TaskgateUpstreamDown",
    ),
    Panel(
        title="Open event streams",
        shape=Shape.STACK,
        asks=[Ask(now("taskgate_streams", by=["side", "kind"]), "{{side}} {{kind}}")],
        unit="short",
        span=QUARTER,
        told=Told(
            "event streams: downstream to hosts, upstream to servers; answers, GET streams, and streams that listen.",
            "about one for each host that waits.",
            "if it only grows, hosts leave without closing; `server.idle_timeout` ends those.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Denied extensions",
        shape=Shape.STACK,
        asks=[
            Ask(rate("taskgate_extensions_denied_total", by=["upstream", "extension"]), "{{upstream}} {{extension}}"),
        ],
        unit="cps",
        span=QUARTER,
        told=Told(
            "declarations of extensions that do not cross, by hosts and by upstreams.",
            "0, or one for each session of a host with an extension of its own.",
            "an extension that users miss: see `upstreams.*.extensions`; "
            "the log says `a declared extension is not forwarded`.",
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
        told=Told(
            "processes of upstreams that taskgate starts itself, those that are being started or ended included.",
            "about one for each caller; with `sessions: shared`, up to `processes`.",
            "at `processes` for long: callers wait for each other's programs to be idle.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
    Panel(
        title="Server process restarts",
        asks=[Ask(rate("taskgate_upstream_restarts_total", by=["upstream", "reason"]), "{{upstream}} {{reason}}")],
        unit="cps",
        span=HALF,
        height=6,
        told=Told(
            "programs that took the place of one that ended by itself, by how that ended.",
            "0.",
            "a program that crashes: its calls fail each time, and its log is among taskgate's.",
        ),
        alert="TaskgateUpstreamRestarting",
    ),
)

BOARD: Final = Board(
    uid="taskgate-upstreams",
    title="taskgate / Upstreams",
    about="Whether the servers behind are well, how fast they answer, and what goes wrong on the way to them.",
    rows=(
        Row(title="Health", panels=_HEALTH),
        Row(title="Requests: rate, errors, duration", panels=_RED),
        Row(title="Connections, credentials, extensions", panels=_CONNECTION),
        Row(title="Programs", panels=_PROGRAMS),
    ),
)
