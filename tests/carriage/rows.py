"""The rows of the table of carriage, by section and in the order in which they count."""

from collections.abc import Mapping
from typing import Final

from .effects import (
    ADDED,
    ANSWERED,
    AS_IS,
    FAILED,
    NOT,
    OWN,
    PAIRINGS,
    POLICIES,
    RECODED,
    REFUSED,
    REWRITTEN,
    TRANSPORTS,
    Row,
)

DEFAULT, ALLOW, DENY = POLICIES
UNLESS_ALLOWED: Final = (DEFAULT, DENY)
HTTP, SSE, STDIO, LINES = ("http",), ("sse",), ("stdio",), ("sse", "stdio")
ACROSS, WITHIN = ("LM", "ML"), ("LL", "MM")
FROM_LEGACY, FROM_MODERN = ("LL", "LM"), ("ML", "MM")
TO_LEGACY, TO_MODERN = ("LL", "ML"), ("LM", "MM")
BUT_LEGACY: Final = ("LM", "ML", "MM")
"""Every pairing but that of two of the legacy era."""


def same(effect: str, *pairings: str) -> dict[str, str]:
    """One effect in some pairings; in all, unless they are named."""
    return dict.fromkeys(pairings or PAIRINGS, effect)


def row(
    about: str,
    *patterns: str,
    cells: Mapping[str, str],
    why: str = "",
    policies: tuple[str, ...] = POLICIES,
    over: tuple[str, ...] = TRANSPORTS,
) -> Row:
    """A row of the table."""
    return Row(about=about, patterns=patterns, cells=cells, why=why, policies=policies, transports=over)


def refused(about: str, steps: str, why: str, *policies: str, cells: Mapping[str, str] | None = None) -> Row:
    """Methods that the server is not asked, and what the host gets for them."""
    patterns = (f"host.{steps}.*", f"server.{steps}.*")
    return row(about, *patterns, cells=cells or same(REFUSED), why=why, policies=policies or POLICIES)


# --- what is looked for

_SKILLS: Final = "{skills_list,skills_get,skills_missing,skills_directory}"
_EVENTS: Final = "{events_list,events_poll,events_refused,events_stream}"
_THING: Final = "{thing_do,thing_list,thing_partial,thing_refused}"
_UNLISTED: Final = "{skills_unlisted,thing_unlisted,other_do,ui_do}"
_DECLARED: Final = "{host.welcome.capabilities,server.declared}"
_DECLARED_EVENTS: Final = f"{_DECLARED}.{{extensions[io.modelcontextprotocol/events],events}}*"
_UNNAMED: Final = f"{_DECLARED}.{{extensions[com.example/other],experimental,vendorThing}}*"
_HOP_KEYS: Final = "`related-task`, `io.taskgate/*`; keys of one era in handshakes and host notifications"
_HOP: Final = "{io.modelcontextprotocol/related-task,io.taskgate/*}"
_LEVEL: Final = "server.*._meta[io.modelcontextprotocol/logLevel]"
_OWN_INFO: Final = "host.*.result._meta[io.modelcontextprotocol/serverInfo]"
_TOLD: Final = "host.{tell,push,events_stream}.heard"
_LISTED_EVENTS: Final = f"{_TOLD}[notifications/events/list_changed]*"
_FILTER: Final = "{host.listen.granted,server.wishes}"
_QUESTION: Final = "server.{ask_unknown,done}.{answer,push}*"
_EVENTS_NAME: Final = "`io.modelcontextprotocol/events`, `capabilities.events`"
_NO_NAME: Final = "identifiers that nothing names, `experimental`, unknown capabilities"


def _declared(identifier: str) -> str:
    return f"{_DECLARED}.extensions[{identifier}]*"


# --- the rows, in the order in which they count

METHODS, META = "Methods of extensions", "Keys of `_meta`"
DECLARED, WELCOME, HOSTS = (
    "Declarations of extensions, both ways",
    "The server, as the host is told",
    "The host, as the server is told",
)
REQUESTS, RESULTS, ERRORS = "Requests", "Results", "Errors"
QUESTIONS, NOTIFICATIONS, LISTENS = "Questions of servers", "Notifications", "`subscriptions/listen`"

_ABOUT_SKILLS: Final = "`skills/list`, `skills/get`, `resources/directory/read`"
_ABOUT_EVENTS: Final = "`events/*`"
_ABOUT_THING: Final = "methods in the long form of an extension"
_REFUSED: Final = (
    refused(_ABOUT_SKILLS, _SKILLS, "X-EXT-52", DENY),
    refused(_ABOUT_EVENTS, _EVENTS, "X-EXT-50", *UNLESS_ALLOWED),
    row(
        _ABOUT_EVENTS, f"{{host,server}}.{_EVENTS}.*", cells=same(REFUSED), why="X-UE-7", policies=(ALLOW,), over=STDIO
    ),
    row(
        "events: declarations, notification, filter",
        _DECLARED_EVENTS,
        _LISTED_EVENTS,
        f"{_FILTER}.eventsListChanged",
        cells=same(NOT),
        why="X-UE-7",
        policies=(ALLOW,),
        over=STDIO,
    ),
    refused(_ABOUT_EVENTS, _EVENTS, "X-EXT-7", ALLOW, cells=same(REFUSED, *ACROSS)),
    refused(_ABOUT_THING, _THING, "X-EXT-51", *UNLESS_ALLOWED),
    refused("methods that nothing names", _UNLISTED, "X-EXT-20"),
)
_OF_WELCOMES: Final = (
    row(
        "`serverInfo`, `instructions`, core capabilities, unknown members",
        "host.welcome.{serverInfo,instructions,x-unknown}*",
        "host.welcome.capabilities.{tools,resources,prompts,completions,logging}*",
        cells=same(AS_IS),
    ),
    row(
        "`protocolVersion`", "host.welcome.protocolVersion", cells={"LL": AS_IS, "LM": ADDED, "ML": NOT}, why="V-ERA-1"
    ),
    row(
        "`supportedVersions`",
        "host.welcome.supportedVersions",
        cells={"LM": NOT, "ML": ADDED, "MM": REWRITTEN},
        why="AMB-11",
    ),
    row(
        "`ttlMs`, `cacheScope`",
        "host.welcome.{ttlMs,cacheScope}",
        cells={"LM": NOT, "ML": ADDED, "MM": REWRITTEN},
        why="V-CACHE-1",
    ),
    row(
        "`capabilities.tasks.list`", "host.welcome.capabilities.tasks.list", cells=same(NOT, *TO_LEGACY), why="L-CAP-2"
    ),
    row(
        "`capabilities.tasks`",
        "host.welcome.capabilities.tasks*",
        cells={"LL": AS_IS, "LM": ADDED, "ML": NOT},
        why="own",
    ),
)
_OF_DECLARATIONS: Final = (
    row(
        "`io.modelcontextprotocol/ui`",
        _declared("io.modelcontextprotocol/ui"),
        cells=same(NOT),
        why="X-EXT-52",
        policies=(DENY,),
    ),
    row(
        "`io.modelcontextprotocol/ui`",
        _declared("io.modelcontextprotocol/ui"),
        cells=same(AS_IS),
        policies=(DEFAULT, ALLOW),
    ),
    row(
        "`io.modelcontextprotocol/skills`",
        _declared("io.modelcontextprotocol/skills"),
        cells=same(NOT),
        why="X-EXT-52",
        policies=(DENY,),
    ),
    row(
        "`io.modelcontextprotocol/skills`",
        _declared("io.modelcontextprotocol/skills"),
        cells=same(AS_IS),
        policies=(DEFAULT, ALLOW),
    ),
    row(_EVENTS_NAME, _DECLARED_EVENTS, cells=same(NOT), why="X-EXT-50", policies=UNLESS_ALLOWED),
    row(
        _EVENTS_NAME,
        _DECLARED_EVENTS,
        cells=same(AS_IS, *WITHIN) | same(NOT, *ACROSS),
        why="X-EXT-7",
        policies=(ALLOW,),
    ),
    row(
        "`io.modelcontextprotocol/tasks`",
        _declared("io.modelcontextprotocol/tasks"),
        cells=same(ADDED, *FROM_MODERN),
        why="own",
    ),
    row(
        "extensions about authorization",
        _declared("io.modelcontextprotocol/oauth-client-credentials"),
        cells=same(NOT),
        why="X-EXT-48",
    ),
    row(
        "an extension with a long form",
        _declared("com.example/thing"),
        cells=same(NOT),
        why="X-EXT-50",
        policies=UNLESS_ALLOWED,
    ),
    row("an extension with a long form", _declared("com.example/thing"), cells=same(AS_IS), policies=(ALLOW,)),
    row(_NO_NAME, _UNNAMED, cells=same(NOT), why="X-EXT-55", policies=UNLESS_ALLOWED),
    row(_NO_NAME, _UNNAMED, cells=same(AS_IS, *WITHIN) | same(NOT, *ACROSS), why="X-EXT-7", policies=(ALLOW,)),
)
_OF_HOSTS: Final = (
    row("`clientInfo`", "server.clientInfo.*", cells=same(OWN), why="own"),
    row("protocol version", "server.revision", cells=same(REWRITTEN, *ACROSS) | same(AS_IS, *WITHIN), why="V-ERA-1"),
    row("handshake: unknown members, `_meta`", "server.{welcome,initialized}.*", cells=same(NOT), why="own"),
    row(
        "`roots.listChanged`",
        "server.declared.roots.listChanged",
        cells=same(AS_IS, "LL") | same(NOT, *BUT_LEGACY),
        why="B-CONV-5",
    ),
    row("`roots`", "server.declared.roots", cells=same(ADDED, *BUT_LEGACY), why="B-CONV-5"),
    row(
        "unknown members of core capabilities",
        "server.declared.{roots,elicitation}.x-unknown*",
        cells=same(NOT),
        why="B-CONV-4",
    ),
    row("`sampling`, `elicitation`", "server.declared.{sampling,elicitation}*", cells=same(AS_IS)),
)
_OF_QUESTIONS: Final = (
    row(
        "a question that no revision defines",
        "host.{ask_unknown,push}.asked*",
        _QUESTION,
        cells=same(REFUSED, *TO_LEGACY),
        why="X-EXT-26",
    ),
    row(
        "a question that no revision defines",
        "host.ask_unknown.asked*",
        _QUESTION,
        cells=same(NOT, *TO_MODERN),
        why="X-EXT-26",
    ),
    row("the call that asks it", "host.ask_unknown.*", cells=same(FAILED, *TO_MODERN), why="X-EXT-26"),
)
_META_FIRST: Final = (
    row(
        "questions to modern hosts, answers to modern servers",
        "host.ask.asked.params._meta*",
        cells=same(NOT, "ML"),
        why="B-CONV-6",
    ),
    row(
        "questions to modern hosts, answers to modern servers",
        "server.ask.answer._meta*",
        cells=same(NOT, "LM"),
        why="B-CONV-7",
    ),
    row(
        "`io.taskgate/gateway` of the handshake",
        "host.welcome._meta[io.taskgate/gateway]*",
        cells=same(REWRITTEN),
        why="own",
    ),
    row(
        _HOP_KEYS,
        *(f"{each}._meta[{_HOP}]*" for each in ("host.welcome", "host.ask.asked.params", "host.*.result", f"{_TOLD}*")),
        "host.welcome._meta[io.modelcontextprotocol/clientInfo]*",
        cells=same(NOT),
        why="X-EXT-27",
    ),
    row("every other key", "{host.welcome,host.ask.asked.params,server.ask.answer}._meta*", cells=same(AS_IS)),
)
_ANSWERED: Final = (
    row("questions and answers", "{host.ask.asked,server.ask.answer}*", cells=same(AS_IS)),
    row("the request that brings an answer", "server.ask#2.*", cells={"LM": ADDED, "ML": NOT}, why="B-CONV-10"),
    row("the same for an unknown question", "server.ask_unknown#2.*", cells=same(NOT, *FROM_MODERN), why="X-EXT-26"),
)
_OF_NOTICES: Final = (
    row(
        "of hosts: what no revision defines", "server.poke notifications/thing/poke.*", cells=same(NOT), why="X-EXT-25"
    ),
    row(
        "of hosts: `roots/list_changed`",
        "server.poke notifications/roots/list_changed.*",
        cells=same(NOT, *BUT_LEGACY),
        why="B-CONV-5",
    ),
)
_OF_REQUESTS: Final = (
    row(
        "`logging/setLevel`, `resources/subscribe`",
        "{host,server}.{level,subscribe}.*",
        cells={"LM": ANSWERED, "ML": NOT},
        why="V-DISC-3",
    ),
    row("`subscriptions/listen` of the host", "server.listen.*", cells=same(NOT, *FROM_MODERN), why="own"),
    row("requests of taskgate itself, with the same capabilities", "server.own[*", cells=same(ADDED), why="X-EXT-9"),
    row(
        "`Mcp-Session-Id`",
        "server.*.headers.mcp-session-id",
        cells={"LL": AS_IS, "LM": NOT, "ML": ADDED},
        why="V-ERA-1",
        over=HTTP,
    ),
    row(
        "`Mcp-Method`, `Mcp-Name`",
        "server.*.headers.mcp-{method,name}",
        cells={"LM": ADDED, "ML": NOT, "MM": AS_IS},
        why="V-ERA-1",
        over=HTTP,
    ),
    row(
        "`MCP-Protocol-Version`",
        "server.*.headers.mcp-protocol-version",
        cells=same(REWRITTEN, *ACROSS) | same(AS_IS, *WITHIN),
        why="V-ERA-1",
        over=HTTP,
    ),
    row(
        "unknown headers that begin with `Mcp-`",
        "server.*.headers.mcp-vendor",
        cells=same(NOT),
        why="H-MOD-1",
        over=HTTP,
    ),
    row("headers that begin with `Mcp-`", "server.*.headers.*", cells=same(NOT, "ML"), why="V-ERA-1", over=SSE),
)
_META_OF_REQUESTS: Final = (
    row(
        _HOP_KEYS,
        f"server.*._meta[{_HOP}]*",
        "server.poke*._meta[io.modelcontextprotocol/subscriptionId]",
        cells=same(NOT),
        why="X-EXT-27",
    ),
    row(
        "a `subscriptionId` of a request",
        "server.*._meta[io.modelcontextprotocol/subscriptionId]",
        cells=same(AS_IS, "LL") | same(NOT, *BUT_LEGACY),
        why="X-EXT-27",
    ),
    row("`logLevel`", _LEVEL, cells={"LM": ADDED, "ML": NOT, "MM": AS_IS}, why="B-CONV-9"),
    row("every other key", "server.*._meta*", cells=same(AS_IS)),
)
_REST_OF_REQUESTS: Final = (
    row(
        "method, params, capabilities; unknown members included",
        "server.*.{method,params*,declared}",
        cells=same(AS_IS),
    ),
)
_ODD_RESULTS: Final = (
    row("`tools/call`: a new `resultType`", "host.partial.*", cells=same(FAILED, *TO_MODERN), why="X-EXT-22"),
    row("`tools[*].execution`", "host.tools.result.tools[*].execution*", cells=same(ADDED, *FROM_LEGACY), why="own"),
    row(
        "`resultType`",
        "host.{*.result,welcome}.resultType",
        cells={"LM": NOT, "ML": ADDED, "MM": AS_IS},
        why="B-CONV-1",
    ),
    row("`ttlMs`", "host.*.result.ttlMs", cells={"LM": NOT, "ML": ADDED, "MM": AS_IS}, why="B-CONV-1"),
    row("`cacheScope`", "host.*.result.cacheScope", cells={"LM": NOT, "ML": ADDED, "MM": REWRITTEN}, why="V-CACHE-2"),
)
_META_OF_RESULTS: Final = (
    row(
        "`subscriptionId`",
        "host.events_stream.result._meta[io.modelcontextprotocol/subscriptionId]",
        cells=same(NOT, "LL") | same(AS_IS, "MM"),
        why="B-CONV-9",
        policies=(ALLOW,),
    ),
    row(
        "a `clientInfo` of a result",
        "host.*.result._meta[io.modelcontextprotocol/clientInfo]*",
        cells=same(AS_IS, *WITHIN) | same(NOT, *ACROSS),
        why="X-EXT-27",
    ),
    row("`serverInfo`", _OWN_INFO, cells={"LM": NOT, "ML": ADDED, "MM": AS_IS}, why="B-CONV-1"),
    row("every other key", "host.*.result._meta*", cells=same(AS_IS)),
)
_ANSWERS_OF_EXTENSIONS: Final = (
    row(
        "`skills/get`: the code of no such skill",
        "host.skills_missing.error.code",
        cells=same(REWRITTEN, "ML"),
        why="B-CONV-8",
        policies=(DEFAULT, ALLOW),
    ),
    row(_ABOUT_SKILLS, f"host.{_SKILLS}.{{result,error}}.*", cells=same(AS_IS), policies=(DEFAULT, ALLOW)),
    row(_ABOUT_EVENTS, f"host.{_EVENTS}.{{result,error}}.*", cells=same(AS_IS, *WITHIN), policies=(ALLOW,)),
    row(_ABOUT_THING, f"host.{_THING}.{{result,error}}.*", cells=same(AS_IS), policies=(ALLOW,)),
)
_USUAL_RESULTS: Final = (
    row("tools: `icons`, `_meta.ui`, `openai/*`, unknown members", "host.tools.result.*", cells=same(AS_IS)),
    row(
        "resources, templates, prompts and contents, with the same",
        "host.{resources,templates,prompts,read,prompt}.result.*",
        cells=same(AS_IS),
    ),
    row("results of tools with unknown content types, and others", "host.*.result.*", cells=same(AS_IS)),
)
_CODES: Final = (
    row(
        "`resources/read`: no such resource",
        "host.read_missing.error.code",
        cells=same(REWRITTEN, *ACROSS),
        why="B-CONV-8",
    ),
    row(
        "-32002 of other requests", "host.refuse_32002.error.code", cells=same(REWRITTEN, *FROM_MODERN), why="B-CONV-8"
    ),
    row(
        "-32020 to -32099",
        "host.{refuse_32023,refuse_32050,thing_refused}.error.{code,data.upstreamCode}",
        cells=same(RECODED, *FROM_MODERN),
        why="B-CONV-8",
    ),
)
_OF_ERRORS: Final = (
    row("other codes, messages, data", "host.*.error.*", cells=same(AS_IS)),
    row("HTTP status", "host.*.status", cells=same(ADDED), why="hosts", over=LINES),
    row("HTTP status", "host.*.status", cells=same(AS_IS)),
)
_NOT_TOLD: Final = (
    row("what no policy names", f"{_TOLD}[notifications/{{other,stray}}/changed]*", cells=same(NOT), why="X-EXT-23"),
    row(
        "a long form",
        f"{_TOLD}[notifications/thing/changed]*",
        cells=same(NOT),
        why="X-EXT-51",
        policies=UNLESS_ALLOWED,
    ),
    row("`events/list_changed`", _LISTED_EVENTS, cells=same(NOT), why="X-EXT-50", policies=UNLESS_ALLOWED),
    row("`events/list_changed`", _LISTED_EVENTS, cells=same(NOT, *ACROSS), why="X-EXT-7", policies=(ALLOW,)),
    row("log lines", f"{_TOLD}[notifications/message]*", cells=same(NOT, "ML"), why="U-STDIO-4", over=LINES),
)
_META_OF_NOTIFICATIONS: Final = (
    row(
        "`subscriptionId`, of what is said during a call",
        "host.tell.heard*._meta[io.modelcontextprotocol/subscriptionId]",
        cells=same(ADDED, *FROM_MODERN),
        why="U-STDIO-4",
        policies=(ALLOW,),
        over=LINES,
    ),
    row(
        "`subscriptionId`",
        f"{_TOLD}*._meta[io.modelcontextprotocol/subscriptionId]",
        cells={"LM": NOT, "ML": ADDED, "MM": AS_IS},
        why="B-CONV-9",
    ),
    row(
        "`subscriptionId`",
        "host.events_stream.heard*._meta[io.modelcontextprotocol/subscriptionId]",
        cells=same(NOT, "LL"),
        why="B-CONV-9",
        policies=(ALLOW,),
    ),
    row("every other key", f"{_TOLD}*._meta*", cells=same(AS_IS)),
)
_OF_NOTIFICATIONS: Final = (
    row("the stream", "host.push.heard*.stream", cells=same(REWRITTEN, *ACROSS), why="V-ERA-1", over=HTTP),
    row("the stream", f"{_TOLD}*.stream", cells=same(REWRITTEN), why="hosts", over=LINES),
    row("a long form", f"{_TOLD}[notifications/thing/changed]*", cells=same(AS_IS), policies=(ALLOW,)),
    row("`events/list_changed`", _LISTED_EVENTS, cells=same(AS_IS, *WITHIN), policies=(ALLOW,)),
    row("other notifications, unknown members included", f"{_TOLD}*", cells=same(AS_IS)),
)
_OF_LISTENS: Final = (
    row("filter: what no policy names", f"{_FILTER}.otherChanged", cells=same(NOT, *BUT_LEGACY), why="X-EXT-24"),
    row(
        "filter: a long form",
        f"{_FILTER}.thingChanged",
        cells=same(NOT, *BUT_LEGACY),
        why="X-EXT-24",
        policies=UNLESS_ALLOWED,
    ),
    row(
        "filter: `eventsListChanged`",
        f"{_FILTER}.eventsListChanged",
        cells=same(NOT, *BUT_LEGACY),
        why="X-EXT-24",
        policies=UNLESS_ALLOWED,
    ),
    row(
        "filter: `eventsListChanged`",
        f"{_FILTER}.eventsListChanged",
        cells=same(AS_IS, "MM") | same(NOT, *ACROSS),
        why="X-EXT-7",
        policies=(ALLOW,),
    ),
    row(
        "filter: a long form",
        "host.listen.granted.thingChanged",
        cells={"LM": NOT, "ML": ADDED, "MM": AS_IS},
        why="V-ERA-1",
        policies=(ALLOW,),
    ),
    row(
        "filter, granted to the host",
        "host.listen.granted.*",
        cells={"LM": NOT, "ML": ADDED, "MM": AS_IS},
        why="V-ERA-1",
    ),
    row("filter, asked of the server", "server.wishes.*", cells={"LM": ADDED, "ML": NOT, "MM": AS_IS}, why="V-ERA-1"),
    row("the stream", "host.listen.heard*.stream", cells=same(REWRITTEN, "MM"), why="hosts", over=LINES),
    row(
        "acknowledgement: `subscriptionId`, the stream",
        "host.listen.heard*.{stream,_meta[io.modelcontextprotocol/subscriptionId]}",
        cells=same(AS_IS, "MM"),
    ),
    row("acknowledgement: the rest", "host.listen.heard*", cells={"LM": NOT, "ML": ADDED, "MM": NOT}, why="own"),
)
ORDER: Final[tuple[tuple[str, tuple[Row, ...]], ...]] = (
    (METHODS, _REFUSED),
    (DECLARED, _OF_DECLARATIONS),
    (WELCOME, _OF_WELCOMES),
    (HOSTS, _OF_HOSTS),
    (QUESTIONS, _OF_QUESTIONS),
    (META, _META_FIRST),
    (QUESTIONS, _ANSWERED),
    (NOTIFICATIONS, _OF_NOTICES),
    (REQUESTS, _OF_REQUESTS),
    (META, _META_OF_REQUESTS),
    (REQUESTS, _REST_OF_REQUESTS),
    (RESULTS, _ODD_RESULTS),
    (META, _META_OF_RESULTS),
    (ERRORS, _CODES),
    (METHODS, _ANSWERS_OF_EXTENSIONS),
    (RESULTS, _USUAL_RESULTS),
    (ERRORS, _OF_ERRORS),
    (NOTIFICATIONS, _NOT_TOLD),
    (META, _META_OF_NOTIFICATIONS),
    (NOTIFICATIONS, _OF_NOTIFICATIONS),
    (LISTENS, _OF_LISTENS),
)
"""The sections of the page that rows belong to, in the order in which they count."""
ROWS: Final = tuple(each for _, rows in ORDER for each in rows)
