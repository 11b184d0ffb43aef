"""A drain that an operator asks for through the API."""

from taskgate.operators.access import Operator, Role
from taskgate.operators.control import ControlRoutes, DrainStarted
from taskgate.operators.routes import ApiCall


async def test_a_drain_asks_the_gateway_to_end() -> None:
    ends: list[None] = []

    async def reload() -> None:
        return None

    routes = ControlRoutes(effective=str, reload=reload, end=lambda: ends.append(None)).routes()
    [drain] = [route for route in routes if route.path == "/drain"]
    call = ApiCall(operator=Operator("ops", Role.OPERATOR), parameters={}, query=None, body=None)
    assert (await drain.handler(call), ends) == (DrainStarted(), [None])
    assert (drain.status, drain.role) == (202, Role.OPERATOR)
