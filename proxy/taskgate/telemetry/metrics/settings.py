"""What metrics are told of the configuration: the operator's names, the limits that are shown, and how much is counted.

Values only. What must not live here: what becomes of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """What is counted and shown, and where.

    `tool_label` tells whether counters have the names of tools, `tool_histograms` whether times have them too; each
    upstream has at most `max_tools` of them. `tenants` are those with a label of their own, None where none has one.
    `buckets` has other bounds than the catalogue's, by the name of the family. `shares_store` is whether gateways may
    share the store, which is used for more then.
    """

    enabled: bool = True
    path: str = "/metrics"
    tool_label: bool = True
    tool_histograms: bool = False
    max_tools: int = 50
    tenants: frozenset[str] | None = None
    exemplars: bool = True
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    shares_store: bool = False

    @property
    def named_tools(self) -> int:
        """How many tools of one upstream a counter may name."""
        return self.max_tools if self.tool_label else 0

    @property
    def timed_tools(self) -> int:
        """How many tools of one upstream a histogram may name."""
        return self.max_tools if self.tool_histograms else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The names that a configuration gives, and its limits.

    `upstreams` maps the mounts that events name to the labels of their upstreams; issuers, rate policies and sinks of
    the audit log are their own labels, and so are `extensions`, the identifiers that are named, and `methods`, those
    that extensions are named to have; `backend` is the store's. At `token_users` tokens are asked for, to show to their
    upstreams; those of `programs` are programs of ours. `task_limit` is how many unfinished tasks there may be in all,
    `queue_limits` how many calls may wait at each mount, `store_limit` how many bytes the store may have, and
    `audit_queue` how many lines may wait for a sink; None is no limit.
    """

    backend: str
    upstreams: Mapping[str, str] = field(default_factory=dict)
    issuers: Collection[str] = ()
    policies: Collection[str] = ()
    sinks: Collection[str] = ()
    extensions: Collection[str] = ()
    methods: Collection[str] = ()
    token_users: Collection[str] = ()
    programs: Collection[str] = ()
    task_limit: int | None = None
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    store_limit: int | None = None
    audit_queue: int | None = None
    settings: MetricsSettings = MetricsSettings()
