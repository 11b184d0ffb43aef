"""Sessions with servers of the stateless era, in the words of the initialize era."""
