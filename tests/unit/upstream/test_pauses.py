"""Streams that broke together do not come back together."""

from taskgate.upstream.pauses import share


def test_a_stream_takes_from_half_a_pause_to_all_of_it_and_no_two_take_the_same() -> None:
    shares = [share(stream, turn) for stream in ("a", "b", "\ud800") for turn in range(50)]
    assert all(0.5 <= each <= 1 for each in shares)
    assert len(set(shares)) == len(shares)


def test_the_same_stream_takes_the_same_pauses() -> None:
    assert share("a", 3) == share("a", 3)
