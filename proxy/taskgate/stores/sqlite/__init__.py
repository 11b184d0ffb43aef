"""Records in one SQLite file that one process holds."""
