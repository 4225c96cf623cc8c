"""Machines and what runs on them: read this one or a saved one, and name the right variant."""
