"""What is mounted where: the path that hosts know, and the server behind it."""

from dataclasses import dataclass

from taskgate.dialects.base import SupportOf
from taskgate.upstream.base import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One server at one path of the public listener.

    `name` is the operator's and a metric label. `support` is what hosts are told of its tools. `resource` is what
    tokens for it are made for, `scopes` what they should have, and `metadata` the address of the document that says
    where to get one, if there is one.
    """

    name: str
    path: str
    upstream: Upstream
    offers_tasks: bool
    support: SupportOf
    resource: str
    metadata: str | None = None
    scopes: tuple[str, ...] = ()
