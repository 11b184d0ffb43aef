"""What the protocol obliges the gateway to do, as far as it is built: an id each, with what a test must show.

A test says which it shows with `@covers("L-CREATE-1")`; `tests/house/test_requirements.py` compares both ways. What is
not built is not listed; where only part of a requirement applies so far, the words here say which.

What does not apply: L-GET-4 and F-FILTER-8, since no server is asked for a task or a list of them, and when a server
polls the tasks of its host is its own affair. S-SEC-5, since no OAuth flow passes through the gateway. S-SEC-7, since
no revision that is spoken mirrors parts of a message in headers. S-SEC-10, since a mount has one server.
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
    "V-INIT-7": "an array is refused but in 2025-03-26, where each element is answered",
    "V-INIT-8": "no array is ever sent to a server",
    "V-INIT-9": "a call that outlives its bound, which progress begins anew, is cancelled; initialize never is",
    "V-INIT-10": "no id is used twice in one session with a server",
    # Streamable HTTP towards the host
    "H-HTTP-1": "a foreign Origin is refused with 403 on every method",
    "H-HTTP-2": "who reaches the listeners is on this machine, or is asked for a token",
    "H-HTTP-3": "one path a server, one message a body but for batches",
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
    "H-LEG-6": "a revision header that is unknown gets 400; the session keeps its own whatever a known one says",
    "H-LEG-7": "GET opens a stream for what belongs to no request",
    "H-LEG-8": "no message goes out on two streams",
    "H-LEG-9": "a call's own stream holds what is about it, then the response, then ends",
    "H-LEG-10": "a host that drops its connection has cancelled nothing",
    "H-LEG-11": "hosts of 2025-11-25 alone get event ids, first one without a message, and are told when to come back",
    "H-LEG-12": "a lost stream is taken up again after the last event that was heard, by its session alone",
    "H-LEG-14": "tasks/get is answered as JSON, tasks/result may be held on a stream",
    # Servers
    "H-LEG-13": "a stream of a server is taken up again by its last event id after the pause it asked for",
    "B-CONV-4": "a server is declared what its host declared, cut to what crosses the gateway",
    "U-HTTP-1": "session id and revision go with every later request to a server",
    "U-HTTP-2": "the GET stream of a server is held open where there is one",
    "U-HTTP-3": "a question on a call's stream belongs to that call, on the GET stream to the only one in flight",
    # Dialect L
    "L-CAP-1": "the task capability is exact: requests.tools.call and cancel",
    "L-CAP-2": "tasks/list is declared and answered where callers can be told apart, and only there",
    "L-CAP-3": "no task is asked of a server, and none is declared for a host that has none",
    "L-CAP-4": "a host is asked for a task of its own where its server wants one, and never by the gateway",
    "L-TOOL-1": "each tool tells its task support by policy; older hosts see none",
    "L-TOOL-2": "a task for a tool that forbids it is refused with -32601",
    "L-TOOL-3": "a tool that must be a task is refused with -32601 when called plainly",
    "L-TOOL-4": "where every tool must be a task, a plain call is refused with -32601 all the same",
    "L-TOOL-5": "a session without tasks has `task` ignored",
    "L-TOOL-6": "no server is sent `task`; a tool that its server runs only as a task is forbidden to hosts",
    "L-CREATE-1": "a task is acknowledged at once, as working, after it is stored",
    "L-CREATE-2": "task ids are the gateway's own and cannot be guessed",
    "L-CREATE-3": "a TTL that was asked for is clamped and the real one told",
    "L-CREATE-4": "a host may give its model words meanwhile, which the operator chooses per tool or leaves out",
    "L-CREATE-5": "what is refused before acceptance makes no task; an unknown tool is -32602",
    "L-CREATE-6": "what only the server can refuse makes the task failed, with the server's own error",
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
    "L-INPUT-1": "a task whose server asks is input_required until all is answered, then working",
    "L-INPUT-2": "what a host is asked for a task names the task",
    "L-INPUT-3": "a question goes to an open GET stream, else to tasks/result, and to the next when that stream died",
    "L-INPUT-4": "several questions, at once and one after another, ride on one tasks/result",
    "L-INPUT-5": "an answer is known by its id and its caller; the first counts, and servers see no related-task key",
    "L-INPUT-6": "no host is asked what it did not declare",
    "L-INPUT-7": "what a server asks for no call is asked on a GET stream or waits for one",
    "L-INPUT-8": "a question that nobody answers in time is answered for the host",
    "L-INPUT-9": "a question in URL mode passes whole, and so does the news that it is done",
    "L-HOST-1": "tasks of a host's own are declared to its server, as far as it declared them",
    "L-HOST-2": "a question that is to be a task of the host passes, with the host's handle as its answer",
    "L-HOST-3": "a server reads, awaits, lists and cancels the tasks of its host",
    "L-HOST-4": "news of a host's own tasks reach its server, and touch no task of the gateway",
    "L-HOST-5": "during a task it is an input request as any other, open until the server has its last answer",
    "L-HOST-6": "a host that declared no tasks is never asked for one",
    "L-CANCEL-1": "an ended task cannot be cancelled",
    "L-CANCEL-2": "a cancelled task is told as such at once, and its server is told to stop",
    "L-CANCEL-3": "a cancelled task is kept until its TTL is over",
    "L-CANCEL-4": "notifications/cancelled is not for tasks",
    "L-NOTIF-1": "a change of a task is told on a GET stream",
    "L-NOTIF-2": "and only to the session that made the task",
    "L-PROG-1": "progress of a task is told under the host's token until it ends, and only grows",
    "L-PROG-2": "progress tokens towards servers are the gateway's own, mapped back",
    "L-TTL-1": "the TTL counts from the creation",
    "L-TTL-2": "an expired task is gone, whatever its state",
    "L-META-1": "the related-task key is on the handle, the result, and whatever is asked or told for a task",
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
    "R-RES-7": "questions that wait are bounded in number and in time",
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
    # Security
    "S-SEC-1": "where no user answers, the server hears just that: cancel, or an error",
    "S-SEC-2": "a question passes whole to the user whose call it is, is answered by nobody else, and is never logged",
    "S-SEC-3": "nothing that the schema of a tool refers to is fetched",
    "S-SEC-4": "what a server says of its tools passes unchanged but for the task support, and is not relied upon",
    "S-SEC-6": "heads and bodies that are too large are refused before they are read",
    "S-SEC-8": "what concerns one session or task is on no stream of another caller or session",
    "S-SEC-9": "no call is sent again when its server or the gateway broke off",
    # Traps
    "T-1": "isError is failed for these hosts, and tasks/result still succeeds",
    "T-3": "ttl and pollInterval are integers",
    "T-7": "the related-task key is on questions, progress and results, and not on get, list, cancel and status",
    "T-10": "2026-07-28 is never agreed to in initialize",
    "T-11": "a dropped connection cancels nothing",
    "T-18": "tasks/result is not answered before the end",
    "T-19": "a question is on one stream, and again on the next when that one died",
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
