"""The public references of tasks, by which operators look them up: `ReferenceOf` and `plain_reference`.

The audit log shows a keyed digest in place of an id. A store knows no key: the function comes from
its opener. `plain_reference` is that of a gateway without an audit log. Pure.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b

from taskgate.domain.record import TaskId

ReferenceOf = Callable[[TaskId], str]
"""Returns the reference of a task: `t_` and 22 characters of base64url, a digest of the id."""


def plain_reference(id: TaskId) -> str:
    """The reference where no line shows one: a digest without a key."""
    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=18).digest()
    return "t_" + urlsafe_b64encode(digest)[:22].decode()
