"""The threats that `docs/security.md` answers, a few words each: the part of `requirements` that is about attacks.

A test that shows how one is withstood says so with `@covers("T46")`, and is named in a row of the page with that id;
`tests/house/test_security_page.py` compares both ways. The page says what of a threat is not built.
"""

from typing import Final

THREATS: Final = {
    # Identity
    "T1": "a token without a signature, or under an algorithm that is not its key's",
    "T2": "issuer, audience, subject or times that are partial, typed or look alike",
    "T3": "a token whose header brings keys, or changes the rules",
    "T4": "a flood of tokens with unknown key ids",
    "T5": "an issuer whose keys are slow, huge, moved or garbage",
    "T6": "a host's token reaches a server, or a server's credentials a host",
    "T7": "two callers are taken for one",
    "T8": "a token anywhere but in one Authorization header",
    "T9": "a token that ends while its holder waits",
    "T10": "what is one mount's is used at another",
    "T11": "an answer to a bad token that tells why it is bad",
    # Isolation
    "T12": "another caller's task is asked for",
    "T13": "an answer tells that something of another caller's exists",
    "T14": "a list shows tasks of others, or takes a cursor of others",
    "T15": "an id that can be guessed",
    "T16": "a session or a cookie of a server that two callers share",
    "T17": "requests of two hosts under one id",
    "T18": "a second wait takes the place of the first",
    "T19": "a session of another caller",
    "T20": "a listener for tasks of others",
    "T21": "an answer to a question that another caller was asked",
    "T22": "metadata that names another task",
    "T23": "a server that makes up ids, tokens of progress or tasks",
    "T24": "an id that means something to a store",
    "T25": "an intruder who reads or writes the store",
    # Protocol
    "T26": "a request that two readers cut in two ways",
    "T27": "headers that lie about where a request comes from",
    "T28": "a header that says something else than its body",
    "T29": "a header whose encoding is read in two ways",
    "T30": "a web page that reaches the gateway under another name",
    "T31": "a web page that has a browser ask, or reads what is answered",
    "T32": "heads, bodies and ids that are too large",
    "T33": "bodies that unpack into much more",
    "T34": "hosts that are slow, or hold connections",
    "T35": "JSON that costs much to read, or is read in two ways",
    "T36": "events that are written into a stream from inside of a message",
    "T37": "headers of a server's answer that are passed on",
    "T38": "secrets in errors and logs",
    "T39": "a URL that another party chose is fetched",
    # Resources
    "T40": "tasks without end, and a cap that is missed by those who come at once",
    "T41": "requests that wait for results without bound",
    "T42": "much is kept for long",
    "T43": "a server that answers without end",
    "T44": "series of metrics without end",
    "T45": "memory over many identities, and debts that are forgotten for them",
    "T46": "one caller at its limits slows down another",
    "T47": "polls that come too often",
    # Integrity and operations
    "T48": "a call that is made twice",
    "T49": "a hint of a server that a call may be made twice",
    "T50": "an answer that comes too late",
    "T51": "notifications that a host makes up",
    "T52": "gaps and forgeries in the audit log",
    "T53": "metrics and operators' endpoints in the open",
    "T54": "a configuration or a store that cannot be safe",
    "T55": "no authentication",
    "T56": "dependencies with known holes",
    "T57": "what is refused stays in memory",
    # Hosts without tasks
    "T70": "calls of two hosts of one caller are taken for one",
    "T71": "words of a server that pass for the gateway's, and handles in the audit log",
    "T72": "a server takes the place of the gateway's own tools, and the handles of others' calls",
}
