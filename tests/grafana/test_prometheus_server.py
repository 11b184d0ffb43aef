"""The Prometheus of the tests runs where the programs are, and their absence is a reason to skip, or a failure."""

from pathlib import Path

import pytest
from example.prometheus import PrometheusRefused, configuration, program
from ruamel.yaml import YAML

from helpers.alert_rules import GRAFANA
from helpers.prometheus_server import PrometheusServer, promtool, require_prometheus


@pytest.mark.parametrize(("all_required", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_is_a_failure_only_where_nothing_may_be(
    all_required: str, outcome: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TASKGATE_REQUIRE_ALL", all_required)
    with pytest.raises(outcome, match=r"there is no prometheus here \(Debian: apt-get install"):
        require_prometheus()


def test_the_sample_is_taken_for_another_address_and_pace_with_the_rules_where_they_are() -> None:
    taken = YAML(typ="safe").load(configuration("127.0.0.1:1234", interval="2s"))
    assert taken == {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [f"{GRAFANA}/alerts/*.yml"],
        "scrape_configs": [{"job_name": "taskgate", "static_configs": [{"targets": ["127.0.0.1:1234"]}]}],
    }


async def test_it_scrapes_itself_and_answers_on_a_port_of_its_own(tmp_path: Path) -> None:
    require_prometheus()
    async with PrometheusServer(tmp_path, rules=[]) as first, PrometheusServer(_new(tmp_path), first.address) as second:
        await second.has_seen_all()
        [seen] = await second.query('up{job="taskgate"}')
        assert (seen.labels, seen.value) == ({"job": "taskgate", "instance": first.address}, 1)
        [series] = await second.query_range("up == 1", seconds=1, step=0.2)
        assert set(dict(series["values"]).values()) == {"1"}
        assert await second.query("nothing") == []
        assert [sample.value for sample in await second.query("1 + 1")] == [2]
        assert await second.firing() == {}
        with pytest.raises(PrometheusRefused, match="parse error"):
            await second.query("sum(")


def test_promtool_says_what_it_thinks() -> None:
    require_prometheus()
    assert program("promtool").name == "promtool"
    status, said = promtool("check", "metrics", stdin="# HELP a_total A.\n# TYPE a_total counter\na_total 1\n")
    assert (status, said) == (0, "")
    status, said = promtool("check", "metrics", stdin="# TYPE a counter\na 1\n")
    assert status != 0
    assert "a counter metrics should have" in said


def _new(folder: Path) -> Path:
    (folder / "second").mkdir()
    return folder / "second"
