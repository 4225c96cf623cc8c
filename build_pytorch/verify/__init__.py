"""TODO verify."""
