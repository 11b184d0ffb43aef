"""Which requests of operators are let in: tokens, roles, wrong tokens, origins."""

import pytest

from taskgate.operators.access import (
    MOST_ADDRESSES,
    MOST_OF_TOKEN,
    MOST_SESSIONS,
    SECONDS_PER_TOKEN,
    SESSION_SECONDS,
    WRONG_TOKENS,
    ApiError,
    ConsoleSessions,
    Operator,
    OperatorAccess,
    Role,
    WrongTokens,
)

OPS, LOOKS = Operator("ops", Role.OPERATOR), Operator("looks", Role.VIEWER)
HEADERS = {"Host": "localhost:9464"}


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def elapsed(self) -> float:
        """The seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> OperatorAccess:
    access = OperatorAccess(clock.elapsed)
    access.replace({b"token-of-an-operator": OPS, b"token-of-a-viewer": LOOKS})
    return access


def refusal(access: OperatorAccess, *authorizations: str, address: str = "192.0.2.1", **headers: str) -> ApiError:
    with pytest.raises(ApiError) as refused:
        access.identify({**HEADERS, **headers}, list(authorizations), address)
    return refused.value


def test_each_token_has_its_name_and_role(access: OperatorAccess) -> None:
    assert access.identify(HEADERS, ["Bearer token-of-an-operator"], "192.0.2.1") == OPS
    assert access.identify(HEADERS, ["bearer  token-of-a-viewer "], "192.0.2.1") == LOOKS
    assert [OPS.may(Role.VIEWER), OPS.may(Role.OPERATOR)] == [True, True]
    assert [LOOKS.may(Role.VIEWER), LOOKS.may(Role.OPERATOR)] == [True, False]


@pytest.mark.parametrize(
    "authorizations",
    [[], ["Bearer"], ["Bearer "], ["Basic token-of-a-viewer"], ["Bearer wrong"], ["Bearer token-of-a-viewer"] * 2],
)
def test_a_request_without_one_right_token_is_refused(access: OperatorAccess, authorizations: list[str]) -> None:
    error = refusal(access, *authorizations)
    assert (error.status, error.code, error.headers) == (401, "not_authenticated", {"WWW-Authenticate": "Bearer"})


def test_without_any_token_every_request_is_refused(clock: Clock) -> None:
    assert refusal(OperatorAccess(clock.elapsed), "Bearer token-of-a-viewer").status == 403


def test_replaced_tokens_are_let_in_no_longer(access: OperatorAccess) -> None:
    assert access.replace({b"another-token-of-one": OPS})
    assert not access.replace({b"another-token-of-one": OPS})
    assert refusal(access, "Bearer token-of-an-operator").status == 401
    assert access.identify(HEADERS, ["Bearer another-token-of-one"], "192.0.2.1") == OPS


def test_after_many_wrong_tokens_an_address_waits_and_a_right_one_passes(access: OperatorAccess, clock: Clock) -> None:
    for _ in range(WRONG_TOKENS):
        assert refusal(access, "Bearer wrong").status == 401
    error = refusal(access, "Bearer wrong")
    assert (error.status, error.headers["Retry-After"]) == (429, str(round(SECONDS_PER_TOKEN)))
    assert refusal(access).status == 401
    for address in ("192.0.2.1", "192.0.2.2"):
        assert access.identify(HEADERS, ["Bearer token-of-an-operator"], address) == OPS
    clock.now += SECONDS_PER_TOKEN
    assert refusal(access, "Bearer wrong").status == 401
    assert refusal(access, "Bearer wrong").status == 429


def test_addresses_of_one_network_are_counted_together(clock: Clock) -> None:
    wrong = WrongTokens(clock.elapsed)
    for each in range(WRONG_TOKENS):
        wrong.add(f"2001:db8::{each:x}")
    assert wrong.wait("2001:db8::ffff") > 0
    assert wrong.wait("2001:db8:0:1::1") == 0


def test_the_addresses_that_are_counted_are_bounded(clock: Clock) -> None:
    wrong = WrongTokens(clock.elapsed)
    for each in range(MOST_ADDRESSES + 50):
        wrong.add(f"198.51.{each // 256}.{each % 256}")
    assert len(wrong) <= MOST_ADDRESSES + 1
    assert wrong.wait("203.0.113.9") > 0
    clock.now += 100 * SECONDS_PER_TOKEN
    wrong.add("203.0.113.9")
    assert (len(wrong), wrong.wait("203.0.113.9")) == (1, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:9464.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_origin_is_refused_even_with_a_token(access: OperatorAccess, headers: dict[str, str]) -> None:
    error = refusal(access, "Bearer token-of-an-operator", **headers)
    assert (error.status, error.code) == (403, "foreign_origin")


@pytest.mark.parametrize("origin", ["http://localhost:9464", "https://LOCALHOST:9464"])
def test_a_page_of_the_listener_itself_is_let_in(access: OperatorAccess, origin: str) -> None:
    headers = {**HEADERS, "Origin": origin, "Sec-Fetch-Site": "same-origin"}
    assert access.identify(headers, ["Bearer token-of-an-operator"], "192.0.2.1") == OPS


def test_sessions_of_the_console_are_bounded_and_the_oldest_ends_first(clock: Clock) -> None:
    sessions = ConsoleSessions(clock.elapsed)
    for each in range(MOST_SESSIONS + 1):
        sessions.open(f"key {each}", f"token {each % 8}".encode(), b"secret")
    assert len(sessions) == MOST_SESSIONS
    assert [sessions.token_of(key) for key in ("key 0", "key 1")] == [None, b"token 1"]
    sessions.retain([b"another"])
    assert len(sessions) == 0


def test_sessions_of_one_token_leave_some_to_others(clock: Clock) -> None:
    sessions = ConsoleSessions(clock.elapsed)
    sessions.open("key", b"another", b"secret")
    for each in range(MOST_SESSIONS):
        sessions.open(f"key {each}", b"token", b"secret")
    assert len(sessions) == MOST_OF_TOKEN + 1
    assert sessions.token_of("key") == b"another"
    assert [sessions.token_of(f"key {each}") is None for each in (MOST_SESSIONS - 17, MOST_SESSIONS - 16)] == [
        True,
        False,
    ]


def test_a_session_of_the_console_ends_after_its_time(clock: Clock) -> None:
    sessions = ConsoleSessions(clock.elapsed)
    page_key = sessions.open("key", b"token", b"secret")
    assert sessions.find("key", page_key) == b"token"
    clock.now += SESSION_SECONDS
    assert sessions.find("key", page_key) is None
