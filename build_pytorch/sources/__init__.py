"""TODO sources."""
