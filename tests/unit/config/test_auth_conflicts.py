"""What the keys of who may do what say together."""

import pytest

from taskgate.config.model import DEFAULTS, conflicts


@pytest.mark.parametrize(
    "written",
    [
        {"auth": None},
        {"auth": {"mode": ["none"]}, "tasks": {"ttl": {"default": "2h"}}},
        {"auth": {"mode": "none", "issuers": []}, "authorization": {"rules": {}}},
        {"auth": {"mode": "none", "allow_insecure": 1}, "server": {"listen": 1}, "authorization": {"rules": [1, None]}},
        {"auth": {"mode": "none"}, "tasks": {"ttl": {"max": "soon", "min": None}}},
        {"auth": {"issuers": {"a": None, "b": {"issuer": 1}, "c": {"issuer": 1, "discovery": "no"}}}},
        {"authorization": {"rules": [{"effect": "deny", "require_scopes": "a"}]}},
        {"authorization": None},
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(written: object) -> None:
    assert conflicts(written, defaults=DEFAULTS) == []
