"""A task from its creation to its purge."""
