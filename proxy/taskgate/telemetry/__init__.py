"""What operators see: events reported by the floors above, as metrics and as log lines."""
