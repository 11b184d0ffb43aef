"""The hosts that a handle is good for without tokens: their references, and those that are remembered."""

import pytest

from requirements import covers
from taskgate.admission.connected_hosts import MOST_GRANTED, REMEMBERED, ConnectedHosts, host_reference
from taskgate.domain.versions import Client

HOST = Client("host", "1")


@covers("T72")
@pytest.mark.parametrize(
    ("address", "same"),
    [("127.0.0.1", "::1"), ("127.0.0.1", "127.0.0.9"), ("2001:db8::1", "2001:db8::2"), ("192.0.2.1", "192.0.2.1")],
)
def test_a_host_has_one_reference_whatever_connection_it_uses(address: str, same: str) -> None:
    assert host_reference(address, HOST) == host_reference(same, HOST) is not None


@covers("T72")
@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.2", HOST),
        ("127.0.0.1", HOST),
        ("192.0.2.1", Client("host", "2")),
        ("192.0.2.1", Client("other", "1")),
        ("192.0.2.1", Client("host", None)),
        ("192.0.2.1", Client(None, "1")),
    ],
)
def test_a_host_of_another_address_or_name_has_another_reference(address: str, client: Client) -> None:
    assert host_reference(address, client) != host_reference("192.0.2.1", HOST)


def test_a_request_without_an_address_has_no_reference() -> None:
    assert host_reference("unknown", HOST) is None


def test_a_handle_is_good_for_those_that_got_it_of_which_the_newest_are_remembered() -> None:
    hosts = ConnectedHosts()
    for number in range(2 * MOST_GRANTED):
        hosts.grant("t", f"h{number}")
        hosts.grant("t", "h0")
    good = [number for number in range(2 * MOST_GRANTED) if hosts.is_granted("t", f"h{number}")]
    assert good == [0, *range(MOST_GRANTED + 1, 2 * MOST_GRANTED)]
    assert not hosts.is_granted("u", "h0")


def test_as_many_handles_are_remembered_as_the_bound_says() -> None:
    hosts = ConnectedHosts()
    for number in range(2 * REMEMBERED):
        hosts.grant(f"t{number}", "h")
    assert sum(hosts.is_granted(f"t{number}", "h") for number in range(2 * REMEMBERED)) == REMEMBERED
