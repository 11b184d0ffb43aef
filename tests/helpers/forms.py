"""Which tests the forms leave out: by folder and parameters for `make test`, by file for `make test-all`."""

from pathlib import Path
from typing import Final

THOROUGH: Final[dict[str, set[str]]] = {
    "attacks": set(),
    "carriage": set(),
    "chaos": set(),
    "console": {"test_sign_in", "test_tasks"},
    "differential": set(),
    "grafana": {"test_dashboards", "test_dashboards_rules", "test_dashboards_schema"},
    "interop": {"test_native_modern_tasks", "test_tasks_of_real_servers", "test_whole_sessions"},
    "kill": set(),
    "mutants": {"test_package_trial"},
    "observability": set(),
    "packages": {"test_setup", "test_wheel"},
    "replicas": {"test_tasks_anywhere"},
    "shared_store": set(),
    "suites": {"test_gunicorn_requests", "test_verdicts"},
}
"""By folder: its tests are marked `thorough`, but for those of the files."""

LONG: Final = frozenset({
    "tests/carriage/test_isolation.py",
    "tests/contract/test_histories.py",
    "tests/grafana/test_alerts.py",
    "tests/house/test_bench.py",
    "tests/house/test_bench_observing.py",
    "tests/house/test_bench_operators.py",
    "tests/house/test_bench_shared.py",
    "tests/interop/test_apps.py",
    "tests/interop/test_calls_that_outlive_gateways.py",
    "tests/interop/test_drains.py",
    "tests/interop/test_hosts_without_tasks.py",
    "tests/interop/test_inspector.py",
    "tests/interop/test_operators_document.py",
    "tests/interop/test_questions_between_eras.py",
    "tests/interop/test_questions_of_real_programs.py",
    "tests/interop/test_questions_of_real_servers.py",
    "tests/interop/test_real_servers_deployed_anew.py",
    "tests/interop/test_refusals.py",
    "tests/interop/test_restarts_of_real_processes.py",
    "tests/interop/test_server_everything.py",
    "tests/interop/test_servers_of_every_kind.py",
    "tests/interop/test_skills.py",
    "tests/observability/test_audit_log_of_it.py",
    "tests/observability/test_discretion_of_it.py",
    "tests/observability/test_metrics_of_it.py",
    "tests/observability/test_queries_of_it.py",
    "tests/replicas/test_clocks_apart.py",
    "tests/shared_store/test_failover.py",
    "tests/suites/test_directly.py",
})  # fmt: skip
"""Files that take long, many of them with all pairs of released hosts and servers. Only `make long` runs them."""

ON_UVLOOP: Final = frozenset(
    f"tests/interaction/test_{each}.py"
    for each in (
        *("bridge_tasks", "ends_of_calls", "event_stream_servers", "handoff", "kept_connections", "large_bodies"),
        *("modern_calls", "modern_subscriptions", "native_tasks", "plain_calls", "programs", "programs_that_ended"),
        *("restarts", "resumption", "sessions", "streams", "tasks", "tls"),
    )
)
"""Files about connections, streams, programs and timers: `make test-all` runs them on uvloop, too, each test with one
of its parameters. `make long` runs the whole interaction suite there."""

SAMPLED: Final = ("identity", "interaction", "interop")
"""Folders of whose tests `make test` runs each with one of its parameters: all take two fifths of its time."""


def is_thorough(file: Path) -> bool:
    """Whether the tests of a file are marked `thorough` for the folder that it is in."""
    return file.stem not in THOROUGH.get(file.parent.name, {file.stem})
