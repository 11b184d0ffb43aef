"""Small values about what happened, by what they are about; `telemetry.audit` has all for who tells or listens."""
