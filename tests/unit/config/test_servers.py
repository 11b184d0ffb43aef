"""The revision that a server is spoken to in: what may be written, and what it means."""

from collections.abc import Callable

import pytest

from taskgate.config import GatewayConfig
from taskgate.config.settings import upstream_settings
from taskgate.domain.versions import Revision

Written = Callable[[str, str], str]
KEY = "upstreams.reports.protocol_version"


def test_what_a_server_speaks_is_found_out_unless_it_is_given(loads: Callable[[str], GatewayConfig], minimal) -> None:
    assert upstream_settings(loads(minimal), "reports").revision is None


@pytest.mark.parametrize("revision", list(Revision))
def test_any_published_revision_can_be_given(
    loads: Callable[[str], GatewayConfig], with_key: Written, revision: Revision
) -> None:
    assert upstream_settings(loads(with_key(KEY, revision.value)), "reports").revision is revision


@pytest.mark.parametrize("value", ["2025-12-01", "newest", "'2025'", "null", "20251125", "[auto]"])
def test_nothing_else_can_be_given(tells: Callable[[str], list[str]], with_key: Written, value: str) -> None:
    (line,) = tells(with_key(KEY, value))
    assert "upstreams.reports.protocol_version: must be" in line
