"""What is owed to servers, and asked of them, by the ways that messages get there: a part of `requirements`."""

from typing import Final

FOR_SERVERS: Final = {
    "H-LEG-13": "a stream of a server is taken up again by its last event id after the pause it asked for",
    "B-CONV-4": "a server is declared what its host declared, cut to what crosses the gateway",
    "U-HTTP-1": "session id and revision go with every later request to a server",
    "U-HTTP-2": "the GET stream of a server is held open where there is one",
    "U-HTTP-3": "a question on a call's stream belongs to that call, on the GET stream to the only one in flight",
    "L-GET-4": "a task of a server of 2025-11-25 is looked at no faster than it wants",
    "U-STDIO-1": "a program hears one message a line and nothing else, and what it says on standard error is logged",
    "U-STDIO-2": "a program that ended is started again, and what it had in flight has failed",
    "U-STDIO-3": "a call of a program is cancelled with the notification, in either era",
    "U-STDIO-4": "a process is for one caller and one set of capabilities; it asks for the only call in flight",
    "U-STDIO-5": "streams of a program in the modern era are told apart by their subscription, and it gets no answers",
    "U-STDIO-6": "a program's command comes from the operator alone, and is given to no shell",
    "U-SSE-1": "a server of HTTP+SSE says where messages go, and answers on its stream, which is the session",
    "U-SSE-2": "messages go to the server's own origin alone",
    "U-SSE-3": "what was in flight on a stream that ended has failed, and the next call has another",
}
