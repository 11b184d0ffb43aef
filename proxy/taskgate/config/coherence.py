"""What each key allows alone and keys together do not.

What lives here: the rules between keys, but for those of other modules that it gathers. What must not: the models,
which call this. What holds: it reads the file's words, not a model, so that contradictions are told together with what
is wrong in single keys; parts that are malformed are passed over, because they are complained about elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskgate.config.addresses import BindAddress, read_listen
from taskgate.config.audit_coherence import audit_contradictions
from taskgate.config.auth_coherence import auth_contradictions
from taskgate.config.credential_coherence import credential_contradictions
from taskgate.config.extension_coherence import extension_contradictions
from taskgate.config.limit_coherence import limit_contradictions
from taskgate.config.metrics_coherence import metrics_contradictions
from taskgate.config.problems import dotted
from taskgate.config.protection_coherence import protection_contradictions
from taskgate.config.retention import retention_contradictions
from taskgate.config.shared_coherence import shared_contradictions
from taskgate.config.task_coherence import task_contradictions
from taskgate.config.timeout_coherence import timeout_contradictions
from taskgate.config.tls import tls_contradictions
from taskgate.config.tracing_models import tracing_contradictions
from taskgate.config.transport_coherence import transport_contradictions
from taskgate.config.written import Contradiction, listed, read, section, told


def contradictions(written: object, *, usual: object) -> list[Contradiction]:
    """Every contradiction in `written`, with where it is told; a key that it lacks is as in `usual`."""
    return [
        *_shared_listener(written, usual),
        *_shared_paths(written),
        *_unknown_upstreams(written),
        *retention_contradictions(written, usual),
        *auth_contradictions(written),
        *transport_contradictions(written),
        *credential_contradictions(written),
        *extension_contradictions(written),
        *timeout_contradictions(written),
        *protection_contradictions(written, usual),
        *task_contradictions(written, usual),
        *limit_contradictions(written, usual),
        *tls_contradictions(written),
        *audit_contradictions(written),
        *metrics_contradictions(written),
        *tracing_contradictions(written),
        *shared_contradictions(written, usual),
    ]


def _shared_listener(written: object, usual: object) -> Iterator[Contradiction]:
    ours: BindAddress | None = read((written, usual), ("server", "listen"), read_listen)
    theirs: BindAddress | None = read((written, usual), ("admin", "listen"), read_listen)
    if ours and theirs and ours.overlaps(theirs):
        words = "must not be" if ours == theirs else "must not take the address and port of"
        yield told(written, usual, ("server", "listen"), ("admin", "listen"), (words, words))


def _shared_paths(written: object) -> Iterator[Contradiction]:
    owners: dict[str, str] = {}
    for name in section(written, "upstreams"):
        path = section(written, "upstreams", name).get("path")
        if isinstance(path, str) and owners.setdefault(path, name) != name:
            yield ("upstreams", name, "path"), f"must not be the path of {dotted(('upstreams', owners[path]))}"


def _unknown_upstreams(written: object) -> Iterator[Contradiction]:
    known = section(written, "upstreams")
    for keys in (("tasks", "upgrade"), ("authorization", "rules"), ("limits", "rate")):
        for index, rule in enumerate(listed(written, *keys) if known else []):
            name = section(rule).get("upstream")
            if isinstance(name, str) and name not in known:
                yield (*keys, index, "upstream"), "must be the name of an upstream of this file"
