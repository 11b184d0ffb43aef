"""The whole configuration: `GatewayConfig`, its defaults, conflicts between its sections, and the
settings that take keys of several sections. `json_schema` is the schema of the file.

A GatewayConfig is frozen and valid in itself: files, programs and servers that it names are checked
where a gateway starts. `model_dump(mode="json")` writes it in the notations of the file. Settings
from one section are made by its own `to_settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from taskgate.admission.concurrency import BulkheadSettings
from taskgate.admission.rules import AdmissionRules, CallerLimit, OnStoreError, RejectAs
from taskgate.auth.claims import API_KEYS
from taskgate.config.fields import Name, Section, write_duration
from taskgate.config.problems import Conflict, list_at, mapping_at
from taskgate.config.references import NO_REFERENCES, References
from taskgate.config.sections.audit import AuditSection, audit_conflicts, with_sink_defaults
from taskgate.config.sections.auth import AuthorizationSection, AuthSection, auth_conflicts
from taskgate.config.sections.credentials import credential_conflicts
from taskgate.config.sections.egress import EgressSection, egress_conflicts
from taskgate.config.sections.extensions import extension_conflicts
from taskgate.config.sections.limits import LimitsSection, limit_conflicts, with_built_in_rates
from taskgate.config.sections.server import AdminSection, ServerSection, server_conflicts
from taskgate.config.sections.store import StoreSection, store_conflicts
from taskgate.config.sections.tasks import TasksSection, task_conflicts, with_ttl_max
from taskgate.config.sections.telemetry import (
    LoggingSection,
    MetricsSection,
    TracingSection,
    metrics_conflicts,
    tracing_conflicts,
)
from taskgate.config.sections.upstreams import (
    RetriesSection,
    UpstreamSection,
    retry_and_health_conflicts,
    upstream_conflicts,
    with_check_defaults,
)
from taskgate.domain.limits import subject_limit
from taskgate.egress import DIRECT, Egress
from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.streams.bytes_in_flight import ByteBounds
from taskgate.streams.event_log import EventBounds
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.upstream.settings import UpstreamSettings

CONFLICT: Final = "conflict"
"""The type of pydantic's errors for conflicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOrigin:
    """The context of a validation: the folder of the file, and the references in it."""

    folder: Path
    references: References


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
    egress: EgressSection = EgressSection()

    _environment: Egress = PrivateAttr(default=DIRECT)
    _references: References = PrivateAttr(default=NO_REFERENCES)

    def model_post_init(self, context: ConfigOrigin | None, /) -> None:
        """Take over what the file says of its references."""
        if context is not None:
            self._references = context.references

    @property
    def names_callers(self) -> bool:
        """Whether operators see names of callers."""
        return (self.admin.identity or self.audit.identity) == "full"

    @property
    def references(self) -> References:
        """Return what came from references of the file, for all that shows a value."""
        return self._references

    @property
    def environment(self) -> Egress:
        """Return the proxies that variables of the environment name."""
        return self._environment

    def with_environment(self, environment: Egress) -> Self:
        """Return an equal configuration with the proxies that variables of the environment name."""
        found = self.model_copy()
        found._environment = environment
        return found

    def to_egress(self) -> Egress:
        """Return which proxy leads to servers, issuers and token endpoints."""
        return self.egress.to_egress(self._environment)

    def with_references(self, references: References) -> Self:
        """Return an equal configuration with other references."""
        found = self.model_copy()
        found._references = references
        return found

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, raw: object) -> object:
        return with_sink_defaults(with_check_defaults(with_ttl_max(with_built_in_rates(raw))))

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
        *egress_conflicts(raw),
        *_unknown_upstreams(raw),
        *auth_conflicts(raw),
        *upstream_conflicts(raw),
        *credential_conflicts(raw),
        *extension_conflicts(raw),
        *retry_and_health_conflicts(raw, defaults),
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


def upstream_settings(config: GatewayConfig, name: str) -> UpstreamSettings:
    """Return the settings of the upstream of that name."""
    return config.upstreams[name].to_settings(
        name,
        max_result=config.tasks.max_result,
        catalogue=config.limits.catalogue.to_bounds(),
        egress=config.to_egress(),
    )


def bulkhead_settings(config: GatewayConfig, name: str) -> BulkheadSettings:
    """Return the limits of concurrent and queued calls of the upstream of that name."""
    section = config.upstreams[name]
    return BulkheadSettings(
        concurrency=section.concurrency,
        queue=section.queue.size,
        max_wait=section.queue.max_wait,
        share=config.limits.concurrency.calls_per_context,
        is_shared=config.auth.mode != "none",
    )


def admission_rules(config: GatewayConfig) -> AdmissionRules:
    """Return one generation of the rules that may change while the gateway runs."""
    limits, concurrency = config.limits, config.limits.concurrency
    return AdmissionRules(
        policy=config.tasks.to_policy(config.auth.mode),
        polling=config.tasks.to_polling(),
        handoff=config.tasks.handoff.to_rules(),
        access=config.authorization.to_policy(config.upstreams),
        rates=limits.to_rate_policies(),
        caps=concurrency.to_caps(),
        overrides=limits.to_overrides(),
        questions=config.tasks.input_required.to_bounds(),
        reject_as=RejectAs(limits.reject_as),
        exposes_quota=limits.expose_quota,
        on_store_error=OnStoreError(limits.on_store_error),
        sessions=_of_caller(concurrency.sessions_per_context, concurrency.sessions_per_subject),
        streams=_of_caller(config.server.max_streams_per_context, config.server.max_streams_per_subject),
        in_flight=ByteBounds(
            *_of_caller(concurrency.bytes_in_flight_per_context, concurrency.bytes_in_flight_per_subject),
            concurrency.bytes_in_flight_global,
        ),
        events=EventBounds(concurrency.streams_kept_per_context, concurrency.streams_kept_global),
        waits=_of_caller(concurrency.waits_per_context, concurrency.waits_per_subject),
        all_waits=concurrency.waits_global,
        names_callers=config.names_callers,
    )


def _of_caller(context: int, subject: int | None) -> CallerLimit:
    return CallerLimit(context, subject_limit(subject, context))


def extension_methods(config: GatewayConfig) -> frozenset[str]:
    """Return the methods of extensions that cross at any upstream."""
    policies = [section.extensions.to_policy() for section in config.upstreams.values()]
    return frozenset(method for policy in policies for each in policy.allowed.values() for method in each.methods)


def metrics_config(config: GatewayConfig) -> MetricsConfig:
    """Return the names and limits that the metrics of the gateway show."""
    audit, upstreams = config.audit, config.upstreams
    uses_tokens = ("client_credentials", "token_exchange")
    return MetricsConfig(
        backend=config.store.backend,
        upstreams={name: name for name in upstreams},
        issuers=(*config.auth.issuers, *((API_KEYS,) if config.auth.api_keys else ())),
        policies=tuple(policy.name for policy in config.limits.rate),
        sinks=tuple(sink.name for sink in audit.sinks) if audit.enabled else (),
        extensions=tuple(sorted({name for each in upstreams.values() for name in each.extensions.named})),
        methods=tuple(sorted(extension_methods(config) - KNOWN_METHODS)),
        token_users=tuple(name for name, each in upstreams.items() if each.credentials.mode in uses_tokens),
        programs=tuple(name for name, each in upstreams.items() if each.transport == "stdio"),
        task_limit=config.limits.concurrency.tasks_global,
        queue_limits={name: upstream.queue.size for name, upstream in upstreams.items()},
        store_limit=config.store.sqlite.max_size if config.store.backend == "sqlite" else None,
        audit_queue=audit.queue if audit.enabled else None,
        settings=config.metrics.to_settings(shares_store=config.store.backend == "redis"),
    )


_REFERENCE = {
    "description": "${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar sign",
    "type": "string",
    "pattern": r"\$\{[^}]+\}",
}


class _SchemaGenerator(GenerateJsonSchema):
    """Writes the default of a key that may be null as its other values."""

    def encode_default(self, dft: Any) -> Any:
        """Return the default as a file has it."""
        return write_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12), with a description and the default of every key.

    `taskgate schema` prints it, and config/schema.json is a copy of it.

    It lacks the rules between keys, and what a pattern cannot express: `load` checks those.
    """
    generated = GatewayConfig.model_json_schema(mode="serialization", schema_generator=_SchemaGenerator)
    schema = _inlined(generated, generated["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$defs": {"reference": _REFERENCE}}


def _inlined(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a generated schema without `$ref` and titles, with a reference as a choice of every
    scalar.
    """
    if "$ref" in node:
        node = {**definitions[node["$ref"].rpartition("/")[2]], **node}
    node = {key: value for key, value in node.items() if key not in ("$ref", "$defs", "title")}
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if node.get("type") == "array":
        return node | {"items": _inlined(node["items"], definitions)}
    if node.get("type") == "object":
        return node | _members(node, definitions)
    about = {str(key): node.pop(key) for key in ("description", "default") if key in node}
    choices = [
        _inlined(each, definitions) if "$ref" in each or each.get("type") == "array" else each
        for each in node.get("anyOf", node.get("oneOf", [node]))
    ]
    return about | {"anyOf": [*choices, {"$ref": "#/$defs/reference"}]}


def _members(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an object; others are refused, except where names are free."""
    found: dict[str, Any] = {"additionalProperties": node.get("additionalProperties", False)}
    if isinstance(found["additionalProperties"], dict):
        found["additionalProperties"] = _inlined(found["additionalProperties"], definitions)
    for group in node.keys() & {"properties", "patternProperties"}:
        found[group] = {name: _inlined(child, definitions) for name, child in node[group].items()}
    return found
