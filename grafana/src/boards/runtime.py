"""The runtime: the process and its store; what else there is of it is in `plumbing`."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.boards.plumbing import CONFIGURATION, LISTENER, SCRAPING
from grafana.src.panels import BAD, GOOD, QUARTER, Ask, Panel, Shape, Told, quantiles
from grafana.src.queries import grown, now, quantile, rate, select

_STORE: Final = "taskgate_store_operation_duration_seconds"

_STORES: Final = (
    Panel(
        title="Store latency",
        asks=[
            Ask(quantile(0.5, _STORE), "p50"),
            Ask(quantile(0.99, _STORE), "p99"),
        ],
        unit="s",
        bound=thresholds.STORE_SLOW,
        told=Told(
            "how long operations of the store take, all together.",
            "p99 in milliseconds.",
            "a slow disk, or another process on it; each task waits for the store before it is acknowledged.",
        ),
        alert="TaskgateStoreSlow",
    ),
    Panel(
        title="Store latency by operation",
        asks=quantiles(_STORE, 0.95, by="operation"),
        unit="s",
        told=Told(
            "the 95th percentile of each operation.",
            "page, purge and census take longest; beat, a sign of life in a store that gateways share, the least.",
            "one that stands out tells which part of the store is slow.",
        ),
        alert="TaskgateStoreSlow",
    ),
    Panel(
        title="Store operations",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_STORE}_count", by=["operation"]), "{{operation}}")],
        unit="ops",
        told=Told(
            "operations a second.",
            "follows the requests; load is what looks at tasks cost. Where gateways share the store, judge is one for "
            "each request, and beat is there without any.",
            "many swaps without requests are tasks whose servers report progress very often.",
        ),
        alert="TaskgateStoreSlow",
    ),
    Panel(
        title="Store",
        shape=Shape.NUMBER,
        asks=[Ask(now("taskgate_store_up", by=["instance", "backend"], how="min"), "{{instance}} {{backend}}")],
        unit="bool_yes_no",
        words=[("0", "down", BAD), ("1", "up", GOOD)],
        bound=thresholds.STORE_DOWN,
        span=QUARTER,
        told=Told(
            "whether the store works at each instance: its last operation did, and it has no fault.",
            "up.",
            "tasks are refused while it is down; calls that need no task still pass. Down at one of several that share "
            "it, it is the way there.",
        ),
        alert="TaskgateStoreDown",
    ),
    Panel(
        title="Store operations by result",
        shape=Shape.STACK,
        asks=[
            Ask(rate(f"{_STORE}_count", by=["backend", "result"]), "{{backend}} {{result}}"),
            Ask(now("taskgate_store_fault", by=["backend", "fault"], how="max"), "{{backend}} {{fault}}"),
        ],
        unit="ops",
        span=QUARTER,
        told=Told(
            "operations that worked, and those that failed; 1 for a fault of the store, such as disk_full.",
            "all ok.",
            "the log of the gateway says what to do; a full disk is the usual one.",
        ),
        alert="TaskgateStoreDown",
    ),
    Panel(
        title="Lost leases",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_leases_lost_total", by=["instance", "kind"]), "{{instance}} {{kind}}")],
        unit="short",
        span=QUARTER,
        told=Told(
            "what other instances took from this one, as it gave no sign of life for longer than `store.lease.ttl`.",
            "0.",
            "see what held it up: its event loop, its machine, or the way to the store; a longer lease bears more.",
        ),
        alert="TaskgateOrphanedTasks",
    ),
    Panel(
        title="Store size",
        asks=[
            Ask(now("taskgate_store_size_bytes", by=["backend"], how="max"), "{{backend}}"),
            Ask(now("taskgate_store_size_limit_bytes", by=["backend"], how="max"), "{{backend}}, the most"),
        ],
        unit="bytes",
        span=QUARTER,
        told=Told(
            "what the store takes, and what it may take (`store.sqlite.max_size`).",
            "far below.",
            "full, it refuses tasks: shorter times to live, smaller results, or more room.",
        ),
        alert="TaskgateStoreFilling",
    ),
)

_PROCESS: Final = (
    Panel(
        title="Event loop lag",
        asks=[
            Ask(quantile(0.5, "taskgate_event_loop_lag_seconds", by=["instance"]), "p50 {{instance}}"),
            Ask(quantile(0.99, "taskgate_event_loop_lag_seconds", by=["instance"]), "p99 {{instance}}"),
        ],
        unit="s",
        bound=thresholds.LOOP_BLOCKED,
        told=Told(
            "how late a ticker of 250 ms comes: for so long nothing else was done either.",
            "a few milliseconds.",
            "too much for one process: add instances; or very large messages.",
        ),
        alert="TaskgateEventLoopBlocked",
    ),
    Panel(
        title="CPU usage",
        asks=[Ask(rate("process_cpu_seconds_total", by=["instance"]), "{{instance}}")],
        unit="short",
        told=Told(
            "how many processors each instance keeps busy.",
            "below 0.7: the event loop has one.",
            "near 1 it is full; add instances.",
        ),
        alert="TaskgateEventLoopBlocked",
    ),
    Panel(
        title="Memory",
        asks=[Ask(now("process_resident_memory_bytes", by=["instance"]), "{{instance}}")],
        unit="bytes",
        told=Told(
            "memory that each instance has.",
            "flat after the first hour.",
            "if it only grows, note what grows with it and report it.",
        ),
        alert="TaskgateDown",
    ),
    Panel(
        title="Open file descriptors",
        asks=[
            Ask(now("process_open_fds", by=["instance"]), "{{instance}}"),
            Ask(now("process_max_fds", by=["instance"]), "{{instance}}, the most"),
        ],
        unit="short",
        told=Told(
            "open files and sockets, and how many there may be.",
            "about one for each open connection, far below the most.",
            "raise the limit of the service, or lower `server.max_connections`.",
        ),
        alert="TaskgateDown",
    ),
    Panel(
        title="Garbage collections",
        asks=[Ask(rate("python_gc_collections_total", by=["instance", "generation"]), "{{instance}} {{generation}}")],
        unit="ops",
        told=Told(
            "collections of Python, by generation.",
            "generation 2 seldom.",
            "often ones of generation 2 stop the event loop for long: see its lag.",
        ),
        alert="TaskgateEventLoopBlocked",
    ),
    Panel(
        title="Uptime",
        asks=[Ask(f"time() - max by (instance) ({select('process_start_time_seconds')})", "{{instance}}")],
        unit="s",
        told=Told(
            "how long each instance has been running.",
            "it climbs.",
            "a drop is a restart; if you did not do it, see what ended the process.",
        ),
        alert="TaskgateOrphanedTasks",
    ),
)

BOARD: Final = Board(
    uid="taskgate-runtime",
    title="taskgate / Runtime",
    about="The process, its store, its listener and its configuration, and what scraping it costs.",
    rows=(
        Row(title="Store", panels=_STORES),
        Row(title="Process", panels=_PROCESS),
        Row(title="Public listener", panels=LISTENER),
        Row(title="Configuration", panels=CONFIGURATION),
        Row(title="Scraping", panels=SCRAPING),
    ),
)
