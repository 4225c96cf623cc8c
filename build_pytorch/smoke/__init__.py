"""TODO smoke."""
