"""Messages of legacy hosts are decoded, and their welcome is encoded."""

import json

import pytest

from helpers.memory_kept import memory_kept
from taskgate.domain.versions import NEWEST_LEGACY, Peer, Revision
from taskgate.errors import InvalidParams
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import (
    LegacyIntent,
    OpenSession,
)
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import MAX_CAPABILITIES

# --- requests ---------------------------------------------------------------------------------------------------------


DIALECT = LegacyDownstream("0.1.0")


def decode(
    text: str,
    revision: Revision | None = NEWEST_LEGACY,
    *,
    offers_tasks: bool = True,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> LegacyIntent:
    peer = None if revision is None else Peer(revision=revision, capabilities={}, info={})
    message = parse(text.encode(), max_depth=64)
    return DIALECT.decode(message, peer, offers_tasks=offers_tasks, extensions=extensions)


def request(method: str, params: str | None = None, id_: str = "1") -> str:
    tail = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}"{tail}}}'


# --- initialize ----------------------------------------------------------------------------------------------------


def test_a_host_may_declare_so_much_and_no_more() -> None:
    most = '{"experimental":"' + "x" * (MAX_CAPABILITIES - len('{"experimental":""}')) + '"}'
    assert isinstance(
        decode(request("initialize", f'{{"protocolVersion":"1","capabilities":{most}}}'), None), OpenSession
    )
    with pytest.raises(InvalidParams, match=r"^The capabilities are longer than 16384 characters$"):
        decode(request("initialize", f'{{"protocolVersion":"1","capabilities":{most[:-1]} }}}}'), None)


def test_of_what_a_host_says_it_is_its_name_and_version_are_kept() -> None:
    info = f'{{"name":"h","version":"{"1" * 1000}","title":"t","icons":[{{"src":"data:,{"x" * 100_000}"}}]}}'
    intent = decode(request("initialize", f'{{"protocolVersion":"1","clientInfo":{info}}}'), None)
    assert isinstance(intent, OpenSession)
    assert intent.peer.info == {"name": "h", "version": "1" * 512}


def test_what_a_host_says_it_is_in_very_many_parts_is_not_read() -> None:
    info = json.dumps({"name": "h", "parts": [0] * 100_000})
    intent = decode(request("initialize", f'{{"protocolVersion":"1","clientInfo":{info}}}'), None)
    assert isinstance(intent, OpenSession)
    assert intent.peer.info == {}


# --- the welcome ------------------------------------------------------------------------------------------------------


def welcome(
    capabilities: str,
    *,
    revision: Revision = NEWEST_LEGACY,
    offers_tasks: bool = True,
    instructions: str | None = None,
    server: Revision = Revision.R2024_11_05,
    extensions: ExtensionPolicy = ExtensionPolicy(),  # noqa: B008 - a value
) -> str:
    intent = OpenSession(id="i", peer=Peer(revision=revision, capabilities={}, info={}))
    # What the server negotiated is its own affair: the two handshakes are independent.
    peer = Peer(revision=server, capabilities=json.loads(capabilities), info={"name": "server"})
    told = ServerDescription(peer=peer, capabilities=capabilities, instructions=instructions)
    return DIALECT.welcome(intent, told, offers_tasks=offers_tasks, extensions=extensions)


def test_what_a_server_declared_is_not_kept() -> None:
    def greet() -> None:
        for number in range(8):
            welcome(f'{{"tools":{{}},"experimental":{{"x":"{number}{"x" * 2**20}"}}}}')

    assert memory_kept(greet) < 2**18
