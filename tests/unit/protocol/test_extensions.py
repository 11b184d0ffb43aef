"""Extensions cross if both eras define them and the operator allows them."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.versions import Era
from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.extensions import (
    ALLOWED_BY_DEFAULT,
    AUTHORIZATION,
    BUILT_IN,
    EVENTS,
    KNOWN_METHODS,
    SKILLS,
    UI,
    Extension,
    ExtensionPolicy,
    dump_capabilities,
    is_declared,
    merge_capabilities,
)
from taskgate.protocol.vocabulary import ERA_NOTICES, MODERN_METHODS, TASKS_EXTENSION
from taskgate.protocol.vocabulary import KNOWN_METHODS as CORE_METHODS

# --- the policy -------------------------------------------------------------------------------------------------------


L, M = Era.LEGACY, Era.MODERN
PAIRS = list(product(Era, Era))
"""The eras of hosts and their servers."""

THING = "com.example/thing"
BRIDGED = "com.example/bridged"
NEWEST = "com.example/newest"
OTHER = "com.example/other"
OWN = {TASKS_EXTENSION: "{}"}

USUAL = ExtensionPolicy()
NOTHING = ExtensionPolicy(allowed={})
OTHERS = ExtensionPolicy(others=True, denied=frozenset({THING}))
EVENTS_CROSS = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS]})
NAMED = ExtensionPolicy(
    allowed={
        THING: Extension(
            methods=frozenset({"thing/do"}),
            notifications=frozenset({"notifications/thing/changed"}),
            filters=frozenset({"thingChanged"}),
            streams=frozenset({"thing/do"}),
        ),
        BRIDGED: Extension(
            methods=frozenset({"bridged/do"}),
            notifications=frozenset({"notifications/bridged/changed", "notifications/bridged/gone"}),
            filters=frozenset({"bridgedChanged", "bridgedGone"}),
            eras=frozenset(Era),
        ),
        NEWEST: Extension(
            methods=frozenset({"newest/do"}),
            notifications=frozenset({"notifications/newest/changed"}),
            filters=frozenset({"newestChanged"}),
            eras=frozenset({M}),
        ),
    }
)


def pairs_of(answers: Any) -> set[tuple[Era, Era]]:
    """The pairs of a host and a server for which it answers yes."""
    return {pair for pair in PAIRS if answers(*pair)}


SAME = {(L, L), (M, M)}
ALL = set(PAIRS)

# --- what is known ---------------------------------------------------------------------------------------------------


def test_apps_and_skills_cross_by_default_and_events_do_not() -> None:
    # X-EXT-50.
    assert {UI, SKILLS} == ALLOWED_BY_DEFAULT == USUAL.allowed.keys()
    assert BUILT_IN.keys() == {UI, SKILLS, EVENTS}
    assert tuple(f"io.modelcontextprotocol/{name}" for name in ("ui", "skills", "events")) == (UI, SKILLS, EVENTS)


def test_apps_have_no_methods_and_nobody_hears_of_them() -> None:
    # X-APP-1.
    assert BUILT_IN[UI] == Extension(eras=frozenset(Era))


def test_skills_are_read_in_either_era_and_say_how_long_they_may_be_kept() -> None:
    assert BUILT_IN[SKILLS] == Extension(
        methods=frozenset({"skills/list", "skills/get", "resources/directory/read"}),
        cacheable=frozenset({"skills/list", "skills/get", "resources/directory/read"}),
        eras=frozenset(Era),
    )


def test_events_have_a_second_spelling_codes_of_two_designs_and_one_request_that_lasts() -> None:
    # X-EXT-31, X-EXT-32.
    events = BUILT_IN[EVENTS]
    assert {name.removeprefix("events/") for name in events.methods} == {
        "list", "poll", "stream", "subscribe", "unsubscribe",
    }  # fmt: skip
    assert {name.removeprefix("notifications/events/") for name in events.notifications} == {
        "active", "event", "error", "heartbeat", "terminated", "list_changed",
    }  # fmt: skip
    assert sorted(events.codes) == [-32027, -32026, -32025, -32024, -32023, -32015, -32014, -32013, -32012, -32011]
    assert (events.capability, events.filters, events.streams) == ("events", {"eventsListChanged"}, {"events/stream"})
    assert (events.eras, events.cacheable, events.result_types) == (None, frozenset(), frozenset())


def test_no_name_of_an_extension_is_one_of_the_core_or_of_another() -> None:
    methods = [name for each in BUILT_IN.values() for name in each.methods]
    assert len(methods) == len(set(methods)) == len(KNOWN_METHODS)
    assert set(methods) == KNOWN_METHODS
    assert not KNOWN_METHODS & (CORE_METHODS | MODERN_METHODS)
    assert not ERA_NOTICES & {name for each in BUILT_IN.values() for name in each.notifications}


# --- one extension ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eras", "pairs"),
    [(None, SAME), (frozenset(Era), ALL), (frozenset({M}), {(M, M)}), (frozenset({L}), {(L, L)}), (frozenset(), set())],
    ids=["none named", "both", "the stateless one", "the initialize one", "no era"],
)
def test_an_extension_crosses_between_the_eras_that_it_is_defined_in(
    eras: frozenset[Era] | None, pairs: set[tuple[Era, Era]]
) -> None:
    # X-EXT-7.
    assert pairs_of(Extension(eras=eras).crosses) == pairs


@pytest.mark.parametrize(
    ("kind", "is_known"),
    [
        ("complete", True),
        ("partial", True),
        ("task", False),
        ("input_required", False),
        ("", False),
        (None, False),
        (True, False),
        (["partial"], False),
        ({"partial": 1}, False),
    ],
)
def test_results_are_complete_or_of_a_kind_that_the_extension_has(kind: object, is_known: bool) -> None:
    # X-EXT-22.
    assert Extension(result_types=frozenset({"partial"})).allows_result(kind) is is_known
    assert Extension().allows_result(kind) is (kind == "complete")


# --- methods and notifications ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/call", "tasks/get", "events/list", "", "thing/do/more"])
def test_a_method_of_no_carried_extension_has_none(method: str) -> None:
    for policy in (USUAL, NAMED, ExtensionPolicy(others=True)):
        assert policy.by_method.get(method) is None
        assert not any(policy.allows_method(method, host, server) for host in Era for server in (*Era, None))


def test_a_method_is_that_of_its_extension() -> None:
    assert NAMED.by_method["thing/do"] is NAMED.allowed[THING]
    assert USUAL.by_method["skills/get"] is BUILT_IN[SKILLS]
    assert "skills/get" not in EVENTS_CROSS.by_method


@pytest.mark.parametrize(
    ("method", "pairs", "hosts"),
    [("thing/do", SAME, set(Era)), ("bridged/do", ALL, set(Era)), ("newest/do", {(M, M)}, {M})],
)
def test_a_request_crosses_where_its_extension_does(method: str, pairs: set[tuple[Era, Era]], hosts: set[Era]) -> None:
    # X-EXT-20.
    assert pairs_of(lambda host, server: NAMED.allows_method(method, host, server)) == pairs
    # Before it is known of which era the server is.
    assert {host for host in Era if NAMED.allows_method(method, host)} == hosts


@pytest.mark.parametrize(
    ("notification", "pairs"),
    [
        ("notifications/thing/changed", SAME),
        ("notifications/bridged/changed", ALL),
        ("notifications/newest/changed", {(M, M)}),
        ("notifications/other/changed", set()),
        ("notifications/message", set()),
        ("thing/do", set()),
    ],
)
def test_a_notification_crosses_where_its_extension_does(notification: str, pairs: set[tuple[Era, Era]]) -> None:
    # X-EXT-23.
    assert pairs_of(lambda host, server: NAMED.allows_notification(notification, host, server)) == pairs
    assert not pairs_of(lambda host, server: OTHERS.allows_notification(notification, host, server))


def test_what_lasts_and_what_is_listened_to_are_those_of_all_that_crosses() -> None:
    assert (USUAL.streams, USUAL.all_filters) == (frozenset(), frozenset())
    assert (EVENTS_CROSS.streams, EVENTS_CROSS.all_filters) == ({"events/stream"}, {"eventsListChanged"})
    assert NAMED.streams == {"thing/do"}
    assert NAMED.all_filters == {"thingChanged", "bridgedChanged", "bridgedGone", "newestChanged"}


def test_two_policies_are_one_where_they_let_the_same_cross() -> None:
    same = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS]})
    assert same == EVENTS_CROSS
    assert ExtensionPolicy(allowed=EVENTS_CROSS.allowed, others=True) != EVENTS_CROSS


# --- declarations ----------------------------------------------------------------------------------------------------

CARRIED: dict[str, tuple[ExtensionPolicy, str, set[tuple[Era, Era]]]] = {
    "apps by default": (USUAL, UI, ALL),
    "skills by default": (USUAL, SKILLS, ALL),
    "events by default": (USUAL, EVENTS, set()),
    "events where they are allowed": (EVENTS_CROSS, EVENTS, SAME),
    "apps where they are not": (EVENTS_CROSS, UI, set()),
    "one of its own": (NAMED, THING, SAME),
    "one of both eras": (NAMED, BRIDGED, ALL),
    "one of one era": (NAMED, NEWEST, {(M, M)}),
    "one that nobody names": (USUAL, OTHER, set()),
    "one that nobody names, where others cross": (OTHERS, OTHER, SAME),
    "one that is denied, where others cross": (OTHERS, THING, set()),
    "events where others cross": (OTHERS, EVENTS, set()),
    "apps that are denied, where others cross": (ExtensionPolicy(allowed={}, others=True), UI, set()),
    "tasks": (USUAL, TASKS_EXTENSION, set()),
    "tasks where others cross": (OTHERS, TASKS_EXTENSION, set()),
}


@pytest.mark.parametrize(("policy", "identifier", "pairs"), CARRIED.values(), ids=CARRIED)
def test_a_declaration_crosses_by_its_identifier(
    policy: ExtensionPolicy, identifier: str, pairs: set[tuple[Era, Era]]
) -> None:
    # X-EXT-50, X-EXT-55.
    assert pairs_of(lambda host, server: policy.allows(identifier, host, server)) == pairs


@pytest.mark.parametrize("identifier", sorted(AUTHORIZATION))
def test_how_a_hop_is_authorized_is_told_on_no_other(identifier: str) -> None:
    # X-EXT-48.
    for policy, (host, server) in product((USUAL, OTHERS), PAIRS):
        assert not policy.allows(identifier, host, server)
        assert policy.host_capabilities({"extensions": {identifier: {}}}, host, server) == {}
        assert policy.server_capabilities(f'{{"extensions":{{"{identifier}":{{}}}}}}', host, server, {}) == "{}"


@pytest.mark.parametrize(
    ("identifier", "capabilities", "declared"),
    [
        (THING, {"extensions": {THING: {}}}, True),
        (THING, {"extensions": {THING: {"a": 1}, OTHER: {}}}, True),
        (THING, {"extensions": {OTHER: {}}}, False),
        (THING, {"extensions": {THING: True}}, False),
        (THING, {"extensions": [THING]}, False),
        (THING, {THING: {}, "events": {}}, False),
        (THING, {}, False),
        (EVENTS, {"extensions": {EVENTS: {}}}, True),
        (EVENTS, {"events": {}}, True),
        (EVENTS, {"events": True}, False),
        (EVENTS, {"extensions": {}, "tools": {}}, False),
    ],
)
def test_an_extension_is_declared_by_an_object_in_either_spelling(
    identifier: str, capabilities: dict[str, Any], declared: bool
) -> None:
    assert is_declared(identifier, BUILT_IN.get(identifier, Extension()), capabilities) is declared


# --- what is listened to ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "host", "server", "filters"),
    [
        (
            {THING: {}, BRIDGED: {}, NEWEST: {}},
            M,
            M,
            {"thingChanged", "bridgedChanged", "bridgedGone", "newestChanged"},
        ),
        ({THING: {}, BRIDGED: {}, NEWEST: {}}, M, L, {"bridgedChanged", "bridgedGone"}),
        ({THING: {}, BRIDGED: {}, NEWEST: {}}, L, M, {"bridgedChanged", "bridgedGone"}),
        ({THING: {}, BRIDGED: {}, NEWEST: {}}, L, L, {"thingChanged", "bridgedChanged", "bridgedGone"}),
        ({THING: {}, OTHER: {}}, M, M, {"thingChanged"}),
        ({THING: True}, M, M, set()),
        ({}, M, M, set()),
    ],
)
def test_what_a_server_declares_can_be_listened_to_where_it_crosses(
    declared: dict[str, Any], host: Era, server: Era, filters: set[str]
) -> None:
    # X-EXT-24.
    assert NAMED.filters({"tools": {}, "extensions": declared}, host, server) == filters
    assert USUAL.filters({"extensions": declared}, host, server) == set()


def test_events_can_be_listened_to_however_they_are_declared() -> None:
    for declared in ({"events": {}}, {"extensions": {EVENTS: {}}}):
        assert EVENTS_CROSS.filters(declared, M, M) == {"eventsListChanged"}
        assert EVENTS_CROSS.filters(declared, M, L) == set()


@pytest.mark.parametrize(
    ("granted", "told"),
    [
        (("thingChanged",), {"notifications/thing/changed"}),
        (("bridgedGone",), {"notifications/bridged/changed", "notifications/bridged/gone"}),
        (("thingChanged", "newestChanged"), {"notifications/thing/changed", "notifications/newest/changed"}),
        (("toolsListChanged", "eventsListChanged"), set()),
        ((), set()),
    ],
)
def test_what_is_granted_has_the_notifications_of_its_extension_told(granted: tuple[str, ...], told: set[str]) -> None:
    # X-EXT-24.
    assert NAMED.notifications_of(granted) == told


# --- what a server is told of a host ---------------------------------------------------------------------------------

APPS = {"mimeTypes": ["text/html;profile=mcp-app"]}
SAID: dict[str, tuple[ExtensionPolicy, dict[str, Any], set[tuple[Era, Era]], dict[str, Any]]] = {
    "nothing": (USUAL, {}, ALL, {}),
    "what is of the core": (OTHERS, {"roots": {}, "sampling": {}, "elicitation": {}, "tasks": {"list": {}}}, ALL, {}),
    "an extension with its settings": (USUAL, {"extensions": {UI: APPS}}, ALL, {"extensions": {UI: APPS}}),
    "one among others": (
        USUAL,
        {"extensions": {OTHER: {}, UI: APPS, EVENTS: {}, TASKS_EXTENSION: {}}},
        ALL,
        {"extensions": {UI: APPS}},
    ),
    "one of one era": (NAMED, {"extensions": {NEWEST: {}}}, {(M, M)}, {"extensions": {NEWEST: {}}}),
    "others where others cross": (
        OTHERS,
        {"extensions": {OTHER: {"a": 1}, THING: {}}},
        SAME,
        {"extensions": {OTHER: {"a": 1}}},
    ),
    "tasks alone": (OTHERS, {"extensions": {TASKS_EXTENSION: {}}}, set(), {}),
    "no settings, but another value": (USUAL, {"extensions": {UI: True, SKILLS: []}}, set(), {}),
    "no extension": (USUAL, {"extensions": {}}, ALL, {"extensions": {}}),
    "extensions that are no object": (OTHERS, {"extensions": [UI]}, set(), {}),
    "experiments": (USUAL, {"experimental": {"a": {}}}, set(), {}),
    "experiments where others cross": (OTHERS, {"experimental": {"a": {}}}, SAME, {"experimental": {"a": {}}}),
    "no experiment": (USUAL, {"experimental": {}}, ALL, {"experimental": {}}),
    "a key of no revision": (USUAL, {"acme": {"a": 1}}, set(), {}),
    "a key of no revision where others cross": (OTHERS, {"acme": {"a": 1}}, SAME, {"acme": {"a": 1}}),
    "events at the top": (EVENTS_CROSS, {"events": {"a": 1}}, SAME, {"events": {"a": 1}}),
    "events at the top, denied": (OTHERS, {"events": {}}, set(), {}),
}


@pytest.mark.parametrize(("policy", "said", "pairs", "told"), SAID.values(), ids=SAID)
def test_a_server_is_told_what_crosses_of_a_host(
    policy: ExtensionPolicy, said: dict[str, Any], pairs: set[tuple[Era, Era]], told: dict[str, Any]
) -> None:
    # X-EXT-6.
    for pair in PAIRS:
        assert policy.host_capabilities(said, *pair) == (told if pair in pairs else {}), pair


def test_what_a_host_said_is_not_changed() -> None:
    said = {"extensions": {UI: APPS, OTHER: {}}, "experimental": {"a": {}}}
    USUAL.host_capabilities(said, M, M)
    assert said == {"extensions": {UI: APPS, OTHER: {}}, "experimental": {"a": {}}}


# --- what a host is told of a server ---------------------------------------------------------------------------------

ODD = r'{ "\u0061" : 1e999 ,"a":[1.0, {}]}'
TOLD: dict[str, tuple[ExtensionPolicy, RawJson, dict[str, RawJson], RawJson, RawJson]] = {
    # The policy, what the server says, what is ours, what a host of its own era is told, and one of the other.
    "nothing": (USUAL, "{}", {}, "{}", "{}"),
    "nothing in white space": (USUAL, " { } ", {}, " { } ", " { } "),
    "nothing but what is ours": (USUAL, "{}", OWN, f'{{"extensions":{{"{TASKS_EXTENSION}":{{}}}}}}', "="),
    "the core to the byte": (
        USUAL,
        f'{{ "tools" : {ODD} ,"prompts":{{}},"resources":{{}}, "logging":{{}},"completions":{{}} }}',
        {},
        f'{{ "tools" : {ODD} ,"prompts":{{}},"resources":{{}}, "logging":{{}},"completions":{{}} }}',
        "=",
    ),
    "tasks of the other era": (OTHERS, '{"tools":{},"tasks":{"list":{}}}', {}, '{"tools":{}}', "="),
    "one that crosses to the byte": (
        USUAL,
        f'{{"tools":{{}} , "extensions" : {{ "{OTHER}":{{}}, "{UI}" : {ODD} }} }}',
        {},
        f'{{"tools":{{}} , "extensions" : {{ "{UI}" : {ODD} }} }}',
        "=",
    ),
    "however it is written": (
        USUAL,
        '{"extensions":{"io.modelcontextprotocol\\/ui":{}}}',
        {},
        '{"extensions":{"io.modelcontextprotocol\\/ui":{}}}',
        "=",
    ),
    "beside ours": (
        USUAL,
        f'{{"extensions":{{"{UI}":{ODD},"{OTHER}":{{}}}}}}',
        OWN,
        f'{{"extensions":{{"{TASKS_EXTENSION}":{{}},"{UI}":{ODD}}}}}',
        "=",
    ),
    "ours instead of the server's": (
        USUAL,
        f'{{"extensions":{{"{TASKS_EXTENSION}":{{"a":1}},"{UI}":{{}}}}}}',
        OWN,
        f'{{"extensions":{{"{TASKS_EXTENSION}":{{}},"{UI}":{{}}}}}}',
        "=",
    ),
    "the server's alone": (
        OTHERS,
        f'{{"prompts":{{}},"extensions":{{"{TASKS_EXTENSION}":{{}}}}}}',
        {},
        '{"prompts":{}}',
        "=",
    ),
    "an empty object stays": (
        USUAL,
        '{"extensions": { } ,"experimental":{ }}',
        {},
        '{"extensions": { } ,"experimental":{ }}',
        "=",
    ),
    "an empty object gets ours": (
        USUAL,
        '{"extensions": { }}',
        OWN,
        f'{{"extensions": {{"{TASKS_EXTENSION}":{{}} }}}}',
        "=",
    ),
    "one that is emptied goes": (USUAL, f'{{"extensions":{{"{OTHER}":{{}}}},"tools":{{}}}}', {}, '{"tools":{}}', "="),
    "one that is emptied gets ours": (
        USUAL,
        f'{{"tools":{{}},"extensions":{{ "{OTHER}":{{}} }}}}',
        OWN,
        f'{{"tools":{{}},"extensions":{{"{TASKS_EXTENSION}":{{}}  }}}}',
        "=",
    ),
    "what is no object": (USUAL, '{"extensions":[1],"experimental":true,"tools":{}}', {}, '{"tools":{}}', "="),
    "what is no object, with ours": (
        USUAL,
        '{"extensions":null,"tools":{}}',
        OWN,
        f'{{"extensions":{{"{TASKS_EXTENSION}":{{}}}},"tools":{{}}}}',
        "=",
    ),
    "an extension that is no object": (
        USUAL,
        f'{{"extensions":{{"{UI}":true,"{SKILLS}":{{}}}}}}',
        {},
        f'{{"extensions":{{"{SKILLS}":{{}}}}}}',
        "=",
    ),
    "one of no bridge": (
        NAMED,
        f'{{"extensions":{{"{THING}":{{}}}}}}',
        {},
        f'{{"extensions":{{"{THING}":{{}}}}}}',
        "{}",
    ),
    "one of a bridge": (
        NAMED,
        f'{{"extensions":{{"{BRIDGED}":{{}}}}}}',
        {},
        f'{{"extensions":{{"{BRIDGED}":{{}}}}}}',
        "=",
    ),
    "experiments": (USUAL, '{"experimental":{"a":{}},"tools":{}}', {}, '{"tools":{}}', "="),
    "experiments where others cross": (
        OTHERS,
        f'{{"experimental":{{ "a" : {ODD} }},"tools":{{}}}}',
        {},
        f'{{"experimental":{{ "a" : {ODD} }},"tools":{{}}}}',
        '{"tools":{}}',
    ),
    "a key of no revision": (USUAL, f'{{"acme":{ODD},"tools":{{}}}}', {}, '{"tools":{}}', "="),
    "a key of no revision where others cross": (
        OTHERS,
        f'{{"acme": {ODD} ,"tools":{{}}}}',
        {},
        f'{{"acme": {ODD} ,"tools":{{}}}}',
        '{"tools":{}}',
    ),
    "others where others cross": (
        OTHERS,
        f'{{"extensions":{{"{OTHER}":{ODD},"{THING}":{{}},"{EVENTS}":{{}}}},"events":{{}}}}',
        {},
        f'{{"extensions":{{"{OTHER}":{ODD}}}}}',
        "{}",
    ),
    "events in both spellings": (
        EVENTS_CROSS,
        f'{{"events":{ODD},"extensions":{{"{EVENTS}":{{"a":1}}}}}}',
        {},
        f'{{"events":{ODD},"extensions":{{"{EVENTS}":{{"a":1}}}}}}',
        "{}",
    ),
    "events in both spellings, denied": (USUAL, f'{{"events":{{}},"extensions":{{"{EVENTS}":{{}}}}}}', {}, "{}", "="),
    "capabilities of hosts": (USUAL, '{"roots":{},"sampling":{},"elicitation":{}}', {}, "{}", "="),
}


@pytest.mark.parametrize(("policy", "declared", "own", "told", "told_others"), TOLD.values(), ids=TOLD)
def test_a_host_is_told_what_crosses_of_a_server_and_what_is_ours(
    policy: ExtensionPolicy, declared: RawJson, own: dict[str, RawJson], told: RawJson, told_others: RawJson
) -> None:
    # X-EXT-5, X-EXT-6, X-EXT-52.
    for host, server in PAIRS:
        wanted = told if host is server or told_others == "=" else told_others
        assert policy.server_capabilities(declared, host, server, own) == wanted, (host, server)


_names = st.sampled_from([UI, SKILLS, EVENTS, TASKS_EXTENSION, THING, BRIDGED, OTHER])
_values = st.sampled_from([{}, {"a": 1}, True, None, []])
_capabilities = st.fixed_dictionaries(
    {},
    optional={
        "tools": _values,
        "tasks": _values,
        "events": _values,
        "acme": _values,
        "experimental": st.dictionaries(st.sampled_from("ab"), _values) | _values,
        "extensions": st.dictionaries(_names, _values) | _values,
    },
)


@given(
    _capabilities,
    st.sampled_from([USUAL, NOTHING, OTHERS, EVENTS_CROSS, NAMED]),
    st.sampled_from(PAIRS),
    st.sampled_from([{}, OWN]),
)
def test_of_what_a_server_declares_a_reader_finds_what_crosses_and_what_is_ours(
    declared: dict[str, Any], policy: ExtensionPolicy, pair: tuple[Era, Era], own: dict[str, RawJson]
) -> None:
    found = json.loads(policy.server_capabilities(json.dumps(declared), *pair, own))
    others = policy.others and pair in SAME
    extensions, experiments = (declared.get(name) for name in ("extensions", "experimental"))
    wanted = {
        name: value
        for name, value in declared.items()
        if name == "tools"
        or (name == "events" and policy.allows(EVENTS, *pair))
        or (name == "acme" and others)
        or (name in ("extensions", "experimental") and value == {})
    }
    if isinstance(extensions, dict) and extensions:
        kept = {
            name: each for name, each in extensions.items() if isinstance(each, dict) and policy.allows(name, *pair)
        }
        wanted |= {"extensions": kept} if kept else {}
    if isinstance(experiments, dict) and experiments and others:
        kept = {name: each for name, each in experiments.items() if isinstance(each, dict)}
        wanted |= {"experimental": kept} if kept else {}
    if own:
        wanted["extensions"] = {**wanted.get("extensions", {}), TASKS_EXTENSION: {}}
    assert found == wanted


# --- what does not cross ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "said", "pair", "denied"),
    [
        (USUAL, {"extensions": {OTHER: {}, UI: {}, EVENTS: {}}}, (M, M), [OTHER, EVENTS]),
        (USUAL, {"events": {}}, (M, M), [EVENTS]),
        (USUAL, {"events": {}, "extensions": {EVENTS: {}}}, (L, L), [EVENTS]),
        (EVENTS_CROSS, {"events": {}}, (L, L), []),
        (EVENTS_CROSS, {"events": {}}, (M, L), [EVENTS]),
        (OTHERS, {"extensions": {OTHER: {}, THING: {}}}, (M, M), [THING]),
        (OTHERS, {"extensions": {OTHER: {}}}, (L, M), [OTHER]),
        (NOTHING, {"extensions": {TASKS_EXTENSION: {}, UI: {}}}, (M, M), [UI]),
        (USUAL, {"extensions": {"io.modelcontextprotocol/dpop": {}}}, (M, M), ["io.modelcontextprotocol/dpop"]),
        (USUAL, {"extensions": [OTHER], "acme": {}, "experimental": {"a": {}}}, (M, M), []),
        (USUAL, {}, (L, L), []),
    ],
)
def test_it_can_be_told_which_declared_extensions_do_not_cross(
    policy: ExtensionPolicy, said: dict[str, Any], pair: tuple[Era, Era], denied: list[str]
) -> None:
    # X-EXT-53.
    assert policy.denials(said, *pair) == denied


def test_settings_that_few_writers_take_are_written() -> None:
    settings = {"\ud800": ["\udfff"], "a": 2**64, "b": 10**30}
    assert json.loads(dump_capabilities({"extensions": {UI: settings}})) == {"extensions": {UI: settings}}


def test_a_number_that_nothing_can_hold_is_refused() -> None:
    with pytest.raises(InvalidParams):
        dump_capabilities({"extensions": {UI: {"a": float("inf")}}})


# --- merged capabilities ----------------------------------------------------------------------------------------------


FORMS: dict[str, Any] = {"elicitation": {}}
PAGES: dict[str, Any] = {"elicitation": {"url": {}}}
TOOLS: dict[str, Any] = {"sampling": {"tools": {}}}


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, FORMS, FORMS),
        (PAGES, {}, PAGES),
        (FORMS, FORMS, FORMS),
        (PAGES, PAGES, PAGES),
        ({"elicitation": {"form": {}}}, PAGES, {"elicitation": {"form": {}, "url": {}}}),
        ({"sampling": {}}, TOOLS, TOOLS),
        (TOOLS, {"roots": {}}, {"sampling": {"tools": {}}, "roots": {}}),
    ],
)
def test_what_either_lacks_is_lacked(one: dict[str, Any], other: dict[str, Any], both: dict[str, Any]) -> None:
    assert merge_capabilities(one, other) == both
    assert merge_capabilities(other, one) == both


def test_forms_are_named_where_pages_are_asked_for_too() -> None:
    assert (
        merge_capabilities(FORMS, PAGES) == merge_capabilities(PAGES, FORMS) == {"elicitation": {"form": {}, "url": {}}}
    )


def test_neither_is_changed() -> None:
    one: dict[str, Any] = {"elicitation": {}}
    merge_capabilities(one, PAGES)["elicitation"]["form"] = 1
    assert (one, PAGES) == ({"elicitation": {}}, {"elicitation": {"url": {}}})
