"""What is mounted where: the path that hosts know, and the server behind it."""

from dataclasses import dataclass

from taskgate.dialects.base import SupportOf
from taskgate.upstream.base import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One server at one path of the public listener; `name` is the operator's and a metric label;
    `support` is what hosts are told of its tools."""

    name: str
    path: str
    upstream: Upstream
    offers_tasks: bool
    support: SupportOf
