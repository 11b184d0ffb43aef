"""The routes about the gateway itself: configuration in force, reload, drain.

`ControlRoutes` has their handlers.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from taskgate.operators.access import ApiError, Role
from taskgate.operators.routes import Answer, ApiCall, Route

Reload = Callable[[], Awaitable[Mapping[str, Any] | None]]
"""Reads the configuration again, applies it, and returns the outcome: `result`, and details.

Returns None if the gateway has no configuration file."""

End = Callable[[], None]
"""Requests the shutdown of the gateway, like a signal: drain, then close. Returns at once."""

_INVALID: Final = "invalid"
_NOT_NOW: Final = "not_now"


class ConfigInForce(Answer):
    """The configuration in force."""

    yaml: Annotated[str, Field(description="Every key, as in a file; secrets are `********`.")]


class ReloadOutcome(Answer):
    """The outcome of a reload that was applied."""

    result: Literal["success", "unchanged", "needs_restart"]
    needs_restart: Annotated[tuple[str, ...], Field(description="The changed keys that take effect at a restart.")]


class DrainStarted(Answer):
    """The gateway drains, and then ends."""

    status: Literal["draining"] = "draining"


class ControlRoutes:
    """The handlers. Without `end` the gateway cannot be drained."""

    def __init__(self, *, effective: Callable[[], str], reload: Reload, end: End | None) -> None:
        self._effective = effective
        self._reload_ = reload
        self._end = end

    def routes(self) -> Iterator[Route]:
        """The routes of the gateway."""
        yield Route(
            method="GET",
            path="/config",
            summary="Show the configuration in force",
            description="The configuration that this replica applies, without secrets.",
            role=Role.VIEWER,
            answer=ConfigInForce,
            handler=self._show,
        )
        yield Route(
            method="POST",
            path="/reload",
            summary="Read the configuration again",
            description="Does the same as `POST /-/reload`. An invalid configuration changes nothing.",
            role=Role.OPERATOR,
            answer=ReloadOutcome,
            handler=self._reload,
            refusals={
                409: "The gateway has no configuration file.",
                422: "The configuration is invalid.",
                503: "The gateway starts or shuts down; see `Retry-After`.",
            },
        )
        yield Route(
            method="POST",
            path="/drain",
            summary="Drain this replica",
            description="Does the same as `POST /-/drain`: the gateway drains, and then ends.",
            role=Role.OPERATOR,
            status=202,
            answer=DrainStarted,
            handler=self._drain,
            refusals={409: "The gateway was not started in a way that allows it."},
        )

    async def _show(self, _call: ApiCall) -> ConfigInForce:
        return ConfigInForce(yaml=self._effective())

    async def _reload(self, _call: ApiCall) -> ReloadOutcome:
        outcome = await self._reload_()
        if outcome is None:
            raise ApiError(409, "no_file", "cannot reload: the gateway was started without a configuration file")
        problems = "; ".join(outcome["problems"])
        if outcome["result"] == _NOT_NOW:
            raise ApiError(503, "not_now", f"cannot reload: {problems}", **{"Retry-After": "1"})
        if outcome["result"] == _INVALID:
            raise ApiError(422, "invalid_configuration", problems)
        return ReloadOutcome(result=outcome["result"], needs_restart=outcome["needs_restart"])

    async def _drain(self, _call: ApiCall) -> DrainStarted:
        if self._end is None:
            raise ApiError(409, "cannot_drain", "cannot drain here: stop the process that started the gateway")
        self._end()
        return DrainStarted()
