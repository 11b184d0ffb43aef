"""The formats of audit lines: native, OCSF and ECS."""
