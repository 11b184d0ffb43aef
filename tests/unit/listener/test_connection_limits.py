"""Bounds on connections of hosts: what is counted, for whom, and until when."""

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from ipaddress import ip_network

import pytest

from taskgate.listener.connection_limits import BoundedSocket, ConnectionBounds, ConnectionCounts
from taskgate.system import descriptors

LOW = 10
"""The number of a descriptor of which there are many more."""
Counts = Callable[..., ConnectionCounts]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Counts within bounds, where there are descriptors without end."""
    monkeypatch.setattr(descriptors, "limit", lambda: 2**20)

    def make(total: int = 100, per_address: int = 100, *exempt: str) -> ConnectionCounts:
        return ConnectionCounts(
            ConnectionBounds(total=total, per_address=per_address, exempt=tuple(map(ip_network, exempt)))
        )

    return make


@pytest.fixture
def listening() -> Iterator[Callable[[ConnectionCounts], BoundedSocket]]:
    """Makes a socket of the loopback address that listens within bounds, and never waits."""
    with ExitStack() as stack:

        def make(counts: ConnectionCounts) -> BoundedSocket:
            made = stack.enter_context(closing(BoundedSocket(socket.create_server(("127.0.0.1", 0)), counts)))
            made.setblocking(False)
            return made

        yield make


def connected(stack: ExitStack, listening: socket.socket) -> socket.socket:
    return stack.enter_context(socket.create_connection(listening.getsockname()))


async def test_an_address_has_as_many_as_it_may_and_another_as_many_again(counts: Counts) -> None:
    counted = counts(per_address=2)
    assert [counted.admit("192.0.2.1", LOW) is not None for _ in range(3)] == [True, True, False]
    assert counted.admit("192.0.2.2", LOW) is not None


async def test_a_site_of_ipv6_is_one_address(counts: Counts) -> None:
    counted = counts(per_address=2)
    site = ("2001:db8::1", "2001:db8::2", "2001:db8::3%eth0")
    assert [counted.admit(address, LOW) is not None for address in site] == [True, True, False]
    assert counted.admit("2001:db8:0:1::1", LOW) is not None


async def test_ipv4_within_ipv6_is_no_site(counts: Counts) -> None:
    counted = counts(per_address=1)
    hosts = ("::ffff:192.0.2.1", "::ffff:192.0.2.2", "192.0.2.2")
    assert [counted.admit(address, LOW) is not None for address in hosts] == [True, True, False]


async def test_what_is_over_makes_room(counts: Counts) -> None:
    counted = counts(per_address=1)
    ended = counted.admit("192.0.2.1", LOW)
    assert ended is not None
    assert counted.admit("192.0.2.1", LOW) is None
    ended()
    assert counted.admit("192.0.2.1", LOW) is not None


@pytest.mark.parametrize("proxy", ["10.1.2.3", "::ffff:10.1.2.3"])
async def test_a_trusted_proxy_is_bounded_by_the_sum_alone(counts: Counts, proxy: str) -> None:
    counted = counts(4, 1, "10.0.0.0/8")
    assert [counted.admit(proxy, LOW) is not None for _ in range(5)] == [True] * 4 + [False]


async def test_the_sum_of_all_is_bounded(counts: Counts) -> None:
    counted = counts(total=3)
    assert [counted.admit(f"192.0.2.{n}", LOW) is not None for n in range(5)] == [True] * 3 + [False] * 2


async def test_fewer_descriptors_bound_the_sum_and_the_last_ones_are_for_the_gateway(
    monkeypatch: pytest.MonkeyPatch, counts: Counts
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 256)
    counted = counts(total=10_000)
    taken = [counted.admit(f"192.0.2.{n}", LOW) for n in range(200)]
    assert sum(each is not None for each in taken) == (256 - 96) // 3
    assert counts().admit("192.0.2.1", 159) is not None
    assert counts().admit("192.0.2.1", 160) is None


async def test_the_operator_is_told_at_four_fifths_and_once_when_it_is_full(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    counted = counts(per_address=10)
    with caplog.at_level(logging.WARNING):
        for _ in range(7):
            counted.admit("192.0.2.1", LOW)
        assert caplog.messages == []
        for _ in range(500):
            counted.admit("192.0.2.1", LOW)
    near, full = caplog.records
    assert (near.__dict__["address"], near.__dict__["open"], near.__dict__["bound"]) == ("192.0.2.1", 8, 10)
    assert "server.max_connections_per_address" in full.message
    assert "server.trusted_proxies" in full.message


async def test_a_connection_counts_until_its_socket_is_closed(counts: Counts, listening) -> None:
    bounded = listening(counts(per_address=1))
    with ExitStack() as stack:
        connected(stack, bounded)
        first, _ = bounded.accept()
        refused = connected(stack, bounded)
        with pytest.raises(BlockingIOError):
            bounded.accept()
        assert refused.recv(1) == b"", "it was closed"
        first.close()
        first.close()
        connected(stack, bounded)
        second, _ = bounded.accept()
        second.close()


async def test_a_socket_that_is_forgotten_counts_no_more(counts: Counts, listening) -> None:
    bounded = listening(counts(per_address=1))
    with ExitStack() as stack:
        for _ in range(2):
            connected(stack, bounded)
            with pytest.warns(ResourceWarning):
                assert bounded.accept()


async def test_without_a_descriptor_a_connection_is_closed_in_place_of_the_spare_one(
    counts: Counts, listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, int]] = []
    # Its text is logged once a minute, in whatever test.
    monkeypatch.setattr(descriptors.EXHAUSTED_LOG, "emit", logged.append)
    bounded = listening(counts())
    accept, left = socket.socket.accept, [errno.EMFILE, None, errno.EMFILE, None]

    def without_descriptors(self: socket.socket):
        if left and (error := left.pop(0)) is not None:
            raise OSError(error, os.strerror(error))
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", without_descriptors)
    with ExitStack() as stack:
        refused = [connected(stack, bounded) for _ in range(2)]
        with pytest.raises(BlockingIOError):
            bounded.accept()
        assert [each.recv(1) for each in refused] == [b"", b""]
    assert logged == [{"limit": descriptors.limit()}] * 2


async def test_any_other_failure_is_for_who_accepts(counts: Counts, listening, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = listening(counts())

    def fails(self: socket.socket):
        raise OSError(errno.ENOBUFS, "none")

    monkeypatch.setattr(socket.socket, "accept", fails)
    with pytest.raises(OSError, match="none"):
        bounded.accept()
