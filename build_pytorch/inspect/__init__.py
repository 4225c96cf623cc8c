"""TODO inspect."""
