"""More of the runtime: listener, configuration, and the cost of scrapes."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import BAD, GOOD, QUARTER, THIRD, Ask, Guidance, Panel, Shape
from grafana.src.queries import grown, now, quantile, rate, select

_HTTP: Final = "http_server_request_duration_seconds"

LISTENER: Final = (
    Panel(
        title="HTTP requests by status",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_HTTP}_count", by=["http_response_status_code"]), "{{http_response_status_code}}")],
        unit="reqps",
        guidance=Guidance(
            "requests at the public listener, by HTTP status.",
            "200 and 202; errors inside JSON-RPC are 200 too.",
            "401: hosts without a valid token. 404: unknown paths and lost sessions. 503: a shutdown.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="HTTP request duration",
        asks=[Ask(quantile(0.95, _HTTP, 'http_request_method="POST"', by=["http_route"]), "p95 {{http_route}}")],
        unit="s",
        guidance=Guidance(
            "the 95th percentile of POST requests, to the end of their response; prm is the metadata of RFC 9728.",
            "milliseconds, or the duration of calls that are no tasks.",
            "compare with the duration at the upstreams.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="HTTP requests in flight",
        shape=Shape.STACK,
        asks=[Ask(now("http_server_active_requests", by=["http_route"]), "{{http_route}}")],
        unit="short",
        guidance=Guidance(
            "requests in flight, with open streams.",
            "one for each host that waits or subscribes.",
            "if it only grows, find the kind of stream on the dashboard of the upstreams.",
        ),
        alert="TaskgateConcurrencySaturated",
    ),
)

CONFIGURATION: Final = (
    Panel(
        title="Configuration reload status",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_config_last_reload_successful", by=["instance"], how="min"), "{{instance}}")],
        unit="bool_yes_no",
        words=[("0", "refused", BAD), ("1", "in force", GOOD)],
        bound=thresholds.RELOAD_FAILED,
        span=QUARTER,
        guidance=Guidance(
            "whether the last reload succeeded.",
            "in force.",
            "the gateway continues with the configuration before; its log names every fault of the file.",
        ),
        alert="TaskgateConfigReloadFailed",
    ),
    Panel(
        title="Time since the last successful reload",
        asks=[
            Ask(
                f"time() - max by (instance) ({select('taskgate_config_last_reload_success_timestamp_seconds')} > 0)",
                "{{instance}}",
            )
        ],
        unit="s",
        span=QUARTER,
        guidance=Guidance(
            "the time since the configuration in force was read.",
            "since the last change or start.",
            "an instance that differs from the others did not get the change.",
        ),
        alert="TaskgateConfigDrift",
    ),
    Panel(
        title="Configuration reloads",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_config_reloads_total", by=["result"]), "{{result}}")],
        unit="short",
        span=QUARTER,
        guidance=Guidance(
            "reloads of the configuration, by result.",
            "success or unchanged.",
            "needs_restart: a part of the change waits for a restart; `taskgate check` names it.",
        ),
        alert="TaskgateConfigReloadFailed",
    ),
    Panel(
        title="Draining instances",
        asks=[Ask(now("taskgate_draining", by=["instance"]), "{{instance}}")],
        unit="bool_yes_no",
        span=QUARTER,
        guidance=Guidance(
            "1 from the moment an instance begins to shut down.",
            "0, and 1 for `server.drain.timeout` at most.",
            "an instance that drains for longer waits for tasks; a second signal ends it.",
        ),
        alert="TaskgateNotReady",
    ),
    Panel(
        title="Versions by instance",
        shape=Shape.TABLE,
        asks=[
            Ask(
                f"max by (instance, version, revision, python_version) ({select('taskgate_build_info')})",
                "running",
            )
        ],
        unit="short",
        decimals=0,
        span=24,
        height=6,
        guidance=Guidance(
            "release, source and interpreter of each instance.",
            "the same everywhere.",
            "complete the roll-out.",
        ),
        alert="TaskgateDown",
    ),
)

SCRAPING: Final = (
    Panel(
        title="Scrape duration",
        asks=[Ask(now("scrape_duration_seconds", by=["instance"], how="max"), "{{instance}}")],
        unit="s",
        span=THIRD,
        guidance=Guidance(
            "how long Prometheus waits for the metrics.",
            "below a second.",
            "too many series: `taskgate metrics` prints their number by family.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
    Panel(
        title="Exported series",
        asks=[Ask(now("scrape_samples_scraped", by=["instance"], how="max"), "{{instance}}")],
        unit="short",
        span=THIRD,
        guidance=Guidance(
            "the number of series that each instance exports.",
            "below the bound that `taskgate metrics` prints.",
            "turn off `metrics.tool_histograms`, or lower `metrics.max_tools`.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
    Panel(
        title="Label overflows",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_metrics_label_overflows_total", by=["label"]), "{{label}}")],
        unit="short",
        span=THIRD,
        guidance=Guidance(
            "values that became `_OTHER`, by label.",
            "0, or few.",
            "tool: more tools than `metrics.max_tools`, or tool names that hosts invent.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
)
