"""Records for a store that expects them soon after they were made, by its server's time."""

from datetime import UTC, datetime
from typing import Any

from helpers.records import new_record
from taskgate.domain.record import TaskRecord


def record_of_now(**changes: Any) -> TaskRecord:
    """A record that was made just now, by the real time."""
    return new_record(**{"created_at": datetime.now(UTC)} | changes)
