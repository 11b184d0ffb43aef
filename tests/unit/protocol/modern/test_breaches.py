"""How a server of the modern era fails the gateway."""

from taskgate.protocol.modern.breaches import broke, refused


def test_who_broke_the_protocol_may_have_acted() -> None:
    failure = broke("it sang")
    assert (failure.reason, failure.dispatched, str(failure)) == (
        "malformed", True, "The server broke the protocol: it sang",
    )  # fmt: skip


def test_who_refused_did_not_act() -> None:
    failure = refused("No")
    assert (failure.reason, failure.dispatched, str(failure)) == ("refused", False, "No")
