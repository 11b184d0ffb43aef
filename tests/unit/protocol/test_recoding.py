"""An error takes another code, and keeps what it says."""

import pytest

from requirements import covers
from taskgate.protocol.recoding import as_internal, no_result, recoded
from unit.protocol.modern.judge import check, read

ERRORS: dict[str, tuple[str, str]] = {
    "no data": ('{"code":-32021,"message":"m"}', '{"data":{"upstreamCode":-32021},"code":-32603,"message":"m"}'),
    "an object": ('{"code":-32050,"data":{ "a":1e999}}', '{"code":-32603,"data":{"upstreamCode":-32050, "a":1e999}}'),
    "an object of nothing": ('{"code":-32050,"data":{}}', '{"code":-32603,"data":{"upstreamCode":-32050}}'),
    "an object that repeats a key": (
        '{"code":-32050,"data":{"a":1,"a":2}}',
        '{"code":-32603,"data":{"upstreamCode":-32050,"a":1,"a":2}}',
    ),
    "no object": (
        '{"code":-32022,"data":[1.50]}',
        '{"code":-32603,"data":{"upstreamCode":-32022,"upstreamData":[1.50]}}',
    ),
    "null": ('{"code":-32022,"data":null}', '{"code":-32603,"data":{"upstreamCode":-32022,"upstreamData":null}}'),
    "a code of a server behind": (
        '{"code":-32099,"data":{"upstreamCode":1}}',
        '{"code":-32603,"data":{"upstreamCode":1}}',
    ),
}


@covers("B-CONV-8")
@pytest.mark.parametrize(("error", "told"), ERRORS.values(), ids=ERRORS)
def test_an_internal_error_tells_the_servers_own_code(error: str, told: str) -> None:
    assert as_internal(error) == told


@pytest.mark.parametrize("code", [-32602, -32002])
def test_another_code_is_all_that_changes(code: int) -> None:
    error = '{ "data":{"uri":"\\u0061"}, "code" : 7 ,"message":"" }'
    assert recoded(error, code) == error.replace(" 7 ", f" {code} ")


@pytest.mark.parametrize("id_", ["h", 7])
def test_what_is_no_result_is_the_servers_fault(id_: str | int) -> None:
    found = read(no_result(id_))
    assert (found["id"], found["error"]["code"]) == (id_, -32603)
    assert found["error"]["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}
    check(found, "JSONRPCErrorResponse")
