"""What a task is and what may happen to it. Pure: no clock, no wire, no store."""
