"""What the protocol obliges the gateway to do, as far as it is built: an id each, with what a test must show.

A test says which it shows with `@covers("L-CREATE-1")`; `tests/house/test_requirements.py` compares both ways. What is
not built is not listed; where only part of a requirement applies so far, the words here say which.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import pytest

_Test = TypeVar("_Test", bound=Callable[..., object])

REQUIREMENTS: Final = {
    # Lifecycle and revisions
    "V-INIT-1": "initialize is answered with the host's revision, or with the newest of the era",
    "V-INIT-2": "a host hears nothing but answers before it has said it is initialized",
    "V-INIT-3": "revision and capabilities are the session's own",
    "V-INIT-4": "tasks are declared to 2025-11-25 alone, and only where calls can become tasks",
    "V-INIT-5": "ping is answered on both sides by the gateway",
    "V-INIT-7": "an array is refused",
    "V-INIT-8": "no array is ever sent to a server",
    "V-INIT-9": "a call that outlives its bound is cancelled at the server; initialize never is",
    "V-INIT-10": "no id is used twice in one session with a server",
    # Streamable HTTP towards the host
    "H-HTTP-1": "a foreign Origin is refused with 403 on every method",
    "H-HTTP-3": "one path a server, one message a body",
    "H-HTTP-4": "a request is answered as JSON or as an event stream, whichever the host takes",
    "H-HTTP-5": "a notification gets 202 and no body",
    "H-HTTP-6": "event streams are kept alive by comments and not buffered",
    "H-HTTP-7": "malformed bodies get 400 with -32700 or -32600, too large ones 413, other types 415",
    "H-HTTP-8": "only UTF-8 is read",
    "H-LEG-1": "initialize mints a session id of visible ASCII that nobody can guess",
    "H-LEG-2": "a message without a session gets 400",
    "H-LEG-3": "an unknown or ended session gets 404",
    "H-LEG-4": "a server that lost its session is met anew for the next call",
    "H-LEG-5": "DELETE ends a session, and sessions at servers are deleted when nobody needs them",
    "H-LEG-6": "a revision header that is unknown or not the session's gets 400",
    "H-LEG-7": "GET opens a stream for what belongs to no request",
    "H-LEG-8": "no message goes out on two streams",
    "H-LEG-9": "a call's own stream holds what is about it, then the response, then ends",
    "H-LEG-10": "a host that drops its connection has cancelled nothing",
    "H-LEG-14": "tasks/get is answered as JSON, tasks/result may be held on a stream",
    # Servers
    "U-HTTP-1": "session id and revision go with every later request to a server",
    "U-HTTP-2": "the GET stream of a server is held open where there is one",
    "U-HTTP-3": "requests of a server are refused, its pings answered",
    # Dialect L
    "L-CAP-1": "the task capability is exact: requests.tools.call and cancel",
    "L-CAP-2": "tasks/list is declared and answered where callers can be told apart, and only there",
    "L-CAP-3": "no task is asked of a server",
    "L-TOOL-1": "each tool tells its task support by policy; older hosts see none",
    "L-TOOL-2": "a task for a tool that forbids it is refused with -32601",
    "L-TOOL-3": "a tool that must be a task is refused with -32601 when called plainly",
    "L-TOOL-5": "a session without tasks has `task` ignored",
    "L-CREATE-1": "a task is acknowledged at once, as working, after it is stored",
    "L-CREATE-2": "task ids are the gateway's own and cannot be guessed",
    "L-CREATE-3": "a TTL that was asked for is clamped and the real one told",
    "L-CREATE-4": "a host may give its model words meanwhile, which the operator chooses per tool or leaves out",
    "L-CREATE-5": "what is refused before acceptance makes no task; an unknown tool is -32602",
    "L-STAT-1": "only the moves of the lifecycle happen",
    "L-STAT-2": "a late answer after a cancel is dropped",
    "L-STAT-3": "a tool's error and a JSON-RPC error make the task failed, with a reason to read",
    "L-GET-1": "a task tells createdAt, lastUpdatedAt, ttl and pollInterval",
    "L-GET-2": "unknown, malformed, expired and foreign ids get one answer",
    "L-GET-3": "only taskId selects the task",
    "L-RES-1": "tasks/result waits for the end of the task",
    "L-RES-2": "tasks/result brings exactly what the call would have brought",
    "L-RES-3": "the related-task key is merged into a result's _meta, and an error stays as it is",
    "L-RES-4": "a result can be fetched again, by many at once, and by who came back",
    "L-RES-5": "tasks/result of a cancelled task is an error that says so",
    "L-CANCEL-1": "an ended task cannot be cancelled",
    "L-CANCEL-2": "a cancelled task is told as such at once, and its server is told to stop",
    "L-CANCEL-4": "notifications/cancelled is not for tasks",
    "L-NOTIF-1": "a change of a task is told on a GET stream",
    "L-NOTIF-2": "and only to the session that made the task",
    "L-PROG-2": "progress tokens towards servers are the gateway's own, mapped back",
    "L-TTL-1": "the TTL counts from the creation",
    "L-TTL-2": "an expired task is gone, whatever its state",
    "L-META-1": "the related-task key is on the handle and on the result",
    "L-LIST-1": "tasks are listed in pages, with a cursor whenever there are more",
    "L-LIST-2": "a list holds the caller's own tasks and no other's",
    "L-LIST-3": "a list holds whatever tasks/get would bring, and nothing that it would refuse",
    "L-LIST-4": "a cursor that was not made for this caller, mount, filter and order is refused with -32602",
    "F-FILTER-1": "what a list can be filtered and ordered by is declared where lists are",
    "F-FILTER-2": "criteria stand in params.filter or beside it; all must be met, of the values of one any",
    "F-FILTER-3": "lists are ordered by lastUpdatedAt, newest first, unless the host says otherwise",
    "F-FILTER-4": "a malformed value is refused with -32602, an unknown criterion is ignored",
    "F-FILTER-5": "a filter narrows what is the caller's own and never widens it",
    "F-FILTER-6": "without a filter all of the caller's tasks are listed",
    "F-FILTER-7": "where there are no tasks or no lists there is no filter",
    "L-LIST-5": "no related-task key is on a list, on tasks/get or on tasks/cancel",
    # Isolation and resources
    "I-ISO-1": "a task belongs to whom its maker's token speaks for, by issuer, subject and client, not to a session",
    "I-ISO-2": "that is asked for every get, result, cancel, list and stream",
    "I-ISO-3": "what is somebody else's is not found in the same bytes and the same time as what never was",
    "I-ISO-4": "ids are unguessable, nothing is kept long and nothing is listed without authentication",
    "I-ISO-5": "to have the id of a task or of a session lets nobody in",
    "I-ISO-6": "an id of one mount is unknown at another",
    "I-ISO-7": "outcomes are stored as they came and told as the viewer's revision wants",
    "R-RES-1": "unfinished tasks of one caller are capped",
    "R-RES-2": "the TTL is capped",
    "R-RES-3": "expired tasks are removed",
    "R-RES-4": "look-ups of tasks that fail are counted for each caller, and too many bring a penalty",
    # Authorization
    "A-AUTH-1": "every request needs a token of its own, in one header and never in the query",
    "A-AUTH-2": "signature, issuer, time and audience of a token are judged",
    "A-AUTH-3": "no token of a host reaches a server",
    "A-AUTH-4": "the metadata of each mount is there for everybody",
    "A-AUTH-5": "a 401 says where the metadata is",
    "A-AUTH-6": "challenges name all the scopes that are needed",
    "A-AUTH-7": "too few scopes are 403 with a challenge",
    "A-AUTH-8": "a scope stands for those that it implies",
    "A-AUTH-9": "offline_access is named nowhere",
    "A-AUTH-10": "a token that is missing or wrong is 401, one with too few scopes 403",
    "A-AUTH-11": "a mount has one name, without a slash at the end and with its host in small letters",
    "A-AUTH-12": "a task keeps its owner when the scopes of a token change; each operation is judged by those it has",
    "A-AUTH-13": "a new token finds the tasks of the old one; waits and streams end with theirs",
    "A-AUTH-14": "a server's 401 and 403 are no challenge to a host",
    # Traps
    "T-1": "isError is failed for these hosts, and tasks/result still succeeds",
    "T-3": "ttl and pollInterval are integers",
    "T-10": "2026-07-28 is never agreed to in initialize",
    "T-11": "a dropped connection cancels nothing",
    "T-18": "tasks/result is not answered before the end",
    "T-22": "a cursor holds still while tasks change, and keeps to its filter and order",
    "T-23": "an error without an id has no id member",
    "T-25": "a server's call is cancelled with the notification",
}


def covers(*ids: str) -> Callable[[_Test], _Test]:
    """Says which requirements a test shows."""
    unknown = [id for id in ids if id not in REQUIREMENTS]
    assert not unknown, f"no such requirement: {unknown}"
    mark: Callable[[_Test], _Test] = pytest.mark.requirement(*ids)
    return mark
