"""The part of a configuration that metrics need: `MetricsConfig`, with `MetricsSettings`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The configuration section `metrics`.

    - `tool_label`: counters have a label for tools; `tool_histograms`: histograms as well
    - `max_tools`: the number of tools of each upstream that get a label of their own
    - `tenants`: the tenants that get a label of their own; None for no label at all
    - `buckets`: upper bounds by family, instead of those of the catalogue
    - `shares_store`: other gateways can use the same store, which has more operations then
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
    def counter_tools(self) -> int:
        """The number of tools of one upstream that a counter may name."""
        return self.max_tools if self.tool_label else 0

    @property
    def histogram_tools(self) -> int:
        """The number of tools of one upstream that a histogram may name."""
        return self.max_tools if self.tool_histograms else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """The names and limits of a configuration that metrics show, and the `settings`.

    - `backend`: the backend of the store
    - `upstreams`: the `upstream` label by the mount that events name
    - `issuers`, `policies`, `sinks`: of tokens, rate limits and the audit log
    - `extensions`, `methods`: identifiers and methods of extensions that the configuration names
    - `token_users`: the upstreams with a token exchange; `programs`: those that are stdio programs
    - `task_limit`: unfinished tasks of all upstreams; `store_limit`: bytes of the store
    - `queue_limits`: waiting calls by mount; `audit_queue`: waiting events of one sink

    A limit of None means no limit.
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
