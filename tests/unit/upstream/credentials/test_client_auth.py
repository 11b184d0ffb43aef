"""How the gateway shows itself to a token endpoint: in one way, and never in two."""

import os
from base64 import urlsafe_b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from helpers.exchange_server import ExchangeServer, Terms
from helpers.server import ScriptedServer
from taskgate.upstream.credentials.client_auth import (
    LIFETIME,
    ClientFileRefused,
    basic,
    expect_client_file,
)
from taskgate.upstream.settings import AssertionKey, ClientAuth, GrantKind, GrantSettings
from unit.upstream.offices import Office, exchange, failure, shown, somebody

NewOffice = Callable[..., Office]

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def pem(key: Any, password: bytes | None = None) -> bytes:
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    found: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    return found


def put(path: Path, content: bytes) -> Path:
    """As agents of vaults and platforms do it: a new file in the place of the old one."""
    new = path.with_name("new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.replace(path)
    return path


def certificate(key: Any) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "taskgate")])
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(begin).not_valid_after(begin + timedelta(days=9))
    return builder.sign(key, hashes.SHA256())


@pytest.mark.parametrize("kind", GrantKind)
@pytest.mark.parametrize("way", ["basic", "post"])
async def test_the_secret_is_shown_in_one_way_alone(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, kind: GrantKind, way: str
) -> None:
    endpoint.terms = Terms(grant_type=kind, client_auth=way) if kind == "client_credentials" else Terms(client_auth=way)
    await office(exchange(endpoint, kind, client_auth=ClientAuth(way))).call(somebody())
    assert (endpoint.asked, endpoint.refusals) == (1, [])


async def test_the_other_way_is_refused_by_a_strict_endpoint(endpoint: ExchangeServer, office: NewOffice) -> None:
    endpoint.terms = Terms(client_auth="post")
    await failure(office(exchange(endpoint)).session(somebody()))
    assert endpoint.refusals == ["invalid_client: the client"]


@pytest.mark.parametrize("algorithm", KEYS)
async def test_an_assertion_is_signed_by_the_usual_algorithm_of_the_key(
    endpoint: ExchangeServer, office: NewOffice, tmp_path: Path, algorithm: str
) -> None:
    key = KEYS[algorithm]
    endpoint.terms = Terms(client_auth="private_key_jwt", key=key.public_key())
    file = put(tmp_path / "key", pem(key))
    house = office(signing(endpoint, AssertionKey(file=file, id="k-1")))
    await house.call(somebody())
    assert endpoint.refusals == []
    header, claims = endpoint.assertions[0]
    assert header == {"alg": algorithm, "kid": "k-1", "typ": "JWT"}
    now = int(house.clock.wall_seconds())
    assert (claims["aud"], claims["iat"], claims["exp"]) == (endpoint.url, now, now + LIFETIME)


async def test_algorithm_and_audience_can_be_chosen_and_a_certificate_adds_its_thumbprint(
    endpoint: ExchangeServer, office: NewOffice, tmp_path: Path
) -> None:
    key = KEYS["RS256"]
    shown_certificate = certificate(key)
    endpoint.terms = Terms(client_auth="private_key_jwt", key=key.public_key(), assertion_audience="https://issuer/")
    file = put(tmp_path / "key", pem(key) + shown_certificate.public_bytes(serialization.Encoding.PEM))
    await office(signing(endpoint, AssertionKey(file=file, algorithm="PS256", audience="https://issuer/"))).call(
        somebody()
    )
    header, claims = endpoint.assertions[0]
    assert header.keys() == {"alg", "typ", "x5t#S256"}
    assert header["alg"] == "PS256"
    thumbprint = urlsafe_b64decode(header["x5t#S256"] + "=")
    assert thumbprint == shown_certificate.fingerprint(hashes.SHA256())
    assert claims["aud"] == "https://issuer/"


async def test_each_request_has_an_assertion_of_its_own_with_the_key_that_is_there(
    endpoint: ExchangeServer, office: NewOffice, tmp_path: Path
) -> None:
    first, second = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    endpoint.terms = Terms(client_auth="private_key_jwt", key=first.public_key())
    file = put(tmp_path / "key", pem(first))
    house = office(signing(endpoint, AssertionKey(file=file), keeps=False))
    await house.call(somebody())
    assert len({claims["jti"] for _, claims in endpoint.assertions}) == endpoint.asked > 1
    put(file, pem(second))
    endpoint.terms = Terms(client_auth="private_key_jwt", key=second.public_key())
    await house.call(somebody())
    assert endpoint.refusals == []


async def test_a_token_of_a_platform_is_read_for_each_request(
    server: ScriptedServer, endpoint: ExchangeServer, office: NewOffice, tmp_path: Path
) -> None:
    endpoint.terms = Terms(client=("taskgate", "first.of.platform"), client_auth="federated")
    file = put(tmp_path / "token", b"first.of.platform\n")
    house = office(
        exchange(endpoint, client_auth=ClientAuth.FEDERATED, client_secret=None, assertion_file=file, keeps=False)
    )
    await house.call(somebody())
    put(file, b"second.of.platform")
    endpoint.terms = Terms(client=("taskgate", "second.of.platform"), client_auth="federated")
    await house.call(somebody())
    assert endpoint.refusals == []
    assert len(shown(server)) == len(endpoint.issued)


WRONG = "credentials.key_file: must hold a private key in PEM form, without a password"


@pytest.mark.parametrize(
    ("content", "algorithm", "told"),
    [
        (None, None, "credentials.key_file: cannot be read: No such file or directory"),
        (b"", None, WRONG),
        (b"the-s3cret", None, WRONG),
        (pem(KEYS["ES256"], b"a password"), None, WRONG),
        (pem(KEYS["ES256"]), "RS256", "credentials.algorithm: is not one of the key in credentials.key_file"),
        (pem(KEYS["RS256"]), "ES256", "credentials.algorithm: is not one of the key in credentials.key_file"),
        (b"x" * 70_000, None, "credentials.key_file: is larger than 64KiB"),
    ],
)
async def test_a_key_that_cannot_be_used_is_told_to_operators_alone(
    server: ScriptedServer,
    endpoint: ExchangeServer,
    office: NewOffice,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
    algorithm: str | None,
    told: str,
) -> None:
    file = tmp_path / "key"
    if content is not None:
        put(file, content)
    settings = signing(endpoint, AssertionKey(file=file, algorithm=algorithm))
    failed = await failure(office(settings).session(somebody()))
    assert str(failed) == "The gateway could not get credentials for the server"
    assert [record.reason for record in caplog.records] == [f"client_file {told}"]
    assert (endpoint.asked, server.requests) == (0, [])
    with pytest.raises(ClientFileRefused) as refused:
        expect_client_file(settings)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "must hold one token"),
        (b"a b", "must hold one token"),
        (b"a\nb", "must hold one token"),
        (b"\xff", "must hold one token"),
    ],
)
def test_a_file_without_a_token_of_a_platform_is_refused(
    endpoint: ExchangeServer, tmp_path: Path, content: bytes, told: str
) -> None:
    settings = exchange(
        endpoint, client_auth=ClientAuth.FEDERATED, client_secret=None, assertion_file=put(tmp_path / "token", content)
    )
    with pytest.raises(ClientFileRefused, match=f"^credentials.assertion_file: {told}$"):
        expect_client_file(settings)


@pytest.mark.parametrize("way", ["key", "token"])
def test_a_file_that_every_user_may_read_is_refused(endpoint: ExchangeServer, tmp_path: Path, way: str) -> None:
    file = put(tmp_path / "file", pem(KEYS["ES256"]) if way == "key" else b"a.b.c")
    os.chmod(file, 0o644)
    settings = (
        signing(endpoint, AssertionKey(file=file))
        if way == "key"
        else exchange(endpoint, client_auth=ClientAuth.FEDERATED, client_secret=None, assertion_file=file)
    )
    with pytest.raises(ClientFileRefused, match="may be read or written by every user of this machine"):
        expect_client_file(settings)


def test_a_client_is_named_as_the_standard_says() -> None:
    assert basic("a", "b") == "Basic YTpi"
    assert basic("gate way", "s:%+ö") == "Basic Z2F0ZSt3YXk6cyUzQSUyNSUyQiVDMyVCNg=="


def signing(endpoint: ExchangeServer, key: AssertionKey, **more: Any) -> GrantSettings:
    return exchange(endpoint, client_auth=ClientAuth.PRIVATE_KEY_JWT, client_secret=None, assertion_key=key, **more)
