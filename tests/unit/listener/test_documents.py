"""Documents for everybody: what their paths answer to which method."""

from collections.abc import Callable

import pytest
from aiohttp.hdrs import CONTENT_TYPE

from helpers.host.raw import get
from taskgate.listener.answers import public_document
from taskgate.listener.door import RequestRejected
from unit.listener.gate import opened

PATH = "/.well-known/x"
DOCUMENT = b'{"a":1}'


class Reloading:
    """An audit log that has room after a wait, during which the configuration is reloaded."""

    is_full = True

    def __init__(self) -> None:
        self.reload: Callable[[], None] = lambda: None

    async def room(self) -> bool:
        self.reload()
        return True


@pytest.mark.parametrize(
    ("path", "is_one"),
    [(PATH, True), ("/.well-known/X", False), ("/.well-known/x/", False), ("/.well-known/%78", False), ("/", False)],
)
async def test_a_path_is_compared_byte_by_byte(path: str, is_one: bool) -> None:
    async with opened(documents={PATH: DOCUMENT}) as gate, gate.host() as host:
        answered = await host.ask(get(path))
    assert (answered.status == 200) is is_one
    assert (answered.body == DOCUMENT) is is_one


async def test_documents_stay_what_they_were_when_they_were_given() -> None:
    given = {PATH: b"1"}
    async with opened(documents=given) as gate, gate.host() as host:
        given[PATH + "/more"] = b"2"
        assert (await host.ask(get(PATH + "/more"))).status == 404
        gate.listener.show(given)
        assert (await host.ask(get(PATH + "/more"))).body == b"2"


async def test_a_document_that_is_removed_while_its_request_waits_for_audit_room_is_not_found() -> None:
    audit_capacity = Reloading()
    async with opened(documents={PATH: DOCUMENT}, audit_capacity=audit_capacity) as gate, gate.host() as host:
        audit_capacity.reload = lambda: gate.listener.show({})
        answered = await host.ask(get(PATH))
        unknown = await host.ask(get("/unknown"))
    assert (answered.status, answered.body) == (unknown.status, unknown.body)
    assert answered.status == 404


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_document_is_json_that_may_be_kept_and_read_by_every_page(method: str) -> None:
    response = public_document(method, DOCUMENT)
    assert (response.status, response.body) == (200, b'{"a":1}')
    assert response.fields[CONTENT_TYPE] == "application/json"
    assert response.fields["Cache-Control"] == "public, max-age=300"
    assert response.fields["Access-Control-Allow-Origin"] == "*"


def test_a_browser_that_asks_first_may_ask() -> None:
    response = public_document("OPTIONS", DOCUMENT)
    assert (response.status, response.body) == (204, b"")
    assert {name: text for name, text in response.fields.items() if name.startswith("Access-")} == {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
        "Access-Control-Allow-Headers": "*",
        "Access-Control-Max-Age": "86400",
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "get", "TRACE"])
def test_any_other_method_is_told_which_ones_there_are(method: str) -> None:
    with pytest.raises(RequestRejected) as refused:
        public_document(method, DOCUMENT)
    assert (refused.value.refusal.status, refused.value.refusal.allow) == (405, "GET, HEAD, OPTIONS")
    assert refused.value.refusal.reason is None


def test_an_answer_is_nobody_elses() -> None:
    public_document("GET", DOCUMENT).fields["X-Of-One"] = "1"
    public_document("OPTIONS", DOCUMENT).fields["X-Of-One"] = "1"
    assert "X-Of-One" not in public_document("GET", DOCUMENT).fields
    assert "X-Of-One" not in public_document("OPTIONS", DOCUMENT).fields


async def test_a_document_is_the_last_answer_of_a_connection_that_is_to_find_another_replica() -> None:
    async with opened(documents={PATH: DOCUMENT}) as gate, gate.host() as host:
        assert "connection" not in (await host.ask(get(PATH))).headers
        gate.listener.retire()
        answered = await host.ask(get(PATH))
    assert (answered.status, answered.body, answered.headers.get("connection")) == (200, DOCUMENT, "close")


@pytest.mark.parametrize("leave", ["retire", "wind_down"])
async def test_a_document_that_is_asked_for_at_the_end_is_the_last_answer(leave: str) -> None:
    async with opened(documents={PATH: DOCUMENT}) as gate, gate.host() as host:
        await host.send(get(PATH)[:-2])
        getattr(gate.listener, leave)()
        assert (await host.ask("\r\n")).headers["connection"] == "close"
        assert await host.at_end()
