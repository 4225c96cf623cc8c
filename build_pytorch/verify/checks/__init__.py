"""TODO verify/checks."""
