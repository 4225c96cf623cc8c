"""Machines: detect one, save its description, and resolve which variants run on it and why."""
