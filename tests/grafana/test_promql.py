"""What an expression names that taskgate does not export is found, and nothing else."""

import pytest

from helpers.promql import family_of, strangers


@pytest.mark.parametrize(
    "expression",
    [
        'sum by (job, upstream) (rate(taskgate_tasks_finished_total{status="failed", job="taskgate"}[5m])) > 0.1',
        'taskgate_tasks_finished_total{upstream="reports", status=~"failed|cancelled", reason!~"o.*|client"}',
        'mcp_server_operation_duration_seconds_count{error_type=""}',
        'histogram_quantile(0.9, sum by (le) (rate(taskgate_task_duration_seconds_bucket{le!="+Inf"}[5m])))',
        'count by (job) (count_values by (job) ("hash", taskgate_config_hash)) > 1',
        "up == 0 or absent(up) and on (instance) time() - process_start_time_seconds < 600",
        "max_over_time(sum by (sink) (taskgate_audit_queue_depth)[5m:1m])",
        "job:some:ratio > 1",
    ],
)
def test_what_is_exported_is_no_stranger(expression: str) -> None:
    assert strangers(expression, {"job:some:ratio"}) == []


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("taskgate_task_finished_total", ["taskgate_task_finished_total"]),
        ("mcp_server_operation_duration_seconds", ["mcp_server_operation_duration_seconds"]),
        ("taskgate_ready_count", ["taskgate_ready_count"]),
        ("upper", ["upper"]),
        ("job:other:ratio", ["job:other:ratio"]),
        ('taskgate_ready{upstream="a"}', ["taskgate_ready{upstream}"]),
        ('taskgate_ready{le="1"}', ["taskgate_ready{le}"]),
        ('taskgate_store_tasks{status="done"}', ["taskgate_store_tasks{status='done'}"]),
        ('taskgate_store_tasks{status!="done"}', ["taskgate_store_tasks{status='done'}"]),
        ('taskgate_store_tasks{status=~"failed|gone"}', ["taskgate_store_tasks{status='gone'}"]),
        ('taskgate_store_tasks{status="fail.*"}', ["taskgate_store_tasks{status='fail\\\\.\\\\*'}"]),
        ("sum by (issuer) (taskgate_store_tasks)", ["by (issuer)"]),
        ("-(vector(1) - on () group_left () taskgate_no)", ["taskgate_no"]),
    ],
)
def test_what_is_not_is_named(expression: str, found: list[str]) -> None:
    assert strangers(expression) == found


def test_a_series_is_known_by_its_family() -> None:
    assert [
        family is not None and family.name for family in map(family_of, ("taskgate_task_ttl_seconds_sum", "a_sum"))
    ] == [
        "taskgate_task_ttl_seconds",
        False,
    ]


def test_what_is_no_promql_is_refused() -> None:
    with pytest.raises(ValueError):
        strangers("sum(")
