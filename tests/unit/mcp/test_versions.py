"""Revisions are found by their exact name and compared by their place, never as text."""

import pytest

from taskgate.mcp.versions import NEWEST, Peer, Revision, find_revision


@pytest.mark.parametrize("revision", Revision)
def test_a_revision_is_found_by_its_name(revision: Revision) -> None:
    assert find_revision(revision.value) is revision


@pytest.mark.parametrize(
    "other",
    ["", "2025-11-26", "2025-11-25 ", "2025-11-25\n", "latest", "2026-07-28", None, 20251125, 1.0, True, [], {}],
    ids=repr,
)
def test_anything_else_is_no_revision(other: object) -> None:
    assert find_revision(other) is None


def test_revisions_stand_in_the_order_they_were_published_in() -> None:
    assert [str(revision) for revision in Revision] == sorted(revision.value for revision in Revision)
    assert list(Revision)[-1] is NEWEST


def test_only_the_newest_revision_has_tasks() -> None:
    assert [revision for revision in Revision if revision.has_tasks] == [Revision.R2025_11_25]


def test_a_peer_is_a_value() -> None:
    peer = Peer(revision=NEWEST, capabilities={"tasks": {}}, info={"name": "a"})
    assert peer == Peer(revision=NEWEST, capabilities={"tasks": {}}, info={"name": "a"})
    assert peer != Peer(revision=NEWEST, capabilities={}, info={"name": "a"})
