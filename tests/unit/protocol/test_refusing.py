"""What an answer is to its question: given, or refused in the host's own words."""

import pytest

from taskgate.protocol.refusing import is_declined
from taskgate.protocol.vocabulary import ELICITATION_CREATE, ROOTS_LIST, SAMPLING_CREATE


@pytest.mark.parametrize("method", [ELICITATION_CREATE, SAMPLING_CREATE, ROOTS_LIST])
def test_an_error_is_a_refusal_whatever_was_asked(method: str) -> None:
    assert is_declined(method, '{"error":{"code":-1,"message":"User rejected the request"}}')


@pytest.mark.parametrize(("action", "declined"), [("accept", False), ("decline", True), ("cancel", True), (7, False)])
def test_an_elicitation_is_refused_by_its_action(action: object, declined: bool) -> None:
    written = f'"{action}"' if isinstance(action, str) else action
    assert is_declined(ELICITATION_CREATE, f'{{"result":{{ "action" : {written}}}}}') is declined


@pytest.mark.parametrize("answer", ['{"result":{}}', '{"result":[]}', '{"result":{"content":{"action":"decline"}}}'])
def test_an_elicitation_without_an_action_is_no_refusal(answer: str) -> None:
    assert not is_declined(ELICITATION_CREATE, answer)


@pytest.mark.parametrize("method", [SAMPLING_CREATE, ROOTS_LIST])
def test_of_other_answers_nothing_is_read(method: str) -> None:
    assert not is_declined(method, '{"result":{"action":"decline"}}')
