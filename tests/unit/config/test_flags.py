"""The flags instead of a file: what they mean, and what is wrong with them."""

from collections.abc import Callable

import pytest

from requirements import covers
from taskgate.config import BindAddress, ConfigurationError, GatewayConfig, for_command, for_upstream

Loads = Callable[..., GatewayConfig]


def test_the_flags_mean_one_upstream_at_mcp() -> None:
    config = for_upstream("http://127.0.0.1:3000/mcp", "[::1]:0", "127.0.0.1:1")
    assert {name: section.path for name, section in config.upstreams.items()} == {"default": "/mcp"}
    assert config.upstreams["default"].url == "http://127.0.0.1:3000/mcp"
    assert (config.server.listen, config.admin.listen) == (
        BindAddress(host="::1", port=0),
        BindAddress(host="127.0.0.1", port=1),
    )
    assert (config.auth.mode, config.store.backend) == ("none", "sqlite")


def test_a_flag_that_is_not_given_is_as_in_a_file(loads: Loads) -> None:
    text = "version: 1\nauth: {mode: none}\nupstreams: {default: {path: /mcp, url: 'http://a'}}\n"
    assert for_upstream("http://a", None, None) == loads(text)


def test_a_flag_holds_no_references() -> None:
    assert for_upstream("http://a/${A}$", None, None).upstreams["default"].url == "http://a/${A}$"


@covers("U-STDIO-6")
def test_a_command_means_a_program_where_the_url_would_be(loads: Loads) -> None:
    text = (
        "version: 1\nauth: {mode: none}\n"
        "upstreams: {default: {path: /mcp, transport: stdio, command: [python3, -m, 'a b', '$$C', '']}}\n"
    )
    assert for_command("python3 -m 'a b' $C \"\"", None, None) == loads(text)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("", "must begin with the name of a program"),
        ("  ", "must begin with the name of a program"),
        ("'' a", "must begin with the name of a program"),
        ("a 'b", "must have a quotation mark that ends each one that begins, and something behind each backslash"),
        ("a b\\", "must have a quotation mark that ends each one that begins, and something behind each backslash"),
        ("a \0", "must not hold the character U+0000"),
    ],
)
def test_what_is_wrong_with_a_command_is_told_by_the_name_of_its_flag(command: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        for_command(command, None, None)
    assert str(refused.value).replace("[1]", "") == f"--upstream-command: {told}"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("a", None, None), ["--upstream: must be an absolute http or https URL, in ASCII and without spaces"]),
        (("http://u:p@a", None, None), ["--upstream: must not hold a user name or password"]),
        (
            ("http://a", "0.0.0.0:80", None),
            [
                "--listen: must be a loopback address (127.0.0.1, [::1] or localhost) with auth.mode none, "
                "unless auth.allow_insecure is true"
            ],
        ),
        (
            ("", "80", ""),
            [
                "--listen: must be HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:8080",
                "--admin: must be HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:8080",
                "--upstream: must be an absolute http or https URL, in ASCII and without spaces",
            ],
        ),
        (("http://a", "127.0.0.1:1", "127.0.0.1:1"), ["--listen: must not be --admin"]),
        (
            ("http://a", "127.0.0.1:9464", None),
            ["--listen: must not be --admin, which is 127.0.0.1:9464 unless given"],
        ),
        (
            ("http://a", None, "127.0.0.1:8080"),
            ["--admin: must not be --listen, which is 127.0.0.1:8080 unless given"],
        ),
    ],
)
def test_what_is_wrong_with_flags_is_told_by_their_names(flags: tuple[str, str, str], told: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        for_upstream(*flags)
    assert sorted(str(refused.value).splitlines()) == sorted(told)
