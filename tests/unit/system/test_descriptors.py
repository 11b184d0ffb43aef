"""File descriptors: which failure is their lack, and how many are for hosts."""

import errno
import os
import resource
import socket

import pytest

from taskgate.system import descriptors


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (OSError(errno.EMFILE, "too many"), True),
        (OSError(errno.ENFILE, "too many of all"), True),
        (OSError(errno.ECONNREFUSED, "refused"), False),
        (OSError("of no number"), False),
        (socket.gaierror(socket.EAI_AGAIN, "no answer"), False),
    ],
)
def test_a_lack_of_descriptors_is_told_from_other_failures(error: OSError, lacks: bool) -> None:
    assert descriptors.is_exhaustion(error) is lacks


@pytest.mark.parametrize(("number", "lacks"), [(errno.EMFILE, True), (errno.ENOENT, False)])
def test_a_resolver_that_fails_where_nothing_can_be_opened_lacks_one(
    monkeypatch: pytest.MonkeyPatch, number: int, lacks: bool
) -> None:
    def fails(*_: object) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "open", fails)
    assert descriptors.is_exhaustion(socket.gaierror(socket.EAI_AGAIN, "no answer")) is lacks


def test_hosts_get_a_third_of_what_the_gateway_does_not_need_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert descriptors.host_connections() == 309
    assert descriptors.limit_for(309) <= 1024 < descriptors.limit_for(310)
    assert descriptors.host_ceiling() < descriptors.server_ceiling() < 1024


def test_few_and_no_end_of_them_are_numbers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 32))
    assert descriptors.host_connections() == 1
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert descriptors.host_connections() > 10**6


def test_a_system_that_does_not_allow_its_own_limit_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuses(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuses)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    descriptors.raise_limit()
    assert asked == [(4096, 4096)]
