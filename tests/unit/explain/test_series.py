"""`taskgate metrics` says which metrics there are and how many series at most; `check` warns of many."""

import re
from pathlib import Path

import pytest

from taskgate.config import GatewayConfig, load
from taskgate.config.model import metrics_config
from taskgate.explain.checks import metrics_text, series_warnings
from taskgate.telemetry.metrics.catalogue import FAMILIES, PARTS, series_bound

MINIMAL = "version: 1\nauth: {mode: none}\nupstreams:\n"


def configured(folder: Path, upstreams: int, more: str = "") -> GatewayConfig:
    """A configuration with so many upstreams."""
    file = folder / "taskgate.yaml"
    servers = "".join(f"  u{number}: {{path: /u{number}, url: 'http://127.0.0.1:1'}}\n" for number in range(upstreams))
    file.write_text(MINIMAL + servers + more, encoding="utf-8")
    return load(file, {})


@pytest.mark.parametrize("upstreams", [None, 1, 4])
def test_every_family_is_there_with_its_share_and_the_shares_are_the_sum(tmp_path: Path, upstreams: int | None) -> None:
    config = None if upstreams is None else configured(tmp_path, upstreams)
    text = metrics_text(config)
    counts = {
        name: int(count)
        for count, name in re.findall(r"^ *(\d+)  (?:counter|gauge|histogram) +(\w+)", text, re.MULTILINE)
    }
    assert list(counts) == [family.name for family in FAMILIES]
    [own] = re.findall(r"^ *(\d+)  process_", text, re.MULTILINE)
    [total] = re.findall(r"^ *(\d+)  series at most", text, re.MULTILINE)
    assert sum(counts.values()) + int(own) == int(total)
    if config is not None:
        assert int(total) == series_bound(metrics_config(config))
    assert [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")] == list(PARTS)


def test_a_family_is_shown_with_its_labels_and_what_it_means(tmp_path: Path) -> None:
    lines = metrics_text(configured(tmp_path, 1)).splitlines()
    at = next(number for number, line in enumerate(lines) if "taskgate_task_polls_total" in line)
    assert lines[at].endswith("counter    taskgate_task_polls_total{upstream,result}")
    assert lines[at + 1].strip() == "Polls of tasks by hosts."
    assert any(line.endswith("gauge      taskgate_ready") for line in lines)
    assert lines[-1].endswith("series at most, with this configuration")


def test_without_a_configuration_it_says_what_it_counted_for() -> None:
    assert metrics_text(None).endswith("series at most, with one upstream, one issuer and one rate policy\n")


def test_that_nothing_is_counted_is_said(tmp_path: Path) -> None:
    text = metrics_text(configured(tmp_path, 1, "metrics: {enabled: false}\n"))
    assert text.splitlines()[-1].strip() == "metrics.enabled is false: nothing is counted or shown"


def test_many_series_are_worth_a_warning_and_few_are_not(tmp_path: Path) -> None:
    assert series_warnings(configured(tmp_path, 8)) == ()
    many = configured(tmp_path, 20)
    [warning] = series_warnings(many)
    assert warning.startswith(f"metrics may have up to {series_bound(metrics_config(many))} series, more than 10500: ")
    assert series_warnings(configured(tmp_path, 20, "metrics: {enabled: false}\n")) == ()


def test_what_the_warning_recommends_helps(tmp_path: Path) -> None:
    detailed = "metrics: {tool_histograms: true}\n"
    [_] = series_warnings(configured(tmp_path, 8, detailed))
    assert series_warnings(configured(tmp_path, 8)) == ()
    short = ", ".join(f"{family.name}: [1, 60]" for family in FAMILIES if family.buckets)
    assert series_warnings(configured(tmp_path, 15, f"metrics: {{max_tools: 10, buckets: {{{short}}}}}\n")) == ()
