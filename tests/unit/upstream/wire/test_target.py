"""The head of a request, to the byte."""

import pytest
from yarl import URL

from taskgate.upstream.base import Outgoing
from taskgate.upstream.wire.connection import Target


def head_of(url: str, outgoing: Outgoing) -> list[str]:
    """The lines of a head, without the empty one that ends it."""
    text = Target(URL(url)).head(outgoing).decode()
    assert text.endswith("\r\n\r\n")
    return text.removesuffix("\r\n\r\n").split("\r\n")


def test_a_head_says_no_more_than_it_must() -> None:
    outgoing = Outgoing(verb="POST", headers={"Accept": "a/b", "X-One": "1\t2"}, body=b"{}")
    assert head_of("http://tools.example:8080/a%20b?c=d%26e", outgoing) == [
        "POST /a%20b?c=d%26e HTTP/1.1",
        "Host: tools.example:8080",
        "Accept-Encoding: identity",
        "User-Agent: taskgate",
        "Accept: a/b",
        "X-One: 1\t2",
        "Content-Length: 2",
    ]


HOSTS = {
    "http://tools.example": "tools.example",
    "http://tools.example:80/mcp": "tools.example",
    "https://tools.example:443/mcp": "tools.example",
    "https://tools.example:80/mcp": "tools.example:80",
    "http://[::1]/mcp": "[::1]",
    "http://[::1]:81/mcp": "[::1]:81",
    "http://me:secret@tools.example/mcp": "tools.example",
}


@pytest.mark.parametrize(("url", "host"), HOSTS.items())
def test_the_host_is_named_as_servers_expect_it(url: str, host: str) -> None:
    lines = head_of(url, Outgoing(verb="GET", headers={}))
    assert lines[0] == ("GET /mcp HTTP/1.1" if "mcp" in url else "GET / HTTP/1.1")
    assert lines[1] == f"Host: {host}"
    assert "secret" not in str(lines)


@pytest.mark.parametrize(("verb", "length"), [("GET", []), ("DELETE", ["Content-Length: 0"])])
def test_a_request_without_a_body_says_so_where_one_is_usual(verb: str, length: list[str]) -> None:
    lines = head_of("http://tools.example/mcp", Outgoing(verb=verb, headers={}))
    assert [line for line in lines if line.startswith("Content-Length")] == length


def test_a_value_beyond_ascii_is_sent_as_utf_8() -> None:
    head = Target(URL("http://tools.example/")).head(Outgoing(verb="GET", headers={"X-Name": "Zoë\u2028\udc00"}))
    assert "X-Name: Zoë\u2028\r\n".encode() in head


@pytest.mark.parametrize("character", ["\r\n", "\n", "\r", "\0", "\x1b", "\x7f"])
@pytest.mark.parametrize("place", ["verb", "name", "value"])
def test_what_could_make_another_request_of_a_head_is_refused(place: str, character: str) -> None:
    name, value = ("X" + character, "v") if place == "name" else ("X", character + "v")
    headers = {} if place == "verb" else {name: value}
    verb = "GET" + character if place == "verb" else "GET"
    with pytest.raises(ValueError):
        Target(URL("http://tools.example/mcp")).head(Outgoing(verb=verb, headers=headers))


@pytest.mark.parametrize("url", ["/mcp", "", "mailto:me"])
def test_an_address_without_a_host_is_no_target(url: str) -> None:
    with pytest.raises(ValueError):
        Target(URL(url))


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/a\0"])
def test_a_path_that_is_more_than_a_path_is_no_target(path: str) -> None:
    with pytest.raises(ValueError):
        Target(URL(f"http://tools.example{path}", encoded=True))
