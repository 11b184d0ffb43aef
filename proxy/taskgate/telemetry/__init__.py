"""What operators see: facts reported by the floors above, as metrics and as log lines."""
