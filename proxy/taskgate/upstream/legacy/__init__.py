"""Sessions with servers of the initialize era."""
