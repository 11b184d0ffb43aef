"""What programs say, made fit for the log: no value of their environment is in it, and no line is long."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from taskgate.system.redaction import SHOWN, SecretRedaction

KEY = "-----BEGIN KEY-----\nMIIBOgIBAAJB\nAKj34Gkxx\n-----END KEY-----"


@pytest.mark.parametrize(
    ("values", "said", "told"),
    [
        ((), b"Server ready\n", "Server ready"),
        (["s3cret"], b"token=s3cret&x=s3crets3cret", "token=[redacted]&x=[redacted][redacted]"),
        (["abcd", "abcdef"], b"abcdefg", "[redacted]g"),
        (["abcd", "cdef"], b"xabcdefg", "x[redacted]g"),
        (["a.*b"], b"axxb a.*b", "axxb [redacted]"),
        ([KEY], b"bad key: MIIBOgIBAAJB", "bad key: [redacted]"),
        ([KEY], KEY.encode(), "[redacted]"),
        (["1", "on"], b"1 on one", "1 on one"),
        (["gr\u00fcn"], "blau grün".encode(), "blau [redacted]"),
        ((), b"\xff\xfeA", "\ufffd\ufffdA"),
    ],
)
def test_secrets_are_taken_out(values: list[str], said: bytes, told: str) -> None:
    assert SecretRedaction(values).redacted(said) == told


def test_a_long_line_is_cut() -> None:
    assert SecretRedaction(()).redacted(b"x" * SHOWN) == "x" * SHOWN
    assert SecretRedaction(()).redacted(b"x" * (SHOWN + 1)) == "x" * SHOWN + "…"


@given(some.text("ABCÉ", min_size=4, max_size=12), some.integers(0, 40), some.integers(1, 12))
def test_of_a_secret_at_the_place_of_the_cut_nothing_is_told(secret: str, before: int, kept: int) -> None:
    """Wherever the line was cut before it came here, of a line that is otherwise of other letters."""
    redaction = SecretRedaction([secret])
    said = "x" * before + secret[:kept]
    told = redaction.redacted(said.encode(), is_whole=False)
    assert set(told) <= set("x…[redacted]")


@example('\\\n\\"\\\\', '"')
@given(some.text("ab\"'\\/\n\té\u2028😀", min_size=4, max_size=12), some.sampled_from(["", "'", '"']))
def test_it_is_taken_out_as_it_is_written_between_quotes(secret: str, beside: str) -> None:
    redaction = SecretRedaction([secret])
    for write in (json.dumps, repr, ascii, lambda text: json.dumps(text, ensure_ascii=False)):
        said = f"<{write('ok' + beside + secret)}>"
        told = redaction.redacted(said.encode())
        assert set(told) <= set("<>\"'ok\\[redacted]"), (said, told)
        assert "[redacted]" in told
