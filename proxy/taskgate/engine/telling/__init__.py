"""What servers say and ask while a task runs, on its way to the hosts that may hear it, and their answers."""
