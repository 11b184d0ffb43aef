"""Extensions cross if both eras define them and the operator allows them."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.versions import Era
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.extensions import (
    ALLOWED_BY_DEFAULT,
    BUILT_IN,
    EVENTS,
    KNOWN_METHODS,
    SKILLS,
    UI,
    Extension,
    ExtensionPolicy,
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


SAME = {(L, L), (M, M)}

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


def test_a_method_is_that_of_its_extension() -> None:
    assert NAMED.by_method["thing/do"] is NAMED.allowed[THING]
    assert USUAL.by_method["skills/get"] is BUILT_IN[SKILLS]
    assert "skills/get" not in EVENTS_CROSS.by_method


def test_what_lasts_and_what_is_listened_to_are_those_of_all_that_crosses() -> None:
    assert (USUAL.streams, USUAL.all_filters) == (frozenset(), frozenset())
    assert (EVENTS_CROSS.streams, EVENTS_CROSS.all_filters) == ({"events/stream"}, {"eventsListChanged"})
    assert NAMED.streams == {"thing/do"}
    assert NAMED.all_filters == {"thingChanged", "bridgedChanged", "bridgedGone", "newestChanged"}


def test_two_policies_are_one_where_they_let_the_same_cross() -> None:
    same = ExtensionPolicy(allowed={EVENTS: BUILT_IN[EVENTS]})
    assert same == EVENTS_CROSS
    assert ExtensionPolicy(allowed=EVENTS_CROSS.allowed, others=True) != EVENTS_CROSS


# --- what a host is told of a server ---------------------------------------------------------------------------------


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
