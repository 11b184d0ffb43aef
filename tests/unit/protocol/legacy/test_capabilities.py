"""Capabilities of hosts, as servers of the legacy era are told of them."""

from typing import Any

import pytest

from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.legacy.capabilities import may_be_asked

LEGACY, MODERN = Revision.R2025_11_25, Revision.R2026_07_28


@pytest.mark.parametrize(
    ("revision", "capabilities", "may"),
    [
        (LEGACY, {"roots": {}}, True),
        (LEGACY, {"sampling": {}}, True),
        (LEGACY, {"elicitation": {}}, True),
        (Revision.R2025_03_26, {"elicitation": {}}, False),
        (LEGACY, {"tasks": {"list": {}}}, False),
        (LEGACY, {"roots": True}, False),
        (LEGACY, {}, False),
        (MODERN, {"roots": {}, "sampling": {}, "elicitation": {}}, False),
    ],
)
def test_a_host_may_be_asked_on_a_stream_what_its_revision_has_and_it_declared(
    revision: Revision, capabilities: dict[str, Any], may: bool
) -> None:
    assert may_be_asked(Peer(revision=revision, capabilities=capabilities, info={})) is may
