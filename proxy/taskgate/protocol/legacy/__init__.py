"""The legacy era: 2024-11-05 to 2025-11-25, sessions, and the tasks that the newest of them defines."""
