"""Digests are HMAC, whatever is made once beforehand."""

import hmac
from base64 import urlsafe_b64encode

import pytest

from taskgate.telemetry.auditlog.formats.digests import DIGEST_LENGTH, Digests, encoded, task_ref


@pytest.mark.parametrize("size", [1, 32, 63, 64, 65, 200])
def test_a_digest_is_hmac_of_the_kind_and_the_text(size: int) -> None:
    """RFC 2104: a key that is longer than a block is hashed first."""
    key, digests = bytes(range(size)), Digests(bytes(range(size)))

    for text in ("", "{}", "ä\ud800" * 100, "x" * 5_000):
        of_arguments = digests.arguments(encoded(text)).decode()
        for kind, made in (("t", digests.task(text)), ("a", of_arguments), ("r", digests.result(text))):
            written = hmac.digest(key, f"{kind}\n{text}".encode("utf-8", "surrogatepass"), "sha256")
            assert made == f"{kind}_{urlsafe_b64encode(written).decode()[:DIGEST_LENGTH]}"
        assert task_ref(key, text) == digests.task(text)
