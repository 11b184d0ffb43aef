"""What the gateway needs of its process: timers, threads, files and descriptors."""
