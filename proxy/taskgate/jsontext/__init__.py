"""JSON as text with places: what is read of it, and edited, without being decoded whole. Pure."""
