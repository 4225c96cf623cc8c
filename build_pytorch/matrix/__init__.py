"""TODO matrix."""
