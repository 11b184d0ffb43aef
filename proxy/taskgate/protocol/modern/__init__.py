"""The modern era: 2026-07-28, where every request says all, and the tasks that its extension defines."""
