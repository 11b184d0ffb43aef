"""How one process reaches Redis or Valkey: where it is, the connections to it, and whether it answers."""
