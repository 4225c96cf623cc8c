"""The checks, by category."""
