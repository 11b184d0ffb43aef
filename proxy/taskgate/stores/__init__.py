"""Where records rest. A store keeps promises about atomicity and visibility; it decides nothing about a task."""
