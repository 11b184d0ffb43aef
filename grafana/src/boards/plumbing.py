"""What else there is of the runtime: the listener, the configuration, and what scraping costs."""

from typing import Final

from grafana.src import thresholds
from grafana.src.panels import BAD, GOOD, QUARTER, THIRD, Ask, Panel, Shape, Told
from grafana.src.queries import grown, now, quantile, rate, select

_HTTP: Final = "http_server_request_duration_seconds"

LISTENER: Final = (
    Panel(
        title="HTTP requests by status",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_HTTP}_count", by=["http_response_status_code"]), "{{http_response_status_code}}")],
        unit="reqps",
        told=Told(
            "requests at the public listener, by HTTP status.",
            "200 and 202; errors inside JSON-RPC are 200 as well.",
            "401 are hosts without a good token, 404 unknown paths and lost sessions, 503 a gateway that shuts down.",
        ),
        alert="TaskgateErrorBudgetFastBurn",
    ),
    Panel(
        title="HTTP request duration",
        asks=[Ask(quantile(0.95, _HTTP, 'http_request_method="POST"', by=["http_route"]), "p95 {{http_route}}")],
        unit="s",
        told=Told(
            "the 95th percentile of POST requests, to the end of their answer; prm is the metadata of RFC 9728.",
            "milliseconds, or as long as calls that are no tasks.",
            "compare with the time upstreams take.",
        ),
        alert="TaskgateLatencyHigh",
    ),
    Panel(
        title="HTTP requests in flight",
        shape=Shape.STACK,
        asks=[Ask(now("http_server_active_requests", by=["http_route"]), "{{http_route}}")],
        unit="short",
        told=Told(
            "requests under way now, open streams included.",
            "one for each host that waits or listens.",
            "if it only grows, see which kind of stream it is on the dashboard of the upstreams.",
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
        told=Told(
            "whether the configuration was taken over when it was last read.",
            "in force.",
            "the gateway runs on with the one before; its log names every fault of the file.",
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
        told=Told(
            "how long ago the configuration in force was read.",
            "since the last change or start.",
            "an instance that is behind the others did not get the change.",
        ),
        alert="TaskgateConfigDrift",
    ),
    Panel(
        title="Configuration reloads",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_config_reloads_total", by=["result"]), "{{result}}")],
        unit="short",
        span=QUARTER,
        told=Told(
            "times that the configuration was read again, by how it ended.",
            "success or unchanged.",
            "needs_restart: a part of the change waits for a restart; `taskgate check` says which.",
        ),
        alert="TaskgateConfigReloadFailed",
    ),
    Panel(
        title="Draining instances",
        asks=[Ask(now("taskgate_draining", by=["instance"]), "{{instance}}")],
        unit="bool_yes_no",
        span=QUARTER,
        told=Told(
            "1 from the moment an instance begins to shut down.",
            "0, and 1 for `server.drain.timeout` at most.",
            "one that drains for longer waits for tasks; a second signal ends it.",
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
        told=Told(
            "release, source and interpreter of each instance.",
            "the same everywhere.",
            "finish the roll-out.",
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
        told=Told(
            "how long Prometheus waits for the metrics.",
            "well below a second.",
            "too many series: `taskgate metrics` prints where they come from.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
    Panel(
        title="Exported series",
        asks=[Ask(now("scrape_samples_scraped", by=["instance"], how="max"), "{{instance}}")],
        unit="short",
        span=THIRD,
        told=Told(
            "how many series each instance exports.",
            "below what `taskgate metrics` prints as the bound.",
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
        told=Told(
            "values that became `_OTHER`, by label.",
            "0, or few.",
            "tool: more tools than `metrics.max_tools`; the others are what hosts make up.",
        ),
        alert="TaskgateCardinalityOverflow",
    ),
)
