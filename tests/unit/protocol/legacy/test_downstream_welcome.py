"""What a host is told in the handshake: the server's words, and of tasks only where there are any."""

import json

import pytest

from helpers.memory_kept import memory_kept
from helpers.schema import check_server_message
from taskgate.domain.versions import LEGACY, NEWEST_LEGACY, Peer, Revision
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import OpenSession
from taskgate.protocol.legacy.downstream import TASK_CAPABILITY, LegacyDownstream
from taskgate.protocol.legacy.filters import FILTER_CAPABILITY

DIALECT = LegacyDownstream("0.1.0")
TASKS = f'"tasks":{TASK_CAPABILITY}'


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


def whole(revision: Revision, capabilities: str, told: str = "") -> str:
    info = '{"name":"taskgate","version":"0.1.0"}'
    meta = '"_meta":{"io.taskgate/gateway":{"version":"0.1.0"}}'
    result = f'{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{info}{told},{meta}}}'
    return f'{{"jsonrpc":"2.0","id":"i","result":{result}}}'


ODD = r'"logging":{ "\u00e9":{"a":1E400,"a":123456789012345678901234567890}}'
UI = r'"io.modelcontextprotocol\/ui" : {"\u0061": 1.0}'

# The server's capabilities, what a host with tasks reads, what any other host reads.
CAPABILITIES: dict[str, tuple[str, str, str]] = {
    "nothing": ("{}", "{}", "{}"),
    "no tools": (f"{{ {ODD} }}", f"{{ {ODD} }}", f"{{ {ODD} }}"),
    "tools": ('{"tools":{}}', f'{{{TASKS},"tools":{{}}}}', '{"tools":{}}'),
    "tools and odd things": (
        f'{{ "tools" : {{"listChanged":true}} , {ODD} }}',
        f'{{{TASKS}, "tools" : {{"listChanged":true}} , {ODD} }}',
        f'{{ "tools" : {{"listChanged":true}} , {ODD} }}',
    ),
    "tasks of the server": (
        '{"tasks":{"list":{},"cancel":{}}, "tools":{}}',
        f'{{{TASKS},"tools":{{}}}}',
        '{"tools":{}}',
    ),
    "tasks of the server without tools": ('{"tasks":{"list":{}}}', "{}", "{}"),
    "tasks that are null": ('{"tools":{},"tasks":null}', f'{{{TASKS},"tools":{{}}}}', '{"tools":{}}'),
    "extensions": (
        '{"extensions":{"io.modelcontextprotocol/tasks":{}},"prompts":{}}',
        '{"prompts":{}}',
        '{"prompts":{}}',
    ),
    "extensions that cross": (
        f'{{"extensions":{{{UI} ,"com.example/x":{{}},"io.modelcontextprotocol/tasks":{{}}}},"tools":{{}}}}',
        f'{{{TASKS},"extensions":{{{UI}}},"tools":{{}}}}',
        f'{{"extensions":{{{UI}}},"tools":{{}}}}',
    ),
    "promises of others": (
        '{"prompts":{},"events":{},"acme":{"a":1},"experimental":{"x":{}}}',
        '{"prompts":{}}',
        '{"prompts":{}}',
    ),
    "all of them": (
        '{"prompts":{},"extensions":{},"tasks":{},"tools":{}}',
        f'{{{TASKS},"prompts":{{}},"extensions":{{}},"tools":{{}}}}',
        '{"prompts":{},"extensions":{},"tools":{}}',
    ),
}


@pytest.mark.parametrize(("declared", "told", "_"), CAPABILITIES.values(), ids=CAPABILITIES)
def test_a_host_with_tasks_is_told_of_them_where_there_are_tools(declared: str, told: str, _: str) -> None:
    # V-INIT-4, L-CAP-1.
    text = welcome(declared)
    assert text == whole(NEWEST_LEGACY, told)
    check_server_message(text, request_method="initialize")


WITHOUT_TASKS = [(revision, True) for revision in LEGACY if not revision.has_tasks]
WITHOUT_TASKS += [(revision, False) for revision in LEGACY]


@pytest.mark.parametrize(("revision", "offers_tasks"), WITHOUT_TASKS)
@pytest.mark.parametrize(("declared", "_", "told"), CAPABILITIES.values(), ids=CAPABILITIES)
def test_any_other_host_is_told_nothing_of_them(
    declared: str, _: str, told: str, revision: Revision, offers_tasks: bool
) -> None:
    text = welcome(declared, revision=revision, offers_tasks=offers_tasks)
    assert text == whole(revision, told)
    check_server_message(text, request_method="initialize")


def test_what_a_revision_does_not_define_crosses_where_others_do_and_between_servers_and_hosts_of_one_era() -> None:
    # X-EXT-5, X-EXT-55.
    declared = '{"prompts":{},"acme":{"a": 1},"experimental":{"x":{}},"extensions":{"com.example/x":{}}}'
    others = ExtensionPolicy(others=True)
    assert welcome(declared, extensions=others) == whole(NEWEST_LEGACY, declared)
    assert welcome(declared, extensions=others, server=Revision.R2026_07_28) == whole(NEWEST_LEGACY, '{"prompts":{}}')


def test_hosts_that_cannot_be_told_apart_are_offered_no_list() -> None:
    # L-CAP-1, L-CAP-2.
    message = json.loads(welcome('{"tools":{},"tasks":{"list":{}}}'))
    assert message["result"]["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}


def test_hosts_that_can_be_told_apart_are_offered_a_list() -> None:
    # L-CAP-1, L-CAP-2.
    peer = Peer(revision=NEWEST_LEGACY, capabilities={"tools": {}}, info={})
    server = ServerDescription(peer=peer, capabilities='{"tools":{}}', instructions=None)
    for revision in LEGACY:
        intent = OpenSession(id="i", peer=Peer(revision=revision, capabilities={}, info={}))
        text = LegacyDownstream("0.1.0", lists=True).welcome(
            intent, server, offers_tasks=True, extensions=ExtensionPolicy()
        )
        capabilities = json.loads(text)["result"]["capabilities"]
        tasks = {
            "tasks": {
                "cancel": {},
                "list": {"filter": json.loads(FILTER_CAPABILITY)},
                "requests": {"tools": {"call": {}}},
            }
        }
        assert capabilities == {"tools": {}, **(tasks if revision.has_tasks else {})}
        check_server_message(text, request_method="initialize")


@pytest.mark.parametrize("instructions", ['""', r'"Use \u00e9 \ud83d\ude00\/\n"', '"é"'])
def test_the_instructions_are_the_servers_to_the_byte(instructions: str) -> None:
    text = welcome('{"tools":{}}', instructions=instructions)
    assert text == whole(NEWEST_LEGACY, f'{{{TASKS},"tools":{{}}}}', f',"instructions":{instructions}')
    check_server_message(text, request_method="initialize")


def test_what_a_server_declared_is_not_kept() -> None:
    def greet() -> None:
        for number in range(8):
            welcome(f'{{"tools":{{}},"experimental":{{"x":"{number}{"x" * 2**20}"}}}}')

    assert memory_kept(greet) < 2**18
