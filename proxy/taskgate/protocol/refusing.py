"""What an answer of a host is to the question that it answers: given, or refused in the host's own words.

What must not live here: whether an answer fits its question (each era has its own rules), and what becomes of it.
"""

from taskgate.jsontext.spans import members
from taskgate.protocol.questions import Answer
from taskgate.protocol.vocabulary import ELICITATION_CREATE


def is_declined(method: str, answer: Answer) -> bool:
    """Whether the host does not give what it was asked for: an error, or an elicitation declined or cancelled.

    Of any other answer nothing is read.
    """
    if answer.startswith('{"error":'):
        return True
    if method != ELICITATION_CREATE:
        return False
    result = members(answer)["result"].value
    return isinstance(result, dict) and result.get("action") in ("decline", "cancel")
