"""Connections of hosts as bytes: requests that are usual, such that two parsers could read differently, and noise.

All of it follows from a seed, so two processes play the same. A connection is a list of pieces, sent one after another;
a request may be cut anywhere, and several may come at once.
"""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final

PATH: Final = "/old/mcp"

_PING: Final = b'{"jsonrpc":"2.0","id":"%s","method":"ping"}'
_CALL: Final = b'{"jsonrpc":"2.0","id":"%s","method":"tools/call","params":{"name":"echo","arguments":{"n":"%s"}}}'
_USUAL: Final = (
    ("Host", "{host}"),
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
    ("Mcp-Session-Id", "{session}"),
    ("Mcp-Protocol-Version", "2025-06-18"),
)

_METHODS: Final = ("GET", "DELETE", "PUT", "HEAD", "OPTIONS", "CONNECT", "PRI", "TRACE", "BREW", "post", "POST\t", "")
_TARGETS: Final = (
    f"{PATH}?x=%2F", f"{PATH}#f", f"{PATH}?a#b?c", f"{PATH}/", f"/{PATH}", "/", "*", "x", "", "old/mcp", "/\xff",
    "/ü", f"http://{{host}}{PATH}", f"https://evil.example{PATH}", f"http:///{PATH}", "http://", "evil.example:443",
    "//",
    "?", f"{PATH} HTTP/1.1 x", f"{PATH}\0", f"{PATH}\t", "/a" * 3000, f"{PATH}?" + "q" * 5000,
    "/.well-known/oauth-protected-resource", "/%6fld/mcp",
)  # fmt: skip
_VERSIONS: Final = (
    "HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/1.10", "HTTP/1", "http/1.1",
    "HTTP/1.1 ", "HTTP/1.x", "HTTPS/1.1", "ICE/1.0", "RTSP/1.0", "",
)  # fmt: skip
_ENDS: Final = ("\n", "\r", "\r\r\n", "\n\r", " \r\n", "\r\n\r\n", "\r\n ", "\r\n\t")
_BEFORE: Final = ("\r\n", "\r\n\r\n", "\n", "\n\n", "\r", " ", "\0", "\r\n" * 40, "\r\n ", "\xef\xbb\xbf", "x")
_LENGTHS: Final = (
    "0", "1", " {n}", "{n} ", "+{n}", "-{n}", "0x{n}", "{n}, {n}", "{n},", "{n};", "{n}.0", "00{n}", "{n}\x0b",
    "{n} {n}", "", "9" * 40, "18446744073709551615", "18446744073709551616", "4294967296", "1e1", "٣", "{n}\r\n {n}",
    "999999",
)  # fmt: skip
_CODINGS: Final = (
    "chunked", "chunked", "Chunked", "CHUNKED", " chunked ", "chunked,", ",chunked", "chunked, chunked",
    "gzip, chunked", "chunked, gzip", "identity", "chunked;q=1", '"chunked"', "xchunked", "chunked\x0b", "\x0bchunked",
    "chunked\0",
    "\r\n chunked", "chunk\r\n ed", "", "gzip", "identity, chunked", "chunked\r\nTransfer-Encoding: identity",
    "x\r\nTransfer-Encoding: chunked", "trailers, chunked",
)  # fmt: skip
_NAMES: Final = (
    "Transfer-Encoding", "Transfer-Encoding ", " Transfer-Encoding", "Transfer_Encoding", "transfer-encoding",
    "Transfer-Encoding\0", "Transfer\r\n-Encoding", "X\r\nTransfer-Encoding", "Content-Length", "Content-Length ",
    "content-length", "Content_Length", "\tContent-Length", "Content-Length\x0b", "X: y\r\nContent-Length",
)  # fmt: skip
_FIELDS: Final = (
    ("Connection", "close"), ("Connection", "Close"), ("Connection", "keep-alive"), ("Connection", "close, keep-alive"),
    ("Connection", "keep-alive, close"), ("Connection", "upgrade"), ("Connection", "Content-Length"),
    ("Connection", ""), ("Connection", "TE"), ("Proxy-Connection", "close"), ("Keep-Alive", "timeout=5"),
    ("Expect", "100-continue"), ("Expect", "100-Continue"), ("Expect", "x"),
    ("Expect", ""), ("Expect", "100-continue, x"), ("Host", "evil.example"), ("Host", ""),
    ("Host", "{host}\r\nHost: x"), ("TE", "trailers"), ("Trailer", "Content-Length"), ("Content-Encoding", "gzip"),
    ("Content-Encoding", "identity"),
    ("Content-Type", "text/plain"), ("Accept", "text/html"), ("Origin", "https://evil.example"), ("Date", "x"),
    ("Sec-WebSocket-Key1", "x"), ("X", "a\x00b"), ("X", "a\rb"), ("X", "a\nb"), ("X", "a\r\n b"), ("X", "\xff\x80"),
    ("X", "ü"), ("X", "\x7f"), ("X", "\x01"), ("X", "\t"), ("", "x"), ("X Y", "z"), ("X(", "z"), ("X\x80", "z"),
    ("X", "y" * 900), ("X", "y" * 5000), ("X" * 5000, "y"), ("Cookie", "a=b\r\nCookie: c=d"), ("X-Http-Method", "GET"),
    ("Last-Event-ID", "1"), ("Forwarded", "for=192.0.2.1"),
)  # fmt: skip
_SIZES: Final = (
    "{x}", "{x}", "{x}", "{x}", "0{x}", "0000000000000000000{x}", "{x};a=b", "{x};", "{x} ;a", "{x};a\nb",
    '{x};a="\r\n"', " {x}", "{x} ", "+{x}", "-{x}", "0x{x}", "{x}g", "", "f" * 16, "f" * 17, "1", "{x}\x00", "{x},{x}",
    "{x}" + ";e" * 3000,
)  # fmt: skip
_TRAILERS: Final = (
    "", "", "", "X: y\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Host: evil.example\r\n",
    "X : y\r\n", "X: y\n", "nonsense\r\n", ": y\r\n", " folded\r\n", "X: " + "y" * 5000 + "\r\n", "X: y\r\n" * 150,
)  # fmt: skip
_ODD: Final = (
    b"\0", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b",", b";", b"\x0b", b"\x7f", b"\xff", b"0", b"\r\n\r\n", b"/",
    b"%",
)  # fmt: skip

SMUGGLING: Final = tuple(
    text.replace("{post}", f"POST {PATH} HTTP/1.1\nHost: {{host}}\n")
    .replace("{get}", f"GET {PATH} HTTP/1.1\nHost: {{host}}\n")
    .replace("\n", "\r\n")
    .replace("<LF>", "\n")
    .replace("<CR>", "\r")
    .replace("<0>", "\0")
    .encode()
    for text in (
        # Both lengths, in either order, and what one of two parsers would take for the next request.
        "{post}Content-Length: 6\nTransfer-Encoding: chunked\n\n0\n\nG",
        "{post}Transfer-Encoding: chunked\nContent-Length: 4\n\n5c\nGPOST / HTTP/1.1\n\n0\n\n",
        "{post}Content-Length: 4\nTransfer-Encoding : chunked\n\n0\n\n",
        "{post}Transfer-Encoding: chunked\nTransfer-Encoding: cow\n\n0\n\n",
        "{post}Transfer-Encoding: cow\nTransfer-Encoding: chunked\n\n0\n\n",
        "{post}X: x<LF>Transfer-Encoding: chunked\nContent-Length: 5\n\n0\n\n",
        "{post}X: x<CR>Transfer-Encoding: chunked\nContent-Length: 5\n\n0\n\n",
        "{post}Transfer-Encoding<0>: chunked\nContent-Length: 5\n\n0\n\n",
        "{post}Transfer-Encoding:\n chunked\nContent-Length: 5\n\n0\n\n",
        "{get}Content-Length: 44\n\nGET /secret HTTP/1.1\nHost: {host}\n\n",
        "{get}Transfer-Encoding: chunked\n\n0\n\nGET /secret HTTP/1.1\nHost: {host}\n\n",
        f"POST {PATH} HTTP/1.0\nHost: {{host}}\nConnection: keep-alive\nTransfer-Encoding: chunked\n\n0\n\n",
        "{post}Content-Length: 0\nContent-Length: 44\n\nGET / HTTP/1.1\nHost: {host}\n\n",
        "CONNECT {host} HTTP/1.1\nHost: {host}\nContent-Length: 4\n\nabcdGET / HTTP/1.1\n\n",
        "PRI * HTTP/2.0\n\nSM\n\n",
        f"GET http://{{host}}{PATH} HTTP/1.1\nHost: evil.example\n\n",
        "{get}Host: evil.example\n\n",
        f"GET {PATH}<LF>Host: {{host}} HTTP/1.1\n\n",
        "{post}Transfer-Encoding: chunked\n\n0;x=<LF>\n\n",
        "{post}Transfer-Encoding: chunked\n\n1<LF>a\n0\n\n",
        "{post}Transfer-Encoding: chunked\n\n0<LF><LF>GET / HTTP/1.1\n\n",
        "{post}Transfer-Encoding: chunked\n\n0\nContent-Length: 5\n\nGET / HTTP/1.1\n\n",
        f"<LF>POST {PATH} HTTP/1.1\nHost: {{host}}\nContent-Length: 0\n\n",
        f"POST {PATH} HTTP/1.1<LF>Host: {{host}}<LF>Content-Length: 0<LF><LF>",
    )
)
"""What write-ups of request smuggling tell of; `\\n` stands for the end of a line."""


def connections(seed: int, count: int, host: str, session: str) -> Iterator[list[bytes]]:
    """The pieces of each of so many connections, the known ones first.

    `host` is what `Host` must say, and `session` the id of an open session.
    """
    chance = Random(seed)
    for number in range(count):
        known = [SMUGGLING[number]] if number < len(SMUGGLING) else []
        requests = known or [_request(chance, number, index) for index in range(chance.choice((1, 1, 1, 2, 2, 3, 5)))]
        if not known and chance.random() < 0.01:
            requests *= 20
        if chance.random() < 0.03:
            requests.append(bytes(chance.randrange(256) for _ in range(chance.randrange(1, 60))))
        whole = _named(b"".join(requests), host, session)
        if not known and chance.random() < 0.15:
            whole = _changed(chance, whole)
        yield _cut(chance, whole)


def sentinel(host: str, session: str) -> bytes:
    """A usual request: what comes back for it shows where the connection takes the next head to begin."""
    body = _PING % b"sentinel"
    return _named(_head("POST", PATH, "HTTP/1.1", [*_USUAL, ("Content-Length", str(len(body)))]) + body, host, session)


def _named(requests: bytes, host: str, session: str) -> bytes:
    return requests.replace(b"{host}", host.encode()).replace(b"{session}", session.encode())


def _head(method: str, target: str, version: str, fields: list[tuple[str, str]]) -> bytes:
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def _request(chance: Random, number: int, index: int) -> bytes:
    """One request, with few or many things about it that are unusual."""
    name = b"%d-%d" % (number, index)
    body = _CALL % (name, name) if chance.random() < 0.3 else _PING % name
    method = chance.choice(_METHODS) if chance.random() < 0.08 else "POST"
    target = chance.choice(_TARGETS) if chance.random() < 0.05 else PATH
    version = chance.choice(_VERSIONS) if chance.random() < 0.06 else "HTTP/1.1"
    # To end the session would be the end of all usual requests.
    fields = [each for each in _USUAL if method != "DELETE" or "{session}" not in each]
    framed = chance.random()
    if framed < 0.6:
        fields.append(("Content-Length", str(len(body))))
    elif framed < 0.67:
        fields.append(("Content-Length", chance.choice(_LENGTHS).replace("{n}", str(len(body)))))
    elif framed < 0.7:
        fields.append((chance.choice(_NAMES), chance.choice(("chunked", str(len(body))))))
    if framed >= 0.7 or chance.random() < 0.03:
        fields.append(("Transfer-Encoding", chance.choice(_CODINGS) if chance.random() < 0.15 else "chunked"))
        if chance.random() < 0.05:
            fields.append(("Content-Length", str(len(body))))
        body = _chunked(chance, body)
    while chance.random() < 0.25:
        fields.insert(chance.randrange(len(fields) + 1), chance.choice(_FIELDS))
    if chance.random() < 0.04:
        fields.pop(chance.randrange(len(fields)))
    if chance.random() < 0.05:
        chance.shuffle(fields)
    head = _head(method, target, version, fields)
    if chance.random() < 0.04:
        lines = head.split(b"\r\n")
        place = chance.randrange(1, len(lines))
        head = b"\r\n".join(lines[:place]) + chance.choice(_ENDS).encode() + b"\r\n".join(lines[place:])
    if chance.random() < 0.05:
        head = chance.choice(_BEFORE).encode("latin-1") + head
    if chance.random() < 0.02:
        body = body[: chance.randrange(len(body) + 1)]
    return head + body


def _chunked(chance: Random, body: bytes) -> bytes:
    """A body in chunks, some of which are none."""
    written = b""
    while body:
        size = chance.randrange(1, len(body) + 1)
        piece, body = body[:size], body[size:]
        form = chance.choice(_SIZES) if chance.random() < 0.06 else "{x}"
        end = chance.choice(_ENDS).encode() if chance.random() < 0.02 else b"\r\n"
        after = chance.choice((b"\n", b"", b"\r", b"x\r\n")) if chance.random() < 0.02 else b"\r\n"
        written += form.replace("{x}", f"{size:x}").encode() + end + piece + after
    last = chance.choice(("0", "0", "0", "0", "00", "0;a=b", "-0", "")) if chance.random() < 0.15 else "0"
    trailer = chance.choice(_TRAILERS) if chance.random() < 0.15 else ""
    return written + f"{last}\r\n{trailer}\r\n".encode()


def _changed(chance: Random, whole: bytes) -> bytes:
    """The same with some octets put in, taken out or replaced."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(whole) + 1)
        taken = chance.choice((0, 0, 1, 1, 2))
        whole = whole[:place] + (chance.choice(_ODD) if chance.random() < 0.7 else b"") + whole[place + taken :]
    return whole


def _cut(chance: Random, whole: bytes) -> list[bytes]:
    """The pieces in which it is sent: one for the most part, or a few, or all octets of a short one."""
    kind = chance.random()
    if kind < 0.5:
        return [whole]
    if kind > 0.99 and len(whole) < 400:
        return [whole[at : at + 1] for at in range(len(whole))]
    cuts = sorted({0, len(whole), *(chance.randrange(len(whole) + 1) for _ in range(chance.choice((1, 1, 2, 4))))})
    return [whole[at:to] for at, to in pairwise(cuts)]
