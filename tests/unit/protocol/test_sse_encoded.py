"""What is written besides plain messages: ids, what primes a stream, and when to come back; all of it is read back."""

from taskgate.jsontext.large import JsonChunks
from taskgate.protocol.sse import EventDecoder, event, pause, priming

ROOMY = 1_000_000


def test_an_event_may_have_an_id_and_is_read_back_with_it() -> None:
    decoder = EventDecoder(ROOMY)
    assert event("1", "p1-2") == b"id: p1-2\nevent: message\ndata: 1\n\n"
    assert decoder.feed(event("1", "p1-2")) == [b"1"]
    assert decoder.last_id == "p1-2"


def test_what_primes_a_stream_is_no_message_and_has_an_id() -> None:
    decoder = EventDecoder(ROOMY)
    assert priming("p1-0") == b"id: p1-0\ndata: \n\n"
    assert decoder.feed(priming("p1-0")) == []
    assert decoder.last_id == "p1-0"


def test_a_pause_is_no_message_and_takes_back_no_id() -> None:
    decoder = EventDecoder(ROOMY)
    assert decoder.feed(event("1", "p1-2") + pause(1000)) == [b"1"]
    assert (decoder.last_id, decoder.retry) == ("p1-2", 1000)


def test_a_large_text_is_the_same_event() -> None:
    text = '{"a":\r\n["é",\n1]}'
    for id in (None, "p1-2"):
        assert event(JsonChunks([text[:5].encode(), text[5:].encode()]), id) == event(text, id)
