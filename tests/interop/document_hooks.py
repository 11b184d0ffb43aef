"""Hooks of schemathesis for the requests that it makes from the document of the operators' API.

It loads this module by name. `RIGHT_TOKEN` in the environment is the value of `Authorization` that it was given.
"""

import os
from itertools import count
from typing import Any

import requests.sessions
import schemathesis
from requests.adapters import HTTPAdapter

_RIGHT = os.environ["RIGHT_TOKEN"]
_numbers = count()


class _FromAddress(HTTPAdapter):
    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, source_address=(self._address, 0), **options)


class _WrongTokensFromElsewhere(HTTPAdapter):
    """Sends each wrong token from an address of its own: after ten of them an address is refused with right ones."""

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        token = request.headers.get("Authorization", _RIGHT)
        if (token.decode("latin-1") if isinstance(token, bytes) else token) == _RIGHT:
            return super().send(request, *args, **options)
        request.headers["Connection"] = "close"
        high, low = divmod(next(_numbers), 250)
        return _FromAddress(f"127.1.{high}.{low + 2}").send(request, *args, **options)


requests.sessions.HTTPAdapter = _WrongTokensFromElsewhere  # type: ignore[misc]


@schemathesis.hook
def before_call(_context: Any, case: schemathesis.Case, _kwargs: dict[str, Any]) -> None:
    """Make a query valid that should be, and have no drain begin.

    What a query takes beside schemas of single parameters is in no document: a made-up cursor is of no list, and `sort`
    needs a status. A drain takes no query and would end the gateway.
    """
    if case.path.endswith("/drain"):
        case.query = {"made": "up"}
    is_valid = case.meta is not None and case.meta.generation.mode is schemathesis.GenerationMode.POSITIVE
    if is_valid and isinstance(case.query, dict):
        case.query.pop("cursor", None)
        if "sort" in case.query:
            case.query["status"] = ["working"]
