"""TODO generate."""
