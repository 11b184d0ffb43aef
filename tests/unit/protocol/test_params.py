"""Parameters on their way across the gateway are open at one place at most."""

import pytest

from taskgate.protocol.params import Params


@pytest.mark.parametrize("token", [7, "q"])
def test_parameters_without_a_token_leave_as_they_are(token: int | str) -> None:
    params = Params('{ "name" : "t" }')
    assert params.with_token(token) == '{ "name" : "t" }'


@pytest.mark.parametrize(("token", "told"), [(7, "7"), (0, "0"), (-1, "-1"), ("", '""'), ('é"\\', r'"é\"\\"')])
def test_our_token_stands_where_the_senders_stood(token: int | str, told: str) -> None:
    params = Params('{"_meta":{"progressToken": ', " }}")
    assert params.with_token(token) == f'{{"_meta":{{"progressToken": {told} }}}}'


def test_an_empty_tail_is_a_tail() -> None:
    params = Params("[", "")
    assert params.with_token(1) == "[1"


@pytest.mark.parametrize(("params", "size"), [(Params("{}"), 2), (Params("{é", ""), 2), (Params("{é", "}}}"), 5)])
def test_the_size_is_that_of_the_senders_text(params: Params, size: int) -> None:
    assert params.size == size
