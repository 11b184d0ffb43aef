"""Files to ask about: one that knows nobody, and one with an issuer, tenants and limits of theirs."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from unit.explain.explain_command import ISSUER

RULES = """\
server: {public_url: https://mcp.example.com}
upstreams:
  reports: {path: /reports/mcp, url: "http://127.0.0.1:9/mcp", concurrency: 4}
  search: {path: /search/mcp, url: "http://127.0.0.1:9/mcp"}
tasks:
  upgrade:
    - {upstream: reports, tool: "list_*", hints: {readOnlyHint: true}, mode: sync}
    - {upstream: reports, tool: "*", mode: required, shadow: true}
    - {upstream: reports, tool: "export_*", mode: always, ttl: 1h, cap: 3, on_lost: rerun}
    - {tool: "*", mode: auto}
"""
OF_TENANTS = """\
authorization:
  rules:
    - {upstream: reports, tool: "delete_*", effect: deny, shadow: true}
    - {name: deleting, upstream: reports, tool: "delete_*", require_scopes: [reports.admin]}
  scope_implies: {reports.admin: [reports.read]}
limits:
  replace_defaults: true
  rate:
    - {name: ip, scope: ip, rate: 100/s, before_auth: true}
    - {name: calls, scope: context, methods: [tools/call], rate: 5/s, burst: 20}
    - {name: tenants, scope: tenant, rate: 600/m, mode: shadow}
    - {name: exports, scope: upstream, tool: "export_*", rate: 10/m, cost: 2}
    - {name: guesses, scope: context, rate: 10/m, event: lookup_failure}
  overrides:
    - match: {tenant: gold}
      rate: {calls: 50/s}
      concurrency: {tasks_per_context: 50, calls_per_context: 3}
      ttl_max: 7d
"""


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def anonymous(tmp_path: Path) -> Path:
    """A file with `auth.mode: none`."""
    file = tmp_path / "anonymous.yaml"
    file.write_text(f"version: 1\nauth: {{mode: none}}\n{RULES}")
    return file


@pytest.fixture
def known(tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """A file with an issuer whose key is in a file."""
    keys = tmp_path / "keys.json"
    public: Any = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [{**public, "kid": "k", "alg": "ES256", "use": "sig"}]}))
    issuer = f"{{issuer: '{ISSUER}', jwks_file: '{keys}', claims: {{tenant: org}}}}"
    file = tmp_path / "known.yaml"
    file.write_text(f"version: 1\nauth: {{mode: required, issuers: {{corp: {issuer}}}}}\n{RULES}{OF_TENANTS}")
    return file
