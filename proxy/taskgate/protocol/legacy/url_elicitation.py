"""Requests that a server refuses until somebody has been to a URL (-32042), for hosts of an era without that error.

Such a host is asked instead, and the request sent again (10.3). Pure; holds nothing.
"""

import json
import re
from typing import Any, Final

from taskgate.domain.versions import Era, Peer, era_of
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import members
from taskgate.protocol import vocabulary as words
from taskgate.protocol.legacy import capabilities
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.server_messages import Answer, Question


def request_contexts(response: Response, host: Peer | None) -> tuple[Question, ...]:
    """A question for each URL that the server names; none where the response is for the host as it is.

    That is so for any other response, a host that knows the error or cannot be asked that, and where anything that the
    server names is no elicitation by URL.
    """
    if response.error is None or response.error_code != words.URL_ELICITATION_REQUIRED:
        return ()
    if host is None or era_of(host.revision) is not Era.MODERN:
        return ()
    said = response.text[response.error.start : response.error.end]
    if len(said) > MOST_SAID:
        return ()
    # Read anew: a long text in what was read before may have been cut.
    told = json.loads(said).get("data")
    named = told.get("elicitations") if isinstance(told, dict) else None
    if not isinstance(named, list) or not all(_is_visit(each) for each in named):
        return ()
    params = [dump({name: each[name] for name in _MEMBERS}) for each in named]
    if any(capabilities.refusal(host, words.ELICITATION_CREATE, members(text)) is not None for text in params):
        return ()
    return tuple(Question(words.ELICITATION_CREATE, Params(text)) for text in params)


def agrees(answer: Answer) -> bool:
    """Whether somebody went to the URL, or is about to."""
    found = members(answer).get("result")
    return found is not None and isinstance(found.value, dict) and found.value.get("action") == "accept"


def _is_visit(each: Any) -> bool:
    if not isinstance(each, dict) or each.get("mode") != "url":
        return False
    return all(isinstance(each.get(name), str) and _LONE_SURROGATE.search(each[name]) is None for name in _MEMBERS)


# What no encoding could write.
MOST_SAID: Final = 64 * 1024
"""Characters of an error that is read for pages to visit."""
_LONE_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")
_MEMBERS: Final = ("mode", "elicitationId", "url", "message")
