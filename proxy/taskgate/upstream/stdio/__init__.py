"""Lines to servers that are programs of this machine: their processes are started, bounded, shared and ended here."""
