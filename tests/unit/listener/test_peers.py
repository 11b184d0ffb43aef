"""Where a request comes from: what trusted proxies said, as far as it can be read, and not a word of anybody else."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.ip_addresses import read_address
from taskgate.listener.peers import Peers
from taskgate.streams.exchange import UNKNOWN

TRUSTED = tuple(map(ip_network, ("10.0.0.0/8", "fd00::/8")))
PEERS = Peers(TRUSTED)
NEWER = Peers(TRUSTED, "forwarded")
PROXY = "10.0.0.1"
HOST = "203.0.113.7"


def by_forwarded(*fields: str, peer: str = PROXY) -> str:
    return NEWER.address_of(peer, fields)


def by_forwarded_for(*fields: str, peer: str = PROXY) -> str:
    return PEERS.address_of(peer, fields)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (None, UNKNOWN),
        ("", UNKNOWN),
        ("/run/gate.sock", UNKNOWN),
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_a_peer_that_nobody_speaks_for_is_told_as_it_is(peer: str | None, address: str) -> None:
    assert PEERS.address_of(peer) == address
    assert Peers().address_of(peer, [PROXY]) == Peers((), "forwarded").address_of(peer, [f"for={PROXY}"]) == address


@pytest.mark.parametrize("peer", [HOST, "fe80::1", "::ffff:192.0.2.1", "9.255.255.255", "11.0.0.0"])
def test_nobody_else_is_believed(peer: str) -> None:
    itself = PEERS.address_of(peer)
    assert by_forwarded("for=192.0.2.9", peer=peer) == itself
    assert by_forwarded_for("192.0.2.9", peer=peer) == itself


@pytest.mark.parametrize("peer", [PROXY, "10.255.255.255", "::ffff:10.0.0.1", "fd00::1", "fd00::1%eth0"])
def test_a_trusted_peer_says_where_a_request_comes_from(peer: str) -> None:
    assert by_forwarded(f"for={HOST}", peer=peer) == HOST
    assert by_forwarded_for(HOST, peer=peer) == HOST


@pytest.mark.parametrize(
    ("field", "address"),
    [
        (f"for={HOST}", HOST),
        (f"FOR={HOST}", HOST),
        (f'for="{HOST}"', HOST),
        (f'for="{HOST}:4711"', HOST),
        (f'for="{HOST}:_port"', HOST),
        ('for="[2001:DB8::1]"', "2001:db8::1"),
        ('for="[2001:db8::1]:4711"', "2001:db8::1"),
        ('for="[::ffff:203.0.113.7]"', HOST),
        (f'by="[fd00::2]:80" ; For={HOST};proto=https;host="a,b"', HOST),
        (f'host="a, for=192.0.2.9";for={HOST}', HOST),
        (f'host="\\", for=192.0.2.9";for={HOST}', HOST),
        (f"for={HOST}, for=10.0.0.2", HOST),
        (f'for={HOST},for="[fd00::2]" ,\tfor=10.0.0.2', HOST),
        (f"for=192.0.2.9, for={HOST}", HOST),
        (f"nonsense, for={HOST}", HOST),
        (f'for=", for={HOST}', HOST),
        (f'for="x, for={HOST};host="y"', HOST),
        ("for=10.0.0.3, for=10.0.0.2", "10.0.0.3"),
        ("for=10.0.0.2", "10.0.0.2"),
    ],
)
def test_forwarded_is_followed_to_the_nearest_that_is_not_trusted(field: str, address: str) -> None:
    assert by_forwarded(field) == address


@pytest.mark.parametrize(
    "end",
    [
        "",
        " ",
        ",",
        "for=",
        "for=unknown",
        'for="unknown:80"',
        "for=_hidden",
        'for=""',
        "for=10.0.0",
        "for=10.0.0.256",
        "for=010.0.0.1",
        "for=10.0.0.1.2",
        "for=0x7f.0.0.1",
        "for=2001:db8::1",
        'for="[2001:db8::1"',
        'for="[2001:db8::1%eth0]"',
        'for="[:::]"',
        'for="203.0.113.8:"',
        'for="203.0.113.8:123456"',
        'for="203.0.113.8 "',
        'for="203.0.113\\.8"',
        'for="203.0.113.8',
        'for=203.0.113.8"',
        "for=203.0.113.8;",
        "for = 203.0.113.8",
        "for=\u0661.1.1.1",
        "xfor=203.0.113.8",
        "proto=https",
        "203.0.113.8",
        'host="x, for=203.0.113.8;a="',
    ],
)
def test_what_cannot_be_read_or_is_hidden_ends_the_way_at_the_last_that_is_known(end: str) -> None:
    assert by_forwarded(end) == PROXY
    assert by_forwarded(f"for={HOST}, {end}") == PROXY
    assert by_forwarded(f"for={HOST}, {end}, for=10.0.0.2") == "10.0.0.2"


@pytest.mark.parametrize(
    ("field", "address"),
    [
        (HOST, HOST),
        (f"192.0.2.9, {HOST}", HOST),
        (f" {HOST}\t,10.0.0.3, 10.0.0.2", HOST),
        (f"{HOST}:4711", HOST),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:203.0.113.7", HOST),
        ("::ffff:10.0.0.3, 10.0.0.2", "10.0.0.3"),
        (f"{HOST}, unknown, 10.0.0.2", "10.0.0.2"),
        (f"{HOST}, , 10.0.0.2", "10.0.0.2"),
        (f"{HOST},", PROXY),
        ("", PROXY),
        ("1:2", PROXY),
        ("fe80::1%eth0", PROXY),
        ("localhost", PROXY),
    ],
)
def test_the_other_header_is_followed_in_the_same_way(field: str, address: str) -> None:
    assert by_forwarded_for(field) == address


def test_a_header_in_several_lines_is_one() -> None:
    assert by_forwarded(f"for={HOST}", "for=10.0.0.2") == HOST
    assert by_forwarded_for(HOST, "10.0.0.2") == HOST


def test_the_grammar_of_one_header_is_not_that_of_the_other() -> None:
    assert by_forwarded(HOST) == PROXY
    assert by_forwarded_for(f"for={HOST}") == PROXY


@pytest.mark.parametrize(("peer", "trusted"), [(PROXY, True), ("fd00::1%eth0", True), (HOST, False), (None, False)])
def test_who_may_speak_for_others_is_told(peer: str | None, trusted: bool) -> None:
    assert PEERS.trusts(peer) is trusted


def test_hops_are_followed_only_so_far() -> None:
    near = [f"10.0.1.{number}" for number in range(16)]
    assert by_forwarded_for(", ".join([HOST, *near[1:]])) == HOST
    assert by_forwarded_for(", ".join([HOST, *near])) == near[0]
    assert by_forwarded(", ".join(f"for={each}" for each in [HOST, *near])) == near[0]


@pytest.mark.parametrize("filler", ["for=10.0.0.2, ", 'for="', '"\\', "for=a;", 'for="\\",', ",", " ", "a"])
def test_of_a_header_without_end_only_the_end_counts(filler: str) -> None:
    long = filler * 50_000
    assert by_forwarded(f"{long}, for={HOST}") == HOST
    assert by_forwarded(f"for={HOST}, {long}") in (PROXY, "10.0.0.2")
    assert by_forwarded_for(f"{long}, {HOST}") == HOST
    assert by_forwarded_for(f"{HOST}, {long}") == PROXY


def test_what_stands_too_far_from_the_end_is_not_read() -> None:
    assert by_forwarded_for(HOST + "," + "10.0.0.2".rjust(2000)) == HOST
    assert by_forwarded_for(HOST + "," + "10.0.0.2".rjust(2100)) == PROXY


def test_an_element_that_is_cut_is_not_read() -> None:
    # So long that the cut leaves a whole address of it.
    assert by_forwarded_for("1" * 10 + "92.0.2.9" + " " * 2040) == PROXY
    assert by_forwarded_for("1.192.0.2.9" + "," + "10.0.0.2".rjust(2038)) == "10.0.0.2"


@given(st.lists(st.text(alphabet='for=;,"\\ []:._1a%', max_size=60), max_size=3), st.booleans())
def test_whatever_is_sent_an_answer_is_an_address(fields: list[str], newer: bool) -> None:
    told = by_forwarded(*fields) if newer else by_forwarded_for(*fields)
    address = read_address(told)
    assert str(address) == told
