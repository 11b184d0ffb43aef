"""Small values about what happened, by what they are about; `telemetry.events` has all for who tells or listens."""
