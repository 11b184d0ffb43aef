"""The chain of lines: links, signatures, keys and digests."""

import hmac
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from taskgate.telemetry.auditlog.chain import (
    EMPTY_CHAIN,
    GENESIS,
    Chain,
    ChainHead,
    Ed25519Signer,
    HmacSigner,
    KeyRing,
    SigningKeyError,
    canonical,
    digest_of,
    head_of,
    parse_line,
    signer_of,
    split_signature,
)
from taskgate.telemetry.auditlog.events import internal_event
from taskgate.telemetry.auditlog.formats.digests import DIGEST_LENGTH, Digests, encoded, task_ref
from taskgate.telemetry.auditlog.formats.renderer import Renderer
from taskgate.telemetry.auditlog.settings import LineOptions

KEY = b"k" * 32
NOW = datetime(2026, 11, 21, tzinfo=UTC)
FORMATS = ["native", "ocsf", "ecs"]


def rendered(name: str = "gateway.started", form: Any = "native", **data: Any) -> dict[str, Any]:
    return Renderer(LineOptions(format=form), key=KEY, node="gw-1")(internal_event(name, NOW, data=data))


def new_pem(*, public: bool = False) -> bytes:
    key = Ed25519PrivateKey.generate()
    if public:
        return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("form", FORMATS)
def test_every_line_has_the_digest_of_the_one_before_and_the_next_number(form: str) -> None:
    chain = Chain(EMPTY_CHAIN, HmacSigner(KEY))
    lines = [chain.add(rendered(form=form, version=str(number))) for number in range(3)]
    owns = [parse_line(line.rstrip(b"\n")) for line in lines]
    assert [own and own["seq"] for own in owns] == [1, 2, 3]
    assert [own and own["prev"] for own in owns] == [GENESIS, *(digest_of(line[:-1]) for line in lines[:-1])]
    assert chain.head == head_of(lines[-1][:-1])


@pytest.mark.parametrize("form", FORMATS)
def test_a_line_is_written_as_it_is_read_again(form: str) -> None:
    line = Chain(EMPTY_CHAIN, HmacSigner(KEY)).add(rendered("audit.checkpoint", form, seq=1))
    assert canonical(orjson.loads(line)) + b"\n" == line
    assert line.count(b"\n") == 1


def test_a_chain_goes_on_from_any_head() -> None:
    chain = Chain(ChainHead(41, "ab" * 32), HmacSigner(KEY))
    own = parse_line(chain.add(rendered())[:-1])
    assert own is not None
    assert (own["seq"], own["prev"]) == (42, "ab" * 32)


def test_without_links_lines_have_numbers_alone_and_links_may_come_back() -> None:
    chain = Chain(EMPTY_CHAIN, None)
    line = chain.add(rendered("audit.chain_started", sink="file"))
    own = parse_line(line[:-1])
    assert own is not None
    assert (own["seq"], own["prev"]) == (1, None)
    assert "signature" not in own["data"]
    chain.set_signer(HmacSigner(KEY))
    own = parse_line(chain.add(rendered())[:-1])
    assert own is not None
    assert (own["seq"], own["prev"]) == (2, digest_of(line[:-1]))


def test_what_json_cannot_say_leaves_the_chain_as_it_was() -> None:
    chain = Chain(EMPTY_CHAIN, HmacSigner(KEY))
    with pytest.raises(TypeError):
        chain.add(rendered(number=2**64))
    assert chain.head == EMPTY_CHAIN


@pytest.mark.parametrize("name", ["audit.chain_started", "audit.checkpoint", "audit.gap"])
@pytest.mark.parametrize("form", FORMATS)
def test_what_the_log_says_of_itself_is_signed(form: str, name: str) -> None:
    signer = HmacSigner(KEY)
    signed = split_signature(Chain(EMPTY_CHAIN, signer).add(rendered(name, form, sink="file"))[:-1])
    assert signed is not None
    text, key, signature = signed
    assert key == signer.key_id
    assert KeyRing(keys=(KEY,)).is_valid(key, text, signature)
    assert not KeyRing(keys=(KEY,)).is_valid(key, text + b" ", signature)


def test_an_event_that_several_sinks_get_is_signed_for_each() -> None:
    event = internal_event("audit.checkpoint", NOW, data={"sink": "file", "seq": 1, "head": "x"})
    render = Renderer(LineOptions(), key=KEY, node="gw-1")
    lines = [Chain(ChainHead(seq, GENESIS), HmacSigner(KEY)).add(render(event)) for seq in (1, 2)]
    assert event.data == {"sink": "file", "seq": 1, "head": "x"}
    signatures = {signed[2] for line in lines if (signed := split_signature(line[:-1]))}
    assert len(signatures) == 2


def test_a_line_in_another_form_was_never_signed() -> None:
    line = Chain(EMPTY_CHAIN, HmacSigner(KEY)).add(rendered("audit.checkpoint"))[:-1]
    assert split_signature(line) is not None
    assert split_signature(line.replace(b'":', b'": ', 1)) is None


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"7", b"no", b'{"v":1,"event":"x"}', b'{"v":1,"event":"x","seq":true}',
     b'{"v":1,"event":"x","seq":0}', b'{"v":1,"event":7,"seq":1}', b'{"event":"x","seq":1}'],
)  # fmt: skip
def test_what_is_no_line_of_a_log_is_told_from_one(line: bytes) -> None:
    assert parse_line(line) is None
    assert head_of(line) is None


@pytest.mark.parametrize("data", [b"7", b"{}", b'{"signature":7,"key":"a"}', b'{"signature":"a"}'])
def test_a_line_without_a_signature_has_none(data: bytes) -> None:
    assert split_signature(b'{"data":' + data + b',"event":"audit.gap","seq":1,"v":1}') is None


def test_a_key_is_known_by_an_id_that_says_nothing_of_it() -> None:
    assert HmacSigner(KEY).key_id == HmacSigner(KEY).key_id != HmacSigner(b"l" * 32).key_id
    assert len(HmacSigner(KEY).key_id) == 16
    assert KEY.hex() not in HmacSigner(KEY).sign(b"text")


def test_a_private_key_signs_and_either_half_checks() -> None:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signer = signer_of(KEY, private)
    assert isinstance(signer, Ed25519Signer)
    signature = signer.sign(b"text")
    for pem in (private, public):
        ring = KeyRing(pems=(pem,))
        assert ring.has(signer.key_id)
        assert ring.is_valid(signer.key_id, b"text", signature)
        assert not ring.is_valid(signer.key_id, b"texts", signature)
        assert not ring.is_valid(signer.key_id, b"text", "no hex")
    assert not KeyRing(pems=(new_pem(),)).has(signer.key_id)
    assert isinstance(signer_of(KEY, None), HmacSigner)


def test_no_ring_has_no_key() -> None:
    assert not KeyRing()
    assert KeyRing(keys=(KEY,))


@pytest.mark.parametrize("pem", [b"", b"no pem", new_pem()[:40], new_pem(public=True)], ids=range(4))
def test_what_is_no_private_key_signs_nothing(pem: bytes) -> None:
    with pytest.raises(SigningKeyError, match="private key in PEM"):
        signer_of(KEY, pem)


def test_another_kind_of_key_is_refused() -> None:
    key = generate_private_key(65537, 2048)
    with pytest.raises(SigningKeyError, match="Ed25519"):
        signer_of(KEY, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(SigningKeyError, match="Ed25519"):
        KeyRing(pems=(public,))
    with pytest.raises(SigningKeyError, match="PEM"):
        KeyRing(pems=(b"-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----\n",))


# --- digests ---------------------------------------------------------------------------------------------------------


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
