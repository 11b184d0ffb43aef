"""The whole configuration: `GatewayConfig`, its defaults, and the conflicts between its sections.

A GatewayConfig is frozen and valid in itself: files, programs and servers that it names are checked
where a gateway starts. `model_dump(mode="json")` writes it in the notations of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from taskgate.config.fields import Name, Section
from taskgate.config.raw import Conflict, list_at, mapping_at
from taskgate.config.sections.audit import AuditSection, audit_conflicts, with_sink_defaults
from taskgate.config.sections.auth import AuthorizationSection, AuthSection, auth_conflicts
from taskgate.config.sections.credentials import credential_conflicts
from taskgate.config.sections.extensions import extension_conflicts
from taskgate.config.sections.limits import LimitsSection, limit_conflicts
from taskgate.config.sections.logging import LoggingSection
from taskgate.config.sections.metrics import MetricsSection, metrics_conflicts
from taskgate.config.sections.protection import RetriesSection, protection_conflicts
from taskgate.config.sections.server import AdminSection, ServerSection, server_conflicts
from taskgate.config.sections.store import StoreSection, store_conflicts
from taskgate.config.sections.tasks import TasksSection, default_ttl_max, task_conflicts, with_ttl_max
from taskgate.config.sections.tracing import TracingSection, tracing_conflicts
from taskgate.config.sections.upstreams import UpstreamSection, upstream_conflicts, with_check_defaults

CONFLICT: Final = "conflict"
"""The type of pydantic's errors for conflicts."""


def _check_version(written: object) -> object:
    if written is True or not isinstance(written, int) or written != 1:
        raise ValueError("must be 1")
    return written


class GatewayConfig(Section):
    """Configuration of taskgate."""

    version: Annotated[Literal[1], BeforeValidator(_check_version)]
    """Version of this vocabulary."""
    server: ServerSection = ServerSection()
    admin: AdminSection = AdminSection()
    upstreams: Annotated[Mapping[Name, UpstreamSection], Field(min_length=1)]
    """The MCP servers behind the gateway by name; the names appear in metrics and logs."""
    tasks: TasksSection = TasksSection()
    auth: AuthSection
    authorization: AuthorizationSection = AuthorizationSection()
    limits: LimitsSection = LimitsSection()
    store: StoreSection = StoreSection()
    audit: AuditSection = AuditSection()
    metrics: MetricsSection = MetricsSection()
    tracing: TracingSection = TracingSection()
    logging: LoggingSection = LoggingSection()

    @property
    def longest_ttl(self) -> timedelta:
        """Return `tasks.ttl.max`, or its default."""
        return self.tasks.ttl.max or default_ttl_max(self.auth.mode)

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, raw: object) -> object:
        return with_sink_defaults(with_check_defaults(with_ttl_max(raw)))

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        found = [
            InitErrorDetails(
                type=PydanticCustomError(CONFLICT, "{message}", {"message": message}), loc=location, input=None
            )
            for location, message in conflicts(self.model_dump(mode="json"), defaults={})
        ]
        if found:
            raise ValidationError.from_exception_data(type(self).__name__, found)
        return self


DEFAULTS: Final[Mapping[str, Any]] = {
    "server": ServerSection().model_dump(mode="json"),
    "admin": AdminSection().model_dump(mode="json"),
    "tasks": TasksSection().model_dump(mode="json"),
    "limits": LimitsSection().model_dump(mode="json"),
    "store": StoreSection().model_dump(mode="json"),
    "upstream": {"retries": RetriesSection().model_dump(mode="json")},
}
"""The defaults that `conflicts` needs, in the notations of the file; `upstream` is for each one."""


def conflicts(raw: object, defaults: object) -> list[Conflict]:
    """Return every conflict between keys of the file, [] if there is none.

    `raw` is the file as plain values, valid or not. An absent key has the value in `defaults`.
    """
    return [
        *server_conflicts(raw, defaults),
        *_unknown_upstreams(raw),
        *auth_conflicts(raw),
        *upstream_conflicts(raw),
        *credential_conflicts(raw),
        *extension_conflicts(raw),
        *protection_conflicts(raw, defaults),
        *task_conflicts(raw, defaults),
        *limit_conflicts(raw, defaults),
        *audit_conflicts(raw),
        *metrics_conflicts(raw),
        *tracing_conflicts(raw),
        *store_conflicts(raw, defaults),
    ]


def _unknown_upstreams(raw: object) -> Iterator[Conflict]:
    known = mapping_at(raw, "upstreams")
    for keys in (("tasks", "upgrade"), ("authorization", "rules"), ("limits", "rate")):
        for index, rule in enumerate(list_at(raw, *keys) if known else []):
            name = mapping_at(rule).get("upstream")
            if isinstance(name, str) and name not in known:
                yield (*keys, index, "upstream"), "must be the name of an upstream of this file"
