"""Builds: the plan, the runs with their logs, what is remembered of them."""
