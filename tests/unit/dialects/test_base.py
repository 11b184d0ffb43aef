"""Parameters on their way to a server are open at one place at most."""

from taskgate.dialects.base import Params


def test_parameters_without_a_token_leave_as_they_are() -> None:
    params = Params('{ "name" : "t" }')
    assert params.with_token(7) == '{ "name" : "t" }'


def test_our_token_stands_where_the_hosts_stood() -> None:
    params = Params('{"_meta":{"progressToken": ', " }}")
    assert params.with_token(7) == '{"_meta":{"progressToken": 7 }}'


def test_an_empty_tail_is_a_tail() -> None:
    params = Params("[", "")
    assert params.with_token(1) == "[1"
