"""What the keys about metrics say together.

What lives here: the rules between keys of `metrics`. What must not: the models. What holds: as in coherence, malformed
parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskgate.config.limit_coherence import has_tenants, without_tenants
from taskgate.config.written import Contradiction, section


def metrics_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    given = section(written, "metrics")
    tenants = given.get("tenants", [])
    if not isinstance(tenants, list):
        return
    if given.get("tenant_label") is True and not has_tenants(written):
        yield ("metrics", "tenant_label"), f"must be false {without_tenants(written)}"
    elif given.get("tenant_label") is True and not tenants:
        yield ("metrics", "tenant_label"), "must be false unless metrics.tenants names some: all would be _OTHER"
    if given.get("tenant_label", False) is False and tenants:
        yield ("metrics", "tenants"), "must be [] unless metrics.tenant_label is true"
