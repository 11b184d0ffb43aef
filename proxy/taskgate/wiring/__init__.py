"""The composition root: from a configuration to a gateway that runs, and to its end."""
