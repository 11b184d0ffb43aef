"""The section of the audit log: what may be written, and what keys say against each other."""

from collections.abc import Callable

import pytest

from taskgate.config import GatewayConfig, effective

Loads = Callable[..., GatewayConfig]

FILE = "{name: a, type: file, path: /var/log/a}"


@pytest.fixture
def with_audit(minimal: str) -> Callable[[str], str]:
    """The text of a file with these keys of `audit`, on its fifth line."""
    return lambda keys: f"{minimal}audit: {{{keys}}}\n"


Writes = Callable[[str], str]


def test_what_is_shown_of_it_loads_again(loads: Loads, with_audit: Writes) -> None:
    config = loads(with_audit(f"sinks: [{FILE}, {{name: b, type: stdout}}], redact: ['$..x']"))
    assert loads(effective(config)).audit == config.audit
