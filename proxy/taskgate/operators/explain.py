"""The route that explains a call: `POST /explain`. `ExplainRoutes` has its handler.

The evaluation stands above this folder, so it is given as a function (`Explain`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, SecretStr, StrictBool

from taskgate.auth.claims import MAX_TOKEN
from taskgate.domain.policy import APP_ONLY
from taskgate.operators.access import ApiError, Role
from taskgate.operators.routes import Answer, ApiCall, Query, Route, Text
from taskgate.protocol.discovery import HINTS

MAX_AT_ONCE: Final = 4
"""Explanations that are made at once; more wait. Each may fetch the keys of an issuer."""


class CallToExplain(Query):
    """A call that a caller may send, with the caller's token, or with claims of it."""

    upstream: Annotated[Text, Field(description="The name of the upstream.")]
    tool: Annotated[Text, Field(description="The name of the tool.")]
    token: Annotated[
        SecretStr | None,
        Field(
            min_length=1, max_length=MAX_TOKEN, description="The token of the caller; ignored with `auth.mode: none`."
        ),
    ] = None
    claims: Annotated[
        dict[Text, Any] | None,
        Field(max_length=64, description="Claims of the caller's token, such as `sub`, in place of `token`."),
    ] = None
    hints: Annotated[
        dict[Text, StrictBool],
        Field(
            default_factory=dict,
            max_length=8,
            json_schema_extra={"propertyNames": {"enum": [*HINTS, APP_ONLY]}},
            description="Hints that the server lists for the tool, such as `readOnlyHint`.",
        ),
    ]


Explain = Callable[[CallToExplain], Awaitable[Mapping[str, Any]]]
"""Returns what `taskgate explain --json` prints, for the configuration in force.

Raises ApiError for an unknown upstream or hint, and for a token that is refused."""


class Explanation(Answer):
    """The document that `taskgate explain --json` prints."""

    model_config = ConfigDict(frozen=True, extra="allow")


class ExplainRoutes:
    """The handler. Without `explain` the request is refused."""

    def __init__(self, explain: Explain | None) -> None:
        self._explain = explain
        self._permits = asyncio.Semaphore(MAX_AT_ONCE)

    def routes(self) -> Iterator[Route]:
        """The route of explanations."""
        yield Route(
            method="POST",
            path="/explain",
            summary="Explain a call",
            description="The rules and limits of the configuration in force that apply to a call of a tool.",
            role=Role.VIEWER,
            answer=Explanation,
            handler=self._answer,
            body=CallToExplain,
            refusals={
                404: "There is no upstream of that name.",
                409: "The gateway was not started in a way that allows it.",
                422: "The token or the claims are refused, or the issuer has no keys.",
            },
        )

    async def _answer(self, call: ApiCall) -> Explanation:
        if self._explain is None:
            raise ApiError(409, "cannot_explain", "cannot explain here: use taskgate explain with the configuration")
        async with self._permits:
            return Explanation.model_validate(await self._explain(call.body))
