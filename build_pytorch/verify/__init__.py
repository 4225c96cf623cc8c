"""Verification: checks of recipes and docs, and reports of their findings."""
