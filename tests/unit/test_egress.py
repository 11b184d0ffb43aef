"""Which proxy leads where, as the environment or the configuration says."""

import pytest

from taskgate.config.sections.egress import EgressSection
from taskgate.egress import DIRECT, Egress, from_environment, read_exceptions, read_proxy

PROXY = read_proxy("http://proxy.corp:3128")


def way(url: str, no_proxy: str = "") -> str | None:
    """The proxy that leads to a URL."""
    found = Egress(PROXY, PROXY, read_exceptions(no_proxy)).proxy_for(url)
    return None if found is None else str(found)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:3000/mcp",
        "https://LOCALHOST./mcp",
        "http://api.localhost/mcp",
        "http://127.0.0.1/mcp",
        "http://127.8.8.8/mcp",
        "http://[::1]:3000/mcp",
        "http://[::ffff:127.0.0.1]/mcp",
    ],
)
def test_loopback_is_direct(url: str) -> None:
    assert way(url) is None


@pytest.mark.parametrize(
    ("no_proxy", "direct", "by_proxy"),
    [
        ("corp.example", "http://corp.example/", "http://xcorp.example/"),
        ("corp.example", "http://a.b.corp.example/", "http://corp.example.net/"),
        (".corp.example", "http://a.corp.example/", "http://b.example/"),
        ("*.corp.example", "https://A.Corp.Example/", "https://b.example/"),
        ("corp.example", "http://corp.example./", "http://example/"),
        ("corp.example:8443", "https://corp.example:8443/", "https://corp.example/"),
        ("corp.example:443", "https://corp.example/", "http://corp.example/"),
        ("a.example, b.example", "http://b.example/", "http://c.example/"),
        ("a.example  b.example", "http://b.example/", "http://c.example/"),
        ("10.1.2.3", "http://10.1.2.3/", "http://10.1.2.4/"),
        ("10.0.0.0/8", "http://10.1.2.4:99/", "http://11.0.0.1/"),
        ("10.0.0.1/8", "http://10.1.2.4/", "http://11.0.0.1/"),
        ("10.0.0.0/8", "http://[::ffff:10.1.2.4]/", "http://ten.example/"),
        ("fd00::/8", "http://[fd00::1]/", "http://[fe00::1]/"),
        ("[fd00::1]", "http://[fd00::1]/", "http://[fd00::2]/"),
        ("[fd00::1]:80", "http://[fd00::1]/", "http://[fd00::1]:81/"),
        ("10.1.2.3:80", "http://10.1.2.3/", "https://10.1.2.3/"),
    ],
)
def test_no_proxy_names_what_is_reached_directly(no_proxy: str, direct: str, by_proxy: str) -> None:
    assert (way(direct, no_proxy), way(by_proxy, no_proxy)) == (None, "http://proxy.corp:3128")


def test_a_star_makes_all_ways_direct() -> None:
    assert way("https://example.com/", "a.example,*") is None


@pytest.mark.parametrize("no_proxy", ["", " , ,", ",,", "10.0.0.0/99", "-", ":80", "a/b"])
def test_an_odd_list_excepts_nothing_else(no_proxy: str) -> None:
    assert way("http://example.com/", no_proxy) == "http://proxy.corp:3128"


def test_each_scheme_has_its_variable_and_lower_case_counts_first() -> None:
    found = from_environment(
        {
            "HTTP_PROXY": "http://upper:1",
            "http_proxy": "lower:2",
            "HTTPS_PROXY": "http://secure",
            "NO_PROXY": "a.example",
            "no_proxy": "b.example",
        }
    )
    assert str(found.proxy_for("http://a.example/")) == "http://lower:2"
    assert str(found.proxy_for("https://a.example/")) == "http://secure:80"
    assert found.proxy_for("https://b.example/") is None
    assert found.lines() == ["http://lower:2 for http", "http://secure:80 for https"]


def test_an_empty_variable_names_none() -> None:
    assert from_environment({"HTTP_PROXY": "", "https_proxy": " ", "ALL_PROXY": "http://x"}) == DIRECT
    only = from_environment({"HTTPS_PROXY": "http://p:1"})
    assert only.proxy_for("http://example.com/") is None


def test_user_and_password_go_to_the_proxy_and_nowhere_else() -> None:
    proxy = read_proxy("http://us%40er:p%3Ass@[fd00::1]:8080/")
    assert proxy.authorization == "Basic dXNAZXI6cDpzcw=="
    assert proxy.url == "http://us%40er:p%3Ass@[fd00::1]:8080"
    assert str(proxy) == "http://********@[fd00::1]:8080"
    shown = [repr(proxy), repr(Egress(proxy, proxy)), *Egress(proxy, proxy).lines()]
    assert not [text for text in shown if "p%3Ass" in text or "dXN" in text]


@pytest.mark.parametrize(
    "url",
    ["https://p:1", "socks5://p:1", "http://", "http://p:x", "http://p/path", "http://p?q", "http://p:1\r\nX: y", ""],
)
def test_what_is_no_http_proxy_is_refused_by_its_variable(url: str) -> None:
    if url:
        with pytest.raises(ValueError, match=r"^HTTPS_PROXY must be http://HOST:PORT"):
            from_environment({"HTTPS_PROXY": url})
    with pytest.raises(ValueError, match=r"must be http://HOST:PORT"):
        read_proxy(url)


def test_the_configuration_takes_the_place_of_the_environment() -> None:
    environment = from_environment({"HTTP_PROXY": "http://outer:1", "NO_PROXY": "a.example"})
    assert EgressSection().to_egress(environment) is environment
    assert EgressSection(proxy="none").to_egress(environment) == DIRECT
    own = EgressSection(proxy="http://own:3128", no_proxy=("b.example",)).to_egress(environment)
    assert str(own.proxy_for("http://a.example/")) == "http://own:3128"
    assert str(own.proxy_for("https://a.example/")) == "http://own:3128"
    assert own.proxy_for("https://b.example/") is None
    assert own.lines() == ["http://own:3128 for http and https"]


@pytest.mark.parametrize("entry", ["", " ", "a b", "a,b", ",", " a", "a\n"])
def test_an_exception_of_the_configuration_is_one_entry(entry: str) -> None:
    with pytest.raises(ValueError, match="must be a name, an address, a network or"):
        EgressSection(proxy="http://own:3128", no_proxy=(entry,))


@pytest.mark.parametrize(
    "entry",
    [
        *("https://a.example", "a.example/path", "//a.example", "a.example?q", "user@a.example", "a.example:x"),
        *("a.example:0", "a.example:65536", "10.0.0.1:0", "[fd00::1]:99999", "*:0", ":80", "10.0.0.0/33", "[fd00::]/8"),
        *(".", "*.", "*.*.example", "a*.example", "-", "10.0.0.256", "10.1", "ä.example", "[a.example]"),
    ],
)
def test_an_exception_that_no_url_can_have_is_refused_in_a_file_and_ignored_in_a_variable(entry: str) -> None:
    with pytest.raises(ValueError, match="must be a name, an address, a network or"):
        EgressSection(proxy="http://own:3128", no_proxy=(entry,))
    assert from_environment({"HTTP_PROXY": "http://p:1", "NO_PROXY": entry}).proxy_for("http://a.example/") is not None


@pytest.mark.parametrize(
    "entry",
    [
        *("*", "*:80", "a.example", ".a.example", "*.a.example", "A.Example.", "a_b.example:65535", "localhost"),
        *("10.0.0.1", "10.0.0.1:80", "10.0.0.0/8", "10.0.0.1/8", "fd00::1", "fd00::/8", "[fd00::1]", "[fd00::1]:80"),
    ],
)
def test_an_exception_that_a_url_can_have_is_accepted(entry: str) -> None:
    assert EgressSection(proxy="http://own:3128", no_proxy=(entry,)).no_proxy == (entry,)
