"""Who asks, and what they may do and find. Refusals begin here."""
