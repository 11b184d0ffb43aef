"""Records for a store that expects them soon after they were made, by its server's time."""

from datetime import UTC, datetime, timedelta
from typing import Any

from helpers.records import HOLDER, new_record
from taskgate.domain.record import Lease, TaskRecord


def record_of_now(*, left: timedelta | None = None, holder: str = HOLDER, **changes: Any) -> TaskRecord:
    """A record that was made just now, by the real time; with `left`, the lease on it ends so long after that."""
    now = datetime.now(UTC)
    changes.setdefault("created_at", now)
    if left is not None:
        changes.setdefault("lease", Lease(holder=holder, until=now + left))
    return new_record(**changes)
