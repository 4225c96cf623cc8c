"""TODO publish."""
