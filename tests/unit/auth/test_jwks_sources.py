"""Where keys are read: a file, or what the issuer's metadata name, for as long as that is of use."""

import os
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import PATIENCE, bounded
from taskgate.auth.fetch import FetchedDocument, FetchFailed, FetchReason
from taskgate.auth.jwks import IssuerKeys
from taskgate.errors import KeysUnavailable
from unit.auth.scripted_fetch import (
    FIRST,
    ISSUER,
    OAUTH,
    OIDC,
    OIDC_INSERTED,
    SECOND,
    SECOND_KEY,
    SOON,
    URI,
    Heard,
    ScriptedFetch,
    closing,
    found,
    key_set,
    metadata,
    settings_of,
)


@pytest.mark.parametrize("uri", [URI, None])
async def test_the_operator_says_how_long_and_how_large_an_answer_may_be(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard, uri: str | None
) -> None:
    fetch.answers[OIDC] = metadata()
    async with closing(IssuerKeys(settings_of(uri=uri, timeout=SOON, max_size=7), fetch, clock, heard)) as keys:
        await keys.refresh()
        fetch.answers[URI] = FetchFailed(FetchReason.STATUS)
        await keys.refresh()
        await keys.refresh()
    found_by = [OAUTH, OIDC]
    assert fetch.asked == ([URI] * 3 if uri else [*found_by, URI, URI, *found_by, URI])
    assert fetch.bounds == {(SOON, 7)}


# --- files ------------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_anew_with_each_refresh(
    clock: ManualClock, heard: Heard, fetch: ScriptedFetch, tmp_path: Path
) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set(FIRST).body)
    async with closing(IssuerKeys(settings_of(file=file), fetch, clock, heard)) as keys:
        assert await found(keys) == ["first"]
        file.write_bytes(key_set(SECOND_KEY).body)
        clock.advance(timedelta(minutes=5))
        assert await found(keys, "second") == ["second"]
        file.unlink()
        await keys.refresh()
        assert await found(keys, "second") == ["second"]
    assert heard.outcomes == ["ok", "ok", "stale"]
    assert fetch.asked == []


async def test_a_file_is_read_again_when_an_operator_wants_it_and_others_are_told_apart(
    clock: ManualClock, heard: Heard, fetch: ScriptedFetch, tmp_path: Path
) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set(FIRST).body)
    async with closing(IssuerKeys(settings_of(file=file), fetch, clock, heard)) as keys:
        assert await keys.reread()
        assert not await keys.reread()
        file.write_bytes(key_set(SECOND_KEY).body)
        assert await keys.reread()
        assert await found(keys, "second") == ["second"]
        file.write_text("no keys")
        assert not await keys.reread()
        assert await found(keys, "second") == ["second"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no keys", "is no JSON"),
        ("[]", "is no JSON object with an array `keys`"),
        ('{"keys": []}', "has no public key for "),
        (f'{{"keys": {[0] * 101}}}', "has more than 100 keys"),
    ],
)
async def test_a_file_that_is_no_key_set_is_named_with_what_is_wrong_with_it(
    clock: ManualClock,
    heard: Heard,
    fetch: ScriptedFetch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
    problem: str,
) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)
    async with closing(IssuerKeys(settings_of(file=file), fetch, clock, heard)) as keys:
        await keys.refresh()
    [line] = [vars(record) for record in caplog.records]
    assert (line["reason"], line["file"]) == ("key_set", str(file))
    assert line["problem"].startswith(problem)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("missing", "cannot be read: No such file or directory"),
        ("folder", "is not a regular file"),
        ("huge", "is larger than 262144 bytes"),
        ("endless", "is not a regular file"),
        ("silent", "is not a regular file"),
        ("unnameable", "cannot be read: File name too long"),
    ],
)
async def test_what_is_no_file_of_keys_has_a_reason(
    clock: ManualClock,
    heard: Heard,
    fetch: ScriptedFetch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    problem: str,
) -> None:
    others = {"folder": tmp_path, "endless": Path("/dev/zero"), "unnameable": tmp_path / ("a" * 300)}
    file = others.get(kind, tmp_path / "jwks.json")
    if kind == "huge":
        file.write_bytes(key_set(FIRST).body + b" " * 256 * 1024)
    if kind == "silent":
        os.mkfifo(file)
    async with closing(IssuerKeys(settings_of(file=file), fetch, clock, heard)) as keys:
        with pytest.raises(KeysUnavailable):
            await found(keys)
    assert [record.__dict__["reason"] for record in caplog.records] == ["too_large" if kind == "huge" else "file"]
    assert [(vars(record)["file"], vars(record)["problem"]) for record in caplog.records] == [(str(file), problem)]


async def test_a_file_that_takes_too_long_is_not_waited_for(
    clock: ManualClock,
    heard: Heard,
    fetch: ScriptedFetch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hung = threading.Event()
    monkeypatch.setattr(Path, "is_file", lambda _: hung.wait(PATIENCE))
    kept = IssuerKeys(settings_of(file=tmp_path, timeout=SOON), fetch, clock, heard)
    async with bounded(), closing(kept) as keys:
        await keys.refresh()
    hung.set()
    assert [record.__dict__["reason"] for record in caplog.records] == ["timeout"]


# --- discovery --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def discovering(fetch: ScriptedFetch, clock: ManualClock, heard: Heard) -> AsyncIterator[IssuerKeys]:
    """Keys whose place the issuer's metadata name."""
    async with closing(IssuerKeys(settings_of(), fetch, clock, heard)) as keys:
        yield keys


@pytest.mark.parametrize("place", [OAUTH, OIDC, OIDC_INSERTED])
async def test_metadata_are_found_in_each_place_and_the_first_wins(
    discovering: IssuerKeys, fetch: ScriptedFetch, place: str
) -> None:
    fetch.answers[place] = metadata()
    assert await found(discovering) == ["first"]
    places = [OAUTH, OIDC, OIDC_INSERTED]
    assert fetch.asked == [*places[: places.index(place) + 1], URI]


async def test_metadata_of_another_issuer_are_passed_over(discovering: IssuerKeys, fetch: ScriptedFetch) -> None:
    fetch.answers[OAUTH] = metadata("https://evil.example/keys", issuer="https://idp.example.com")
    fetch.answers[OIDC] = metadata()
    assert await found(discovering) == ["first"]
    assert fetch.asked == [OAUTH, OIDC, URI]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "status"),
        ({OAUTH: metadata(issuer=ISSUER + "/")}, "issuer"),
        ({OIDC: metadata("http://10.0.0.1/keys")}, "address"),
        ({OAUTH: FetchedDocument(b"<html>"), OIDC: metadata(issuer="https://evil.example")}, "document"),
        ({OAUTH: FetchFailed(FetchReason.TIMEOUT), OIDC: FetchedDocument(b"[]")}, "document"),
        ({OIDC_INSERTED: FetchFailed(FetchReason.TIMEOUT)}, "timeout"),
    ],
)
async def test_without_metadata_to_believe_no_key_is_fetched(
    discovering: IssuerKeys,
    fetch: ScriptedFetch,
    caplog: pytest.LogCaptureFixture,
    given: dict[str, FetchedDocument | Exception],
    reason: str,
) -> None:
    fetch.answers |= given
    with pytest.raises(KeysUnavailable):
        await found(discovering)
    assert fetch.asked == [OAUTH, OIDC, OIDC_INSERTED]
    assert [record.__dict__["reason"] for record in caplog.records] == [reason]


async def test_an_issuer_that_is_no_address_is_never_asked(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    async with closing(IssuerKeys(settings_of(issuer="http://10.0.0.1/"), fetch, clock, heard)) as keys:
        with pytest.raises(KeysUnavailable):
            await found(keys)
    assert fetch.asked == []
    assert [record.__dict__["reason"] for record in caplog.records] == ["address"]


async def test_who_waits_does_not_wait_for_metadata_that_are_known(
    discovering: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    fetch.answers[OAUTH] = metadata()
    await discovering.refresh()
    clock.advance(timedelta(hours=1))
    fetch.answers[URI] = key_set(FIRST, SECOND_KEY)
    assert await found(discovering, "second") == ["second"]
    assert fetch.asked == [OAUTH, URI, URI]


async def test_metadata_are_read_anew_when_they_are_old(
    discovering: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    fetch.answers[OAUTH] = metadata()
    await discovering.refresh()
    clock.advance(timedelta(seconds=299))
    await discovering.refresh()
    assert fetch.asked == [OAUTH, URI, URI]
    clock.advance(SECOND)
    fetch.answers[OAUTH] = metadata(moved := "https://new.example.com/keys", max_age=timedelta(seconds=60))
    fetch.answers[moved] = key_set(SECOND_KEY)
    await discovering.refresh()
    assert fetch.asked[3:] == [OAUTH, moved]
    assert await found(discovering, "second") == ["second"]
    clock.advance(timedelta(minutes=1))
    await discovering.refresh()
    assert fetch.asked[5:] == [OAUTH, moved]


async def test_metadata_that_hold_for_no_time_hold_for_the_cooldown(
    discovering: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    fetch.answers[OAUTH] = metadata(max_age=timedelta(0))
    await discovering.refresh()
    clock.advance(timedelta(seconds=29))
    await discovering.refresh()
    assert fetch.asked == [OAUTH, URI, URI]
    clock.advance(SECOND)
    await discovering.refresh()
    assert fetch.asked[3:] == [OAUTH, URI]


async def test_old_metadata_serve_where_new_ones_cannot_be_had(
    discovering: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    fetch.answers[OAUTH] = metadata()
    await discovering.refresh()
    clock.advance(timedelta(hours=1))
    del fetch.answers[OAUTH]
    await discovering.refresh()
    assert fetch.asked[2:] == [OAUTH, OIDC, OIDC_INSERTED, URI]
    assert heard.outcomes == ["ok", "ok"]


@pytest.mark.parametrize("gone", [FetchFailed(FetchReason.STATUS), FetchedDocument(b"<html>moved</html>")])
async def test_metadata_are_read_anew_after_keys_were_not_where_they_said(
    discovering: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock, gone: FetchedDocument | Exception
) -> None:
    fetch.answers[OAUTH] = metadata()
    await discovering.refresh()
    fetch.answers[OAUTH] = metadata(moved := "https://new.example.com/keys")
    fetch.answers |= {URI: gone, moved: key_set(SECOND_KEY)}
    await discovering.refresh()
    assert await found(discovering, "second") == ["second"]
    assert fetch.asked == [OAUTH, URI, URI, OAUTH, moved]


@pytest.mark.requirement("T39")
@pytest.mark.parametrize(("uri", "only_public"), [(URI, False), ("https://elsewhere.example.net/keys", True)])
async def test_keys_elsewhere_than_at_their_issuer_are_asked_of_public_addresses_alone(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard, uri: str, only_public: bool
) -> None:
    fetch.answers[OIDC] = metadata(uri)
    fetch.answers[uri] = key_set(FIRST)
    async with closing(IssuerKeys(settings_of(uri=None), fetch, clock, heard)) as keys:
        await keys.refresh()
    assert fetch.asked_of_the_public == [uri] * only_public
    fetch.asked_of_the_public.clear()
    async with closing(IssuerKeys(settings_of(uri=uri), fetch, clock, heard)) as keys:
        await keys.refresh()
    assert fetch.asked_of_the_public == [], "what the operator names may be anywhere"
