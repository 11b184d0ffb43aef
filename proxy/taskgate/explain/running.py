"""Explanations of a running gateway: `explain_call` answers `POST /api/v1/explain`.

`cli` gives it to the service.
"""

import asyncio
from typing import Any

from taskgate.config import GatewayConfig
from taskgate.explain.evaluate import explanation
from taskgate.explain.inputs import HINTS, TokenRefused, identify
from taskgate.operators.access import ApiError
from taskgate.operators.explain import CallToExplain


async def explain_call(config: GatewayConfig, port: int, call: CallToExplain) -> dict[str, Any]:
    """Return what `taskgate explain --json` prints for a call. `port` is the public listener's.

    Raises ApiError: 404 for an unknown upstream, 400 for an unknown hint, 422 for a token or claims that are refused.
    """
    if call.upstream not in config.upstreams:
        raise ApiError(404, "upstream_not_found", "there is no upstream of that name")
    if not call.hints.keys() <= set(HINTS):
        raise ApiError(400, "invalid_body", f"hints: each must be one of {', '.join(HINTS)}")
    if call.token is not None and call.claims is not None:
        raise ApiError(400, "invalid_body", "claims: must not be given with token")
    token = None if call.token is None else call.token.get_secret_value().strip()
    try:
        identity = await identify(config, call.upstream, token, call.claims, port=port)
    except TokenRefused as refused:
        raise ApiError(422, "token_refused", str(refused)) from None
    # All rules of the file are compiled, which takes time that other requests need.
    return await asyncio.to_thread(explanation, config, call.upstream, call.tool, identity=identity, hints=call.hints)
