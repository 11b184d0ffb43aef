"""The keys under `upstreams.*.extensions`: what they mean, what they refuse, and what they say together with others."""

from collections.abc import Callable

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.model import DEFAULTS, conflicts, extension_methods, upstream_settings
from taskgate.domain.versions import Era
from taskgate.protocol.extensions import (
    ALLOWED_BY_DEFAULT,
    AUTHORIZATION,
    BUILT_IN,
    EVENTS,
    SKILLS,
    UI,
    Extension,
    ExtensionPolicy,
)
from taskgate.protocol.vocabulary import TASKS_EXTENSION

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

OURS, OTHER = "com.example/widgets", "com.example/gadgets"
LONG = (
    "{methods: [widgets/list, widgets/get], notifications: [notifications/widgets/changed], filters: [widgetsChanged], "
    "result_types: [partial], cacheable: [widgets/list], eras: [legacy, modern]}"
)
POLLED = "{methods: [events/list, events/poll, events/stream]}"
HTTP = "url: 'http://127.0.0.1:1/mcp'"
PROGRAM = "transport: stdio\n    command: [a]"
SHARED = f"{PROGRAM}\n    sessions: shared"
EXCHANGE = (
    "url: 'https://a/mcp'\n    health: null\n    credentials: {mode: token_exchange, token_url: 'https://b/token', "
    "client_id: c, client_secret: d, audience: e}"
)
FIXED = "url: 'https://a/mcp'\n    credentials: {mode: header, header: X-Key, value: s3cret}"
TOKENS = "{mode: required, issuers: {corp: {issuer: 'https://idp.example.com'}}}"
NOBODY = "{mode: none}"

REQUESTS = "must match a request that hosts can send, such as tools/call, tasks/* or resources/read"


def written(*extensions: str, server: str = HTTP, auth: str = NOBODY, more: str = "") -> str:
    """A file whose server `a` has those keys under `extensions`, each on a line of its own."""
    keys = "".join(f"      {each}\n" for each in extensions)
    return f"version: 1\nauth: {auth}\nupstreams:\n  a:\n    path: /a\n    {server}\n    extensions:\n{keys}{more}"


def policy(loads: Loads, *extensions: str, **more: str) -> ExtensionPolicy:
    """What crosses by those keys."""
    return upstream_settings(loads(written(*extensions, **more)), "a").extensions


# --- what they become ------------------------------------------------------------------------------------------------


def test_without_keys_apps_and_skills_cross_and_nothing_else(loads: Loads, minimal: str) -> None:
    found = upstream_settings(loads(minimal), "reports").extensions
    assert found == ExtensionPolicy(allowed={name: BUILT_IN[name] for name in (UI, SKILLS)})
    assert (found.denied, found.others) == (frozenset(), False)
    assert {UI, SKILLS} == ALLOWED_BY_DEFAULT


def test_what_is_denied_does_not_cross_whatever_the_default(loads: Loads) -> None:
    found = policy(loads, f"{UI}: deny", f"{OURS}: deny", "default: allow")
    assert set(found.allowed) == {SKILLS}
    assert (found.denied, found.others) == ({UI, OURS}, True)


def test_what_is_known_is_allowed_as_it_is_known(loads: Loads) -> None:
    found = policy(loads, f"{EVENTS}: allow", f"{SKILLS}: allow", f"{UI}: deny")
    assert found.allowed == {EVENTS: BUILT_IN[EVENTS], SKILLS: BUILT_IN[SKILLS]}


@pytest.mark.parametrize("written_as", ["allow", "{}"])
def test_what_is_not_known_is_allowed_without_methods(loads: Loads, written_as: str) -> None:
    assert policy(loads, f"{OURS}: {written_as}").allowed[OURS] == Extension()


def test_a_mapping_says_all_that_crosses(loads: Loads) -> None:
    assert policy(loads, f"{OURS}: {LONG}").allowed[OURS] == Extension(
        methods=frozenset({"widgets/list", "widgets/get"}),
        notifications=frozenset({"notifications/widgets/changed"}),
        filters=frozenset({"widgetsChanged"}),
        result_types=frozenset({"partial"}),
        cacheable=frozenset({"widgets/list"}),
        eras=frozenset(Era),
    )


@pytest.mark.parametrize(
    ("eras", "found"),
    [
        ("null", None),
        ("[legacy]", {Era.LEGACY}),
        ("[modern]", {Era.MODERN}),
        ("[modern, legacy]", {Era.LEGACY, Era.MODERN}),
    ],
)
def test_eras_are_called_legacy_and_modern(loads: Loads, eras: str, found: set[Era] | None) -> None:
    assert policy(loads, f"{OURS}: {{eras: {eras}}}").allowed[OURS].eras == found


def test_a_mapping_for_one_that_is_known_says_what_crosses_and_keeps_what_nobody_can_write(loads: Loads) -> None:
    """Its other spelling, its codes, which of its methods last, and what the mapping does not say."""
    found = policy(loads, f"{EVENTS}: {POLLED}", auth=TOKENS).allowed[EVENTS]
    known = BUILT_IN[EVENTS]
    assert found.methods == {"events/list", "events/poll", "events/stream"}
    assert (found.notifications, found.filters, found.eras) == (known.notifications, known.filters, None)
    assert (found.capability, found.codes, found.streams) == (known.capability, known.codes, {"events/stream"})
    assert policy(loads, f"{EVENTS}: {{methods: [events/poll]}}").allowed[EVENTS].streams == frozenset()


def test_tasks_are_own_and_that_changes_nothing(loads: Loads) -> None:
    assert policy(loads, f"{TASKS_EXTENSION}: own") == policy(loads, "default: deny")


@pytest.mark.parametrize("name", sorted(AUTHORIZATION))
def test_what_is_about_authorization_may_be_denied_in_words(loads: Loads, name: str) -> None:
    assert policy(loads, f"{name}: deny").denied == {name}


def test_carried_methods_are_those_of_any_server(loads: Loads) -> None:
    second = f"  b:\n    path: /b\n    {HTTP}\n    extensions: {{{OURS}: {LONG}, {SKILLS}: deny}}\n"
    config = loads(written(f"{SKILLS}: {{methods: [skills/list]}}", f"{OTHER}: deny", more=second))
    assert extension_methods(config) == {"skills/list", "widgets/list", "widgets/get"}


def test_the_effective_configuration_shows_what_is_said_of_each(loads: Loads) -> None:
    text = written(f"{UI}: deny", f"{OURS}: {LONG}", "default: allow", f"{TASKS_EXTENSION}: own")
    config = loads(text)
    assert loads(effective(config)) == config
    assert f"      {UI}: deny\n" in effective(config)


# --- what they refuse ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "A1-b.c/D_e.f-9", "com.example/1", f"a/{'b' * 254}"])
def test_any_identifier_with_a_prefix_can_be_named(loads: Loads, name: str) -> None:
    assert policy(loads, f"{name}: allow").allowed[name] == Extension()


# --- what is unsafe --------------------------------------------------------------------------------------------------

SUBSCRIBES = ["allow", "{methods: [events/list, events/subscribe]}"]


@pytest.mark.parametrize("value", SUBSCRIBES)
@pytest.mark.parametrize(("server", "auth"), [(EXCHANGE, TOKENS), (HTTP, NOBODY), (FIXED, NOBODY)])
def test_they_cross_where_the_server_sees_each_user_or_there_is_one(
    loads: Loads, value: str, server: str, auth: str
) -> None:
    assert "events/subscribe" in policy(loads, f"{EVENTS}: {value}", server=server, auth=auth).allowed[EVENTS].methods


@pytest.mark.parametrize(("server", "auth"), [(HTTP, TOKENS), (FIXED, TOKENS), (PROGRAM, NOBODY)])
def test_polls_and_streams_of_events_cross_to_any_server(loads: Loads, server: str, auth: str) -> None:
    assert EVENTS in policy(loads, f"{EVENTS}: {POLLED}", server=server, auth=auth).allowed


def test_a_shared_program_has_no_notifications_of_extensions(tells: Tells, loads: Loads) -> None:
    keys = f"{OURS}: {{notifications: [notifications/widgets/changed]}}"
    where = f'upstreams.a.extensions."{OURS}".notifications'
    assert tells(written(keys, server=SHARED)) == [
        f"f:10: {where}: must be empty with sessions shared, where a notification has no one caller"
    ]
    assert OURS in policy(loads, keys, server=PROGRAM).allowed


# --- rules that name methods -----------------------------------------------------------------------------------------


def ruled(glob: str, *, where: str = "authorization") -> str:
    """A rule, or a rate, for the methods of that glob."""
    if where == "authorization":
        return f"authorization:\n  rules: [{{methods: ['{glob}']}}]\n"
    return f"limits:\n  rate: [{{name: a, scope: context, rate: 1/s, methods: ['{glob}']}}]\n"


both_kinds = pytest.mark.parametrize("where", ["authorization", "limits"])


@both_kinds
@pytest.mark.parametrize(
    ("keys", "glob"),
    [
        (["default: deny"], "skills/list"),
        (["default: deny"], "resources/directory/*"),
        ([f"{OURS}: {LONG}"], "widgets/list"),
        ([f"{OURS}: {LONG}"], "w*/get"),
        ([f"{EVENTS}: allow"], "events/subscribe"),
        ([f"{EVENTS}: {POLLED}"], "events/po?l"),
    ],
)
def test_a_rule_can_name_a_method_that_crosses(loads: Loads, where: str, keys: list[str], glob: str) -> None:
    assert loads(written(*keys, more=ruled(glob, where=where))).version == 1


def test_a_rate_can_name_a_notification_that_is_counted_and_a_rule_cannot(loads: Loads, tells: Tells) -> None:
    assert loads(written("default: deny", more=ruled("notifications/progress", where="limits"))).version == 1
    [told] = tells(written("default: deny", more=ruled("notifications/progress")))
    assert told.endswith(REQUESTS)


@pytest.mark.parametrize(
    "malformed",
    [None, 1, "text", [], {OURS: None}, {OURS: 1}, {OURS: []}, {OURS: {"methods": None}}, {OURS: {"methods": [None]}},
     {OURS: {"methods": [["a"]]}}, {OURS: {"cacheable": 1, "filters": {}}}, {1: "allow"}, {EVENTS: []}],
    ids=str,
)  # fmt: skip
def test_what_is_malformed_raises_nothing(malformed: object) -> None:
    """It is told by those who read it."""
    upstream = {"path": "/a", "url": "http://a", "extensions": malformed}
    found = conflicts({"auth": {"mode": "none"}, "upstreams": {"a": upstream}}, defaults=DEFAULTS)
    assert all(isinstance(words, str) for _, words in found)
