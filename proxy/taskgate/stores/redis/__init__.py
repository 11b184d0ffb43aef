"""Redis or Valkey as a store that several processes share."""
