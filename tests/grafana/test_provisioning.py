"""What brings the dashboards into a Grafana names all of them, and its pages lead somewhere."""

import re
from typing import Any

import pytest
from grafana.src.boards import BOARDS

from helpers.alert_rules import GRAFANA, load

MAX_CONFIG_MAP = 1024 * 1024


def test_a_config_map_is_made_of_every_dashboard() -> None:
    made = load(GRAFANA / "dashboards" / "kustomization.yml")
    assert made["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    maps = {each["name"]: each["files"] for each in made["configMapGenerator"]}
    assert maps == {board.uid: [f"{board.uid}.json"] for board in BOARDS}


def test_a_dashboard_fits_into_a_config_map() -> None:
    for file in (GRAFANA / "dashboards").glob("*.json"):
        assert file.stat().st_size < MAX_CONFIG_MAP / 2


def test_grafana_does_not_let_provided_dashboards_be_changed() -> None:
    [provider] = load(GRAFANA / "provisioning" / "dashboards.yml")["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)


def test_the_sample_of_a_data_source_scrapes_as_often_as_the_sample_of_prometheus() -> None:
    """Else rates would be taken over too few scrapes, and be gaps."""
    [source] = load(GRAFANA / "provisioning" / "datasources.yml")["datasources"]
    sample = load(GRAFANA / "prometheus.yml")
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == sample["global"]["scrape_interval"]


def test_the_job_of_a_service_monitor_is_the_one_that_the_rules_know() -> None:
    monitor = load(GRAFANA / "provisioning" / "servicemonitor.yml")["spec"]
    assert monitor["selector"]["matchLabels"][monitor["jobLabel"]] == "taskgate"
    [endpoint] = monitor["endpoints"]
    assert endpoint["path"] == "/metrics"


@pytest.mark.parametrize("file", sorted(GRAFANA.glob("provisioning/*.yml")), ids=lambda file: file.name)
def test_a_file_for_provisioning_is_yaml(file: Any) -> None:
    assert load(file)


def test_the_links_of_the_page_lead_to_files() -> None:
    text = (GRAFANA / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (GRAFANA / target).exists(), target


def test_the_page_names_every_dashboard() -> None:
    text = (GRAFANA / "README.md").read_text(encoding="utf-8")
    for board in BOARDS:
        assert f"`{board.uid}`" in text
