"""A story for the previews: an hour of normal traffic with one incident, and a healthy day."""
