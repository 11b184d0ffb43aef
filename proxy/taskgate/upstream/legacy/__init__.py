"""Sessions with servers of the legacy era."""
