"""A server over standard input and output that misbehaves, as `python awkward_program.py [WAY]`; see WAYS and TOOLS.

The way of misbehaving from the start is that of the first process in a working directory; the next ones behave. Each
tool misbehaves in the way that it is called by, and `echo` does not. Only the standard library is used here, and
nothing of taskgate: it is a program like any other.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from os import _exit
from typing import Any

LARGE = 5 * 2**20
JUNK = (
    b"Loading 42 books...",
    b"",
    b"42",
    b"[]",
    b'{"level":"info"}',
    b'{"jsonrpc":"2.0"}',
    b"\xff\xfe",
    b"\x00\x1b[31m",
    b'[42,{"a":1},[{"jsonrpc":"2.0","id":1,"result":{}}]]',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"I answer notifications, too"}}',
)


def write(text: bytes) -> None:
    """All of it, at once."""
    while text:
        text = text[os.write(1, text) :]


# --- answers, by the tool that gives them


PROPER = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'


def proper(id: int, text: bytes = b"well") -> bytes:
    """The answer of a server that behaves."""
    return PROPER % (id, text)


def latin(id: int) -> bytes:
    """A text that is no UTF-8."""
    return proper(id, b"caf\xe9")


def broken(id: int) -> bytes:
    """The answer, but for its last brace."""
    return proper(id)[:-1]


def in_an_array(id: int) -> bytes:
    """The answer in an array, after the answer to something else and a notification."""
    note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
    return b"[%s, %s,%s]" % (proper(id + 10**6), note, proper(id))


def among_junk(id: int) -> bytes:
    """The answer in an array, between what is none."""
    return b'[42, %s, {"jsonrpc":"2.0"}]' % proper(id)


def doubled(id: int) -> bytes:
    """An answer whose id stands there twice."""
    return b'{"jsonrpc":"2.0","id":%d,' % id + proper(id)[1:]


def neither_in_an_array(id: int) -> bytes:
    """An array with an answer that is none."""
    return b'[{"jsonrpc":"2.0","id":%d}]' % id


def cut_in_an_array(id: int) -> bytes:
    """An array that ends in the middle of the answer."""
    return b"[" + proper(id)[:-20]


def two_ids(id: int) -> bytes:
    """An answer to two requests, one of which was never made."""
    return b'{"jsonrpc":"2.0","id":%d,' % (id + 10**6) + proper(id)[1:]


def ids_around(id: int) -> bytes:
    """The same, where the other stands last."""
    return proper(id)[:-1].replace(b'"jsonrpc":"2.0",', b"") + b',"jsonrpc":"2.0","id":%d}' % (id + 10**6)


def unread(_: int) -> bytes:
    """What a server says to what it cannot read."""
    return b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'


def neither(id: int) -> bytes:
    """An answer that is none."""
    return b'{"jsonrpc":"2.0","id":%d}' % id


ANSWERS = {
    each.__name__: each
    for each in (
        latin,
        broken,
        in_an_array,
        among_junk,
        doubled,
        neither_in_an_array,
        cut_in_an_array,
        two_ids,
        ids_around,
        unread,
        neither,
    )
}


# --- tools, by name


def echo(id: int) -> None:
    write(proper(id) + b"\n")


def junk(id: int) -> None:
    """Other things than messages, before and after the answer, and on a line with nothing."""
    write(b"\n".join(JUNK) + b"\n" + proper(id) + b"\r\n" + b"\n".join(JUNK) + b"\n")


def strangers(id: int) -> None:
    """Answers that nobody waits for, and the right one twice."""
    write(b"\n".join([proper(id + 10**6), b'{"jsonrpc":"2.0","id":"x","result":{}}', proper(id), proper(id)]) + b"\n")


def pieces(id: int) -> None:
    """The answer in pieces, cut within a character too."""
    for piece in (b"", *(bytes([byte]) for byte in proper(id, "wäll".encode()))):
        write(piece)
    write(b"\n")


def large(id: int) -> None:
    """A line of five megabytes."""
    write(proper(id, b"x" * LARGE) + b"\n")


def too_large(id: int) -> None:
    """A line without an end."""
    write(proper(id, b"x" * 4 * LARGE) + b"\n")


def noise(_: int) -> None:
    """More than a megabyte on standard error, without an end of line."""
    for _ in range(12):
        os.write(2, b"e" * 2**17)


def noisy(id: int) -> None:
    noise(id)
    write(proper(id) + b"\n")


def exits(_: int) -> None:
    _exit(3)


def exits_well(_: int) -> None:
    _exit(0)


def killed(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stops_short(id: int) -> None:
    """Half an answer, and the end."""
    write(proper(id)[:40])
    _exit(0)


def answers_and_exits(id: int) -> None:
    write(proper(id) + b"\n")
    _exit(3)


def answers_and_leaves_a_child(id: int) -> None:
    """Ends after its answer, and a child of it holds its streams."""
    write(proper(id) + b"\n")
    leaves_a_child(id)


def answers_and_closes_output(id: int) -> None:
    """Lives on, mute, and says so in its directory."""
    write(proper(id) + b"\n")
    os.close(1)
    os.close(os.open("has-closed", os.O_CREAT))
    time.sleep(600)


def answers_and_closes_input(id: int) -> None:
    """Lives on, deaf, and says so in its directory."""
    write(proper(id) + b"\n")
    os.close(0)
    os.close(os.open("has-closed", os.O_CREAT))
    time.sleep(600)


def closes_output(_: int) -> None:
    """Lives on, and can say nothing any more."""
    os.close(1)
    time.sleep(600)


def closes_input(_: int) -> None:
    """Lives on, and hears nothing any more."""
    os.close(0)
    time.sleep(600)


def leaves_a_child(_: int) -> None:
    """Ends, and leaves a child behind which holds its streams and does not mind being asked to end."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    _exit(3)


def answering(says: Callable[[int], bytes]) -> Callable[[int], None]:
    """The tool that gives that answer."""
    return lambda id: write(says(id) + b"\n")


TOOLS = {
    each.__name__: each
    for each in (
        echo,
        junk,
        strangers,
        pieces,
        large,
        too_large,
        noisy,
        exits,
        exits_well,
        killed,
        stops_short,
        answers_and_exits,
        answers_and_leaves_a_child,
        answers_and_closes_output,
        answers_and_closes_input,
        closes_output,
        closes_input,
        leaves_a_child,
    )
} | {name: answering(says) for name, says in ANSWERS.items()}


# --- ways, from the start


def mute() -> None:
    """Never says anything."""
    time.sleep(600)


def deaf() -> None:
    """Hears nothing, and says what nobody asked for."""
    while True:
        write(b"Press any key\n")
        time.sleep(0.05)


def dead() -> None:
    """Ends at once."""
    sys.stderr.write("There is no license for this\n")
    sys.exit(5)


def chatting() -> None:
    """Says much before it is asked anything, and behaves then."""
    write(b"\n".join(JUNK) * 1000 + b"\n")
    noise(0)


def refusing() -> None:
    """Answers the first request with an error."""
    id = json.loads(sys.stdin.readline())["id"]
    write(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no license"}}\n' % id)


def quoting() -> None:
    """The same, and the error has the secret that it was given, on two lines."""
    id, secret = json.loads(sys.stdin.readline())["id"], os.environ["SECRET"]
    error = {"code": -32000, "message": f"no license\nfor {secret}" + "!" * 5000}
    write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode() + b"\n")


def ahead() -> None:
    """Speaks a revision of which nobody knows."""
    id = json.loads(sys.stdin.readline())["id"]
    server = {"name": "awkward", "version": "1"}
    result = {"protocolVersion": "2099-01-01", "capabilities": {}, "serverInfo": server}
    write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")
    time.sleep(600)


def babbling() -> None:
    """Answers the first request with what is no answer."""
    id = json.loads(sys.stdin.readline())["id"]
    write(b'{"jsonrpc":"2.0","id":%d,"result":"welcome"}\n' % id)
    time.sleep(600)


WAYS = {each.__name__: each for each in (mute, deaf, dead, chatting, refusing, quoting, ahead, babbling)}


def hear(message: dict[str, Any]) -> None:
    """Act on one message."""
    id, result = message.get("id"), None
    match message.get("method"):
        case "initialize":
            server = {"name": "awkward", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        case "tools/call":
            TOOLS[message["params"]["name"]](message["id"])
        case "server/discover":
            write(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"Method not found"}}\n' % message["id"])
    if result is not None:
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")


def is_first() -> bool:
    """Whether this is the first process that asks in its working directory."""
    try:
        os.close(os.open("was-here", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def main() -> None:
    """Misbehave where that is wanted and it is the first here, then serve."""
    ways = sys.argv[1:]
    if ways and is_first():
        for way in ways:
            WAYS[way]()
    for line in sys.stdin:
        hear(json.loads(line))


if __name__ == "__main__":
    main()
