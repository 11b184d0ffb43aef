"""Revisions are found by their exact name and compared by their place, never as text; the eras do not mix."""

import pytest

from taskgate.domain.versions import (
    LEGACY,
    MODERN,
    NEWEST_LEGACY,
    SERVED,
    Peer,
    Revision,
    client_of,
    find_modern_revision,
    find_revision,
)

NO_REVISIONS = ["", "2025-11-26", "2025-11-25 ", "2026-07-28\n", "latest", None, 20251125, 1.0, True, [], {}]


@pytest.mark.parametrize("revision", LEGACY)
def test_a_revision_with_a_handshake_is_found_by_its_name(revision: Revision) -> None:
    assert find_revision(revision.value) is revision


@pytest.mark.parametrize("other", [*NO_REVISIONS, *MODERN], ids=repr)
def test_anything_else_is_no_revision_that_a_handshake_could_agree_on(other: object) -> None:
    # V-INIT-1, T-10: 2026-07-28 has no handshake.
    assert find_revision(other) is None


@pytest.mark.parametrize("revision", MODERN)
def test_a_revision_without_a_handshake_is_found_by_its_name(revision: Revision) -> None:
    assert find_modern_revision(revision.value) is revision


@pytest.mark.parametrize("other", [*NO_REVISIONS, *LEGACY], ids=repr)
def test_anything_else_is_no_revision_that_a_request_could_name_for_itself(other: object) -> None:
    assert find_modern_revision(other) is None


def test_revisions_stand_in_the_order_they_were_published_in() -> None:
    assert [str(revision) for revision in Revision] == sorted(revision.value for revision in Revision)
    assert (*LEGACY, *MODERN) == tuple(Revision)


def test_the_newest_that_a_handshake_offers_is_of_its_own_era() -> None:
    assert NEWEST_LEGACY is LEGACY[-1] is Revision.R2025_11_25


def test_every_revision_is_served_and_told_newest_first() -> None:
    # AMB-11.
    assert [str(revision) for revision in SERVED] == [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
    ]


def test_one_revision_has_tasks_in_its_core() -> None:
    assert [revision for revision in Revision if revision.has_tasks] == [Revision.R2025_11_25]


def test_a_peer_is_a_value() -> None:
    peer = Peer(revision=NEWEST_LEGACY, capabilities={"tasks": {}}, info={"name": "a"})
    assert peer == Peer(revision=NEWEST_LEGACY, capabilities={"tasks": {}}, info={"name": "a"})
    assert peer != Peer(revision=NEWEST_LEGACY, capabilities={}, info={"name": "a"})


@pytest.mark.parametrize(
    ("info", "client"),
    [
        ({"name": "host", "version": "1"}, ("host", "1")),
        ({"name": "h" * 10_000, "version": 1}, ("h" * 512, None)),
        ({}, (None, None)),
    ],
    ids=["both", "too long, and no text", "neither"],
)
def test_a_host_is_known_by_name_and_version_where_these_are_texts(info: dict[str, object], client: object) -> None:
    assert client_of(info) == client
