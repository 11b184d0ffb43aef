"""Who is let in, from a configuration to the objects it means."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.manual_clock import EPOCH, ManualClock, SeededEntropy
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.auth.key_file import KeyFileRefused
from taskgate.config.model import GatewayConfig
from taskgate.domain.request_state import PassThroughState
from taskgate.errors import InvalidParams, Unauthenticated
from taskgate.streams.exchange import Admission, HttpMethod
from taskgate.telemetry.events import KeysFetched, TokenChecked, TokenRecognized
from taskgate.wiring.authentication import (
    KEY_FILE,
    Authenticator,
    ReloadableAuthenticator,
    base_url,
    build_authenticator,
    build_penalties,
    deployment_keys,
    metadata_documents,
    metadata_url,
    resource_of,
)
from unit.admission.test_callers import MOUNT, RESOURCE
from unit.lifecycle.asked import Asked
from unit.lifecycle.recorded_events import RecordedEvents

SERVERS = {"reports": "http://127.0.0.1:9/mcp"}
TWO = {**SERVERS, "books": "http://127.0.0.1:9/mcp"}
WELL_KNOWN = "/.well-known/oauth-protected-resource"
NOW = int(EPOCH.timestamp())
PLACE = (EPOCH, "A" * 32)


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    return TokenIssuer(tmp_path)


@pytest.fixture
async def houses() -> AsyncIterator[Any]:
    """Makes gatehouses, and closes them."""
    made: list[Authenticator] = []

    def make(
        config: GatewayConfig, folder: Path | None = None, emitted: RecordedEvents | None = None, seed: int = 0
    ) -> Authenticator:
        entropy = SeededEntropy(seed)
        keys = deployment_keys(config, folder, entropy)
        made.append(build_authenticator(config, keys, emitted or RecordedEvents(), ManualClock(), entropy))
        return made[-1]

    yield make
    for house in made:
        await house.close()


async def who(house: Authenticator, issuer: TokenIssuer, **claims: Any) -> AuthContext:
    """Whom the gatehouse takes the bearer of a token for, at MOUNT."""
    token = issuer.token(RESOURCE, **{"iat": NOW, "exp": NOW + 300, **claims})
    asked = Asked(Admission(method=HttpMethod.POST, path=MOUNT.path, authorization=(f"Bearer {token}",)))
    async with bounded():
        return await house.callers.identify(asked, MOUNT)


# --- without authentication ----------------------------------------------------------------------------------------


async def test_without_authentication_everybody_is_one_and_there_is_nothing_to_wait_for(houses: Any) -> None:
    house = houses(configuration(SERVERS))
    assert house.callers is None
    callers = ReloadableAuthenticator(house)
    head = Admission(
        method=HttpMethod.POST, path=MOUNT.path, authorization=("Bearer a", "Bearer b"), query="access_token=c"
    )
    for exchange in (Asked(), Asked(head)):
        assert await callers.identify(exchange, MOUNT) is ANONYMOUS
        assert not callers.is_known(exchange, MOUNT)
    assert (house.deployment, house.issuers, house.ready) == (None, (), True)
    assert build_penalties(configuration(SERVERS)) is None
    house.open()


async def test_without_authentication_no_key_is_made(houses: Any, tmp_path: Path) -> None:
    houses(configuration(SERVERS), tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_where_the_keys_of_an_issuer_are_is_told_without_what_may_be_secret(houses: Any, tmp_path: Path) -> None:
    issuers = {
        "corp": {"issuer": "https://idp.example.com/corp", "jwks_uri": "https://keys.example.com/corp?code=s3cret"},
        "partner": {"issuer": "https://idp.example.com/partner"},
        "lab": {"issuer": "https://idp.example.com/lab", "jwks_file": str(tmp_path / "keys.json")},
    }
    house = houses(configuration(SERVERS, auth={"mode": "required", "issuers": issuers}), tmp_path)
    assert {name: state.place for name, state in house.keys_states().items()} == {
        "corp": "https://keys.example.com/corp",
        "partner": "https://idp.example.com/partner",
        "lab": str(tmp_path / "keys.json"),
    }


# --- callers -------------------------------------------------------------------------------------------------------


async def test_a_token_is_judged_and_what_is_found_is_reported(houses: Any, issuer: TokenIssuer) -> None:
    emitted = RecordedEvents()
    house = houses(guarded(SERVERS, issuer), emitted=emitted)
    caller = await who(house, issuer)
    assert caller.identity is not None
    assert (caller.identity.issuer_name, caller.identity.subject) == ("corp", "alice")
    with pytest.raises(Unauthenticated):
        await who(house, issuer, exp=NOW - 60)
    with pytest.raises(Unauthenticated):
        await house.callers.identify(Asked(), MOUNT)
    judged = [
        TokenChecked("corp", "ok", known=False, caller=caller),
        TokenChecked("corp", "expired", known=False),
        TokenChecked("_OTHER", "missing"),
    ]
    assert emitted.all == [KeysFetched("corp", "ok", 1), *judged]


async def test_a_token_that_comes_again_is_recognized(houses: Any, issuer: TokenIssuer) -> None:
    emitted = RecordedEvents()
    house = houses(guarded(SERVERS, issuer), emitted=emitted)
    token = issuer.token(RESOURCE, iat=NOW, exp=NOW + 300)
    asked = Asked(Admission(method=HttpMethod.POST, path=MOUNT.path, authorization=(f"Bearer {token}",)))
    async with bounded():
        caller = await house.callers.identify(asked, MOUNT)
        assert await house.callers.identify(asked, MOUNT) == caller
    assert emitted.all[1:] == [TokenChecked("corp", "ok", known=False, caller=caller), TokenRecognized("corp")]


async def test_each_issuer_has_its_keys_and_all_are_needed_to_be_ready(houses: Any, tmp_path: Path) -> None:
    corp, other = TokenIssuer(tmp_path), TokenIssuer(tmp_path, issuer="https://other.example.com/", number=1)
    kept = other.file.read_text()
    other.file.write_text("{}")
    house = houses(guarded(SERVERS, corp, other))
    await who(house, corp)
    assert not house.ready
    other.file.write_text(kept)
    await who(house, other)
    assert house.ready
    assert (await who(house, corp)).key != (await who(house, other)).key


async def test_open_fetches_the_keys_before_anybody_asks(houses: Any, issuer: TokenIssuer) -> None:
    house = houses(guarded(SERVERS, issuer))
    assert not house.ready
    house.open()
    await eventually(lambda: house.ready)


async def test_what_a_context_is_bound_to_is_the_operators_choice(houses: Any, issuer: TokenIssuer) -> None:
    usual = houses(guarded(SERVERS, issuer))
    assert await who(usual, issuer, client_id="a") != await who(usual, issuer, client_id="b")
    house = houses(guarded(SERVERS, issuer, auth={"context": {"bind": ["iss", "sub"]}}))
    assert (await who(house, issuer, client_id="a")).key == (await who(house, issuer, client_id="b")).key


def test_the_penalty_is_the_operators_choice(issuer: TokenIssuer) -> None:
    failures = {"threshold": 1, "window": "10s", "penalty": "20s"}
    penalties = build_penalties(guarded(SERVERS, issuer, auth={"lookup_failures": failures}))
    assert penalties is not None
    assert [penalties.add_failure("k", now) for now in (0, 10, 11)] == [False, False, True]
    assert penalties.remaining("k", 11) == timedelta(seconds=20).total_seconds()


# --- keys ----------------------------------------------------------------------------------------------------------


async def test_the_key_is_made_once_in_the_data_directory(houses: Any, issuer: TokenIssuer, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first, second = (houses(guarded(SERVERS, issuer), folder, seed=seed) for seed in (1, 2))
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert (await who(first, issuer)).key == (await who(second, issuer)).key
    cursor = first.cursors.seal(PLACE, context="c", mount="m")
    assert second.cursors.open(cursor, context="c", mount="m") == PLACE


async def test_without_a_directory_the_key_is_as_short_lived_as_the_store(houses: Any, issuer: TokenIssuer) -> None:
    first, second = (houses(guarded(SERVERS, issuer), seed=seed) for seed in (1, 2))
    assert (await who(first, issuer)).key != (await who(second, issuer)).key


async def test_a_key_file_goes_before_the_data_directory_and_may_hold_the_key_before(
    houses: Any, issuer: TokenIssuer, tmp_path: Path
) -> None:
    file, folder = tmp_path / "key", tmp_path / "data"
    config = guarded(SERVERS, issuer, auth={"context": {"key_file": str(file)}})
    old, new = 43 * "b", 43 * "c"
    found = []
    for text in (old, f"{new}\n{old}"):
        file.write_text(text)
        file.chmod(0o600)
        found.append(houses(config, folder))
    before, after = [await who(house, issuer) for house in found]
    assert after.previous_key == before.key != after.key
    assert before.previous_key is None
    assert not folder.exists()
    cursor = found[0].cursors.seal(PLACE, context="c", mount="m")
    assert found[1].cursors.open(cursor, context="c", mount="m") == PLACE
    with pytest.raises(InvalidParams):
        found[0].cursors.open(found[1].cursors.seal(PLACE, context="c", mount="m"), context="c", mount="m")


async def test_cursors_and_states_are_sealed_each_with_a_key_of_their_own(
    houses: Any, issuer: TokenIssuer, tmp_path: Path
) -> None:
    house = houses(guarded(SERVERS, issuer), tmp_path / "data", seed=1)
    assert len({house.cursors.current, house.states.current, SeededEntropy(1).token(32)}) == 3
    assert (house.cursors.previous, house.states.previous) == (None, None)


async def test_a_state_outlives_the_process_and_a_change_of_the_key(
    houses: Any, issuer: TokenIssuer, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    config = guarded(SERVERS, issuer, auth={"context": {"key_file": str(file)}})
    found = []
    for text in (43 * "b", f"{43 * 'c'}\n{43 * 'b'}"):
        file.write_text(text)
        file.chmod(0o600)
        found.append(houses(config))
    of = {"mount": "m", "digest": "d"}
    state = found[0].states.seal(PassThroughState("its own"), context="c", until=EPOCH + timedelta(seconds=1), **of)
    assert found[1].states.open(state, contexts=("c",), now=EPOCH, **of) == PassThroughState("its own")


async def test_without_authentication_a_state_is_good_in_one_process_alone(houses: Any) -> None:
    first, second = (houses(configuration(SERVERS), seed=seed) for seed in (1, 2))
    of = {"mount": "m", "digest": "d"}
    state = first.states.seal(PassThroughState(None), context="anonymous", until=EPOCH + timedelta(seconds=1), **of)
    assert first.states.open(state, contexts=("anonymous",), now=EPOCH, **of) == PassThroughState(None)
    with pytest.raises(InvalidParams):
        second.states.open(state, contexts=("anonymous",), now=EPOCH, **of)


async def test_a_key_file_that_cannot_be_used_is_refused(houses: Any, issuer: TokenIssuer, tmp_path: Path) -> None:
    with pytest.raises(KeyFileRefused, match=r"^auth\.context\.key_file: the key file cannot be read: No such"):
        houses(guarded(SERVERS, issuer, auth={"context": {"key_file": str(tmp_path / "none")}}))
    (tmp_path / KEY_FILE).write_bytes(b"")
    with pytest.raises(KeyFileRefused, match=r"^context\.key in the data directory: the key file must hold one key"):
        houses(guarded(SERVERS, issuer), tmp_path)


# --- addresses and documents ---------------------------------------------------------------------------------------


def test_the_gateway_is_known_by_its_public_url_or_by_where_it_listens() -> None:
    here = configuration(SERVERS)
    assert base_url(here, 8080) == "http://127.0.0.1:8080"
    assert resource_of(here, 8080, "/reports/mcp") == "http://127.0.0.1:8080/reports/mcp"
    assert base_url(configuration(SERVERS, server={"listen": "[::1]:0"}), 80) == "http://[::1]:80"
    public = configuration(SERVERS, server={"public_url": "https://Mcp.example.com/gate/"})
    assert resource_of(public, 8080, "/reports/mcp") == "https://mcp.example.com/gate/reports/mcp"


def test_the_metadata_has_an_address_only_where_it_is_served(issuer: TokenIssuer) -> None:
    address = f"https://mcp.example.com{WELL_KNOWN}/reports/mcp"
    off = {"protected_resource_metadata": {"enabled": False}}
    for config, url in (
        (guarded(SERVERS, issuer), address),
        (guarded(SERVERS, issuer, auth=off), None),
        (configuration(SERVERS), None),
    ):
        assert metadata_url(config, RESOURCE) == url
        assert bool(metadata_documents(config, 1)) is (url is not None)


def test_a_document_says_what_the_operator_wants_said(issuer: TokenIssuer) -> None:
    said = {
        "scopes_supported": ["b", "a", "offline_access"],
        "documentation": "https://docs.example.com/",
        "extra": {"resource_name": "Reports"},
    }
    documents = metadata_documents(guarded(SERVERS, issuer, auth={"protected_resource_metadata": said}), 8080)
    assert documents.keys() == {WELL_KNOWN, f"{WELL_KNOWN}/reports/mcp", f"{WELL_KNOWN}/reports/mcp/"}
    assert len(set(documents.values())) == 1
    assert json.loads(documents[WELL_KNOWN]) == {
        "resource": "http://127.0.0.1:8080/reports/mcp",
        "authorization_servers": [issuer.issuer],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["a", "b"],
        "resource_documentation": "https://docs.example.com/",
        "resource_name": "Reports",
    }


def resources(config: GatewayConfig) -> dict[str, str]:
    """What each document is about, by its path under the well-known one; with a slash at its end it is the same."""
    documents = metadata_documents(config, 1)
    slashed = {path: text for path, text in documents.items() if path.endswith("/")}
    assert slashed == {f"{path}/": text for path, text in documents.items() - slashed.items() if path != WELL_KNOWN}
    bare = documents.items() - slashed.items()
    return {path.removeprefix(WELL_KNOWN): json.loads(text)["resource"] for path, text in bare}


def test_two_mounts_have_no_document_at_the_root(issuer: TokenIssuer) -> None:
    at = "http://127.0.0.1:1"
    assert resources(guarded(TWO, issuer)) == {f"/{name}/mcp": f"{at}/{name}/mcp" for name in TWO}


def test_behind_a_proxy_with_a_path_a_document_is_found_with_it_and_without(issuer: TokenIssuer) -> None:
    at = "https://mcp.example.com/gate"
    assert resources(guarded(TWO, issuer, server={"public_url": at})) == {
        **{f"/gate/{name}/mcp": f"{at}/{name}/mcp" for name in TWO},
        **{f"/{name}/mcp": f"{at}/{name}/mcp" for name in TWO},
    }


def test_where_two_documents_claim_a_path_the_one_that_hosts_are_sent_to_has_it(issuer: TokenIssuer) -> None:
    paths = {"a": {"path": "/mcp", "url": "http://127.0.0.1:9/"}, "b": {"path": "/x/mcp", "url": "http://127.0.0.1:9/"}}
    config = guarded({}, issuer, server={"public_url": "https://m.example/x"}, upstreams=paths)
    assert resources(config) == {
        "/x/mcp": "https://m.example/x/mcp",
        "/x/x/mcp": "https://m.example/x/x/mcp",
        "/mcp": "https://m.example/x/mcp",
    }
