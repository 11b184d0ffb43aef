"""Sessions with servers of the modern era, in the words of the legacy era."""
