"""The formats of audit lines: they turn an `AuditEvent` into a document or a line.

`Renderer` is what the rest of the audit log uses. Every line is first a native document (`native`);
`ocsf` and `ecs` translate that one, and contain it whole. `line_templates` writes native lines of
common requests without a document. `digests`, `redaction` and `field_redaction` keep ids, tokens and
argument values out of lines, and `schema` describes them.
"""
