"""The threats that `docs/security.md` answers, a few words each: the part of `requirements` that is about attacks.

A test that shows how one is withstood says so with `@covers("T46")`, and is named in its row of the page;
`tests/house/test_security_page.py` compares both ways.
"""

from typing import Final

THREATS: Final = {
    "T41": "requests that wait for results without bound",
    "T45": "memory over many identities, and debts that are forgotten for them",
    "T46": "one caller at its limits slows down another",
    "T49": "a hint of a server that a call may be made twice",
}
