"""Answers as an awkward server writes them, by the tool that is answered so; see `awkward_program`."""

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
