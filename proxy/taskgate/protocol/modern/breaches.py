"""How a server of this era fails us, in one way of saying it. Pure."""

from taskgate.errors import UpstreamFailed, UpstreamReason


def broke(how: str) -> UpstreamFailed:
    """It broke the protocol, having perhaps acted."""
    return UpstreamFailed(UpstreamReason.MALFORMED, f"The server broke the protocol: {how}", dispatched=True)


def refused(text: str) -> UpstreamFailed:
    """It turned down what the gateway itself asked."""
    return UpstreamFailed(UpstreamReason.REFUSED, text, dispatched=False)
