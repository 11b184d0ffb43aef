"""Tasks in a store that several processes share: what lies where, and what is done to it."""
