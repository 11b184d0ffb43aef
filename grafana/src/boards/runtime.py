"""The runtime: the process and its store; `plumbing` has the other rows."""

from typing import Final

from grafana.src import thresholds
from grafana.src.board import Board, Row
from grafana.src.boards.plumbing import CONFIGURATION, LISTENER, SCRAPING
from grafana.src.panels import BAD, GOOD, QUARTER, Ask, Guidance, Panel, Shape, quantiles
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
        guidance=Guidance(
            "the duration of all operations of the store.",
            "p99 in milliseconds.",
            "a slow disk, or another process on it; each task waits for the store before it is acknowledged.",
        ),
        alert="TaskgateStoreSlow",
    ),
    Panel(
        title="Store latency by operation",
        asks=quantiles(_STORE, 0.95, by="operation"),
        unit="s",
        guidance=Guidance(
            "the 95th percentile of each operation.",
            "page, purge and census take longest; beat, the sign of life in a shared store, is the shortest.",
            "one slow operation shows which part of the store is slow.",
        ),
        alert="TaskgateStoreSlow",
    ),
    Panel(
        title="Store operations",
        shape=Shape.STACK,
        asks=[Ask(rate(f"{_STORE}_count", by=["operation"]), "{{operation}}")],
        unit="ops",
        guidance=Guidance(
            "operations a second.",
            "follows the requests; load is the cost of polls. In a shared store, judge is one for each request, "
            "and beat runs without requests.",
            "many swaps without requests: tasks whose servers report progress very often.",
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
        guidance=Guidance(
            "whether the store works at each instance: its last operation succeeded, and it reports no fault.",
            "up.",
            "while it is down, tasks are refused, and calls that need no task still pass. If a shared store is "
            "down at one instance alone, check the network.",
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
        guidance=Guidance(
            "operations that succeeded, and those that failed; 1 for a fault of the store, such as disk_full.",
            "all ok.",
            "the log of the gateway names the remedy; a full disk is the usual cause.",
        ),
        alert="TaskgateStoreDown",
    ),
    Panel(
        title="Lost leases",
        shape=Shape.STACK,
        asks=[Ask(grown("taskgate_leases_lost_total", by=["instance", "kind"]), "{{instance}} {{kind}}")],
        unit="short",
        span=QUARTER,
        guidance=Guidance(
            "leases that other instances took from this one, because it gave no sign of life for longer than "
            "`store.lease.ttl`.",
            "0.",
            "find what blocked it: its event loop, its machine, or the network to the store. A longer lease "
            "tolerates more.",
        ),
        alert="TaskgateOrphanedTasks",
    ),
    Panel(
        title="Store size",
        asks=[
            Ask(now("taskgate_store_size_bytes", by=["backend"], how="max"), "{{backend}}"),
            Ask(now("taskgate_store_size_limit_bytes", by=["backend"], how="max"), "{{backend}}, limit"),
        ],
        unit="bytes",
        span=QUARTER,
        guidance=Guidance(
            "the size of the store, and its limit (`store.sqlite.max_size`).",
            "far below the limit.",
            "a full store refuses tasks: shorten times to live, limit results, or raise the limit.",
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
        guidance=Guidance(
            "how late a timer of 250 ms fires: the event loop was blocked for that time.",
            "a few milliseconds.",
            "too much load for one process: add instances. Or very large messages.",
        ),
        alert="TaskgateEventLoopBlocked",
    ),
    Panel(
        title="CPU usage",
        asks=[Ask(rate("process_cpu_seconds_total", by=["instance"]), "{{instance}}")],
        unit="short",
        guidance=Guidance(
            "how many processors each instance uses.",
            "below 0.7: the event loop has one.",
            "near 1 the processor is full: add instances.",
        ),
        alert="TaskgateEventLoopBlocked",
    ),
    Panel(
        title="Memory",
        asks=[Ask(now("process_resident_memory_bytes", by=["instance"]), "{{instance}}")],
        unit="bytes",
        guidance=Guidance(
            "resident memory of each instance.",
            "flat after the first hour.",
            "if it only grows, find what grows with it, and report it.",
        ),
        alert="TaskgateDown",
    ),
    Panel(
        title="Open file descriptors",
        asks=[
            Ask(now("process_open_fds", by=["instance"]), "{{instance}}"),
            Ask(now("process_max_fds", by=["instance"]), "{{instance}}, limit"),
        ],
        unit="short",
        guidance=Guidance(
            "open files and sockets, and their limit.",
            "about one for each open connection, far below the limit.",
            "raise the limit of the service, or lower `server.max_connections`.",
        ),
        alert="TaskgateDown",
    ),
    Panel(
        title="Garbage collections",
        asks=[Ask(rate("python_gc_collections_total", by=["instance", "generation"]), "{{instance}} {{generation}}")],
        unit="ops",
        guidance=Guidance(
            "collections of Python, by generation.",
            "generation 2 seldom.",
            "frequent collections of generation 2 block the event loop: see its lag.",
        ),
        alert="TaskgateEventLoopBlocked",
    ),
    Panel(
        title="Uptime",
        asks=[Ask(f"time() - max by (instance) ({select('process_start_time_seconds')})", "{{instance}}")],
        unit="s",
        guidance=Guidance(
            "the time since the start of each instance.",
            "rises.",
            "a drop is a restart; if you did not restart it, find why the process ended.",
        ),
        alert="TaskgateOrphanedTasks",
    ),
)

BOARD: Final = Board(
    uid="taskgate-runtime",
    title="taskgate / Runtime",
    about="The process, its store, listener and configuration, and the cost of scrapes.",
    rows=(
        Row(title="Store", panels=_STORES),
        Row(title="Process", panels=_PROCESS),
        Row(title="Public listener", panels=LISTENER),
        Row(title="Configuration", panels=CONFIGURATION),
        Row(title="Scraping", panels=SCRAPING),
    ),
)
